/**
 * What answers an approval: the forms of a person's answer and of the host's own questions, and the decisions that no
 * person makes, as the journal stores them.
 */
import type {
  AccessQuestion,
  AnsweredVia,
  AnswerReach,
  ApprovalDecision,
  ApprovalRecord,
  ApprovalScope,
} from '#specs/protocol/approval.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import type { UserAnswer } from '#specs/protocol/question.ts'
import type { Call, Ruling } from './calls.ts'

/** Answer when no rule matches: ask a person, always yes, always no. */
export type ApprovalMode = 'ask' | 'all' | 'none'

/** A person's answer. */
export interface ApprovalAnswer {
  readonly decision: 'allow' | 'deny'
  /**
   * `run`: the same answer for later calls of this tool in this run, with the reach `command` for the same command alone.
   * `always`: only for network access.
   */
  readonly scope: ApprovalScope
  /** One of the offered reaches. Absent: for network access the first, else every call of the tool. */
  readonly reach?: AnswerReach
  /** With scope `run`: ms after which the answer expires, and later calls are asked about again. Absent: with the run. */
  readonly forMs?: number
  /** For a denial: what the agent should do instead. */
  readonly hint?: string
  /** With a yes to a plan question: the plan to execute instead. */
  readonly plan?: Plan
  /** With a yes of scope `once` to `ask_user`: the answer in the requested form. */
  readonly answer?: UserAnswer
  /** Digest of the question that the person saw, 64 hex digits. Absent: the answer is for whatever is asked under the ID. */
  readonly digest?: string
}

/** Who answers, for the journal. */
export interface Answerer {
  /** One line. */
  readonly name: string
  readonly via: AnsweredVia
}

/** What became of an answer. */
export type AnswerResult =
  | { readonly taken: true }
  | {
      readonly taken: false
      /**
       * `decided`: it was decided before; `unknown`: the run has no approval with this id; `not_offered`: the question does
       * not accept this answer; `question_changed`: the answer was for another question; `connection_lost`: nobody took it.
       */
      readonly reason: 'decided' | 'unknown' | 'not_offered' | 'question_changed' | 'connection_lost'
      /** For people: what happened, and what would be accepted. */
      readonly message: string
    }

/** A question of the host: its wording, what answers it, and the effect of an answer. */
export interface HostQuestion {
  readonly access: AccessQuestion
  /** The call that rules match. */
  readonly call: Call
  /** The answer without a person, if there is one; checked again while the question waits. */
  known(): DecisionRecord | undefined
  /** The answer when no person is available. */
  readonly unattended: DecisionRecord
  /** Applies the answer after it was journaled. @returns the decision for the agent */
  apply(ruling: DecisionRecord): Promise<ApprovalDecision>
}

/** Overrides for an approval request. Absent: the agent's wording is shown and the call blocks until answered. */
export interface AskOptions {
  /** `host`: the host executes the effect itself and has worded the question. */
  readonly askedBy?: 'host'
  /** Whether the question ignores any yes by a rule, mode or earlier answer. */
  readonly mustAsk?: boolean
  /** Whether the question is hidden from the agent. */
  readonly isUnseen?: boolean
  /** Whether neither a person nor an earlier answer of one decides: what no rule and no mode allows is denied. */
  readonly isUnattended?: boolean
  /** Called with the answer and its source, before the agent gets it. */
  readonly onDecision?: (ruling: DecisionRecord) => void
}

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

/** Decision by rules. */
export function decisionByRule({ rules }: Ruling, decision: 'allow' | 'deny'): DecisionRecord {
  const [{ reason }] = rules
  const why = decision === 'deny' && reason !== undefined ? { hint: reason } : {}
  const rule = rules.map(describeRule).join('; ').slice(0, 500).toWellFormed()
  return { decision, scope: 'once', by: 'rule', rule, ...why }
}

/** The agent withdrew its question. @param reason of the signal, shown if it is a string */
export function withdrawn(reason: unknown): DecisionRecord {
  const rule = typeof reason === 'string' ? reason : 'the agent does not ask any more'
  return { decision: 'deny', scope: 'once', by: 'agent', rule: rule.slice(0, limits.lineMaxChars) }
}

function describeRule(rule: Ruling['rules'][0]): string {
  const pattern =
    rule.pattern === undefined ? '' : ` ${rule.argument ?? ''}${rule.argument ? '=' : ''}${rule.pattern}`
  return `${rule.effect} ${rule.tool}${pattern}`
}
