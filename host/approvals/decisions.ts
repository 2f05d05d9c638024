/** Answers of an approval that no person gives, as the journal keeps them. Pure values; who decides between them is the queue. */
import type { ApprovalRecord, ApprovalRule } from '#specs/protocol/approval.ts'
import { limits } from '#specs/protocol/limits.ts'

/** An answer with who or what gave it. */
export type DecisionRecord = Omit<ApprovalRecord, 'approvalId'>

/** Nobody answers. The words are for whoever started the run, on the command line or in an application. */
export const unattended: DecisionRecord = {
  decision: 'deny',
  scope: 'once',
  by: 'mode',
  rule: "nobody answers approvals of this run; to allow it, pass --approve all or a rule file (in the library: approve: 'all', rules, or interactive: true with run.answer)",
  hint: 'nobody is there to approve this; go on without it and say so in your answer',
}

/** The user said no to all. */
export const modeNone: DecisionRecord = { decision: 'deny', scope: 'run', by: 'mode', rule: '--approve none' }

/** The question whether a plan may be carried out, without a plan of the run in it. */
export const noPlan: DecisionRecord = {
  decision: 'deny',
  scope: 'once',
  by: 'mode',
  rule: 'a question about a plan that holds none of the run',
}

/** A rule said so. */
export function decisionByRule(rule: ApprovalRule, decision: 'allow' | 'deny'): DecisionRecord {
  const isToldWhy = decision === 'deny' && rule.reason !== undefined
  const why = isToldWhy ? { hint: rule.reason } : {}
  return { decision, scope: 'once', by: 'rule', rule: describeRule(rule), ...why }
}

/** The agent takes its question back. @param reason of the signal, shown when it is a text */
export function withdrawn(reason: unknown): DecisionRecord {
  const rule = typeof reason === 'string' ? reason : 'the agent does not ask any more'
  return { decision: 'deny', scope: 'once', by: 'agent', rule: rule.slice(0, limits.lineMaxChars) }
}

function describeRule(rule: ApprovalRule): string {
  const pattern =
    rule.pattern === undefined ? '' : ` ${rule.argument ?? ''}${rule.argument ? '=' : ''}${rule.pattern}`
  return `${rule.effect} ${rule.tool}${pattern}`.slice(0, 500)
}
