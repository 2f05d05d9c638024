/** Decisions on an approval that no person makes, as the journal stores them. Pure values; the queue selects one. */
import type { ApprovalRecord, ApprovalRule } from '#specs/protocol/approval.ts'
import { limits } from '#specs/protocol/limits.ts'

/** A decision and its source. */
export type DecisionRecord = Omit<ApprovalRecord, 'approvalId'>

/** No person can answer. The text is for the user who started the run; the command line shows its own options in it. */
export const unattended: DecisionRecord = {
  decision: 'deny',
  scope: 'once',
  by: 'mode',
  rule: 'no interactive user answers approvals of this run; to allow it, use option approvals.mode: all or option approvals.rules (an application can also answer, with onApproval or run.answer)',
  hint: 'no user is available to approve this; continue without it and say so in your answer',
}

/** The user's mode denies everything. */
export const modeNone: DecisionRecord = {
  decision: 'deny',
  scope: 'run',
  by: 'mode',
  rule: 'option approvals.mode: none',
}

/** For a plan question without a valid plan of the run. */
export const noPlan: DecisionRecord = {
  decision: 'deny',
  scope: 'once',
  by: 'mode',
  rule: 'a question about a plan that holds none of the run',
}

/** Decision by a rule. */
export function decisionByRule(rule: ApprovalRule, decision: 'allow' | 'deny'): DecisionRecord {
  const hasReason = decision === 'deny' && rule.reason !== undefined
  const why = hasReason ? { hint: rule.reason } : {}
  return { decision, scope: 'once', by: 'rule', rule: describeRule(rule), ...why }
}

/** The agent withdrew its question. @param reason of the signal, shown if it is a string */
export function withdrawn(reason: unknown): DecisionRecord {
  const rule = typeof reason === 'string' ? reason : 'the agent does not ask any more'
  return { decision: 'deny', scope: 'once', by: 'agent', rule: rule.slice(0, limits.lineMaxChars) }
}

function describeRule(rule: ApprovalRule): string {
  const pattern =
    rule.pattern === undefined ? '' : ` ${rule.argument ?? ''}${rule.argument ? '=' : ''}${rule.pattern}`
  return `${rule.effect} ${rule.tool}${pattern}`.slice(0, 500)
}
