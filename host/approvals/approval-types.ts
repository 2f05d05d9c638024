/** Types shared by the queue, its rules and its clients: a person's answer, and a question of the host itself. */
import type { AccessQuestion, ApprovalDecision, ApprovalScope } from '#specs/protocol/approval.ts'
import type { AccessReach } from '#specs/protocol/egress.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import type { UserAnswer } from '#specs/protocol/question.ts'
import type { DecisionRecord } from './decisions.ts'
import type { Call } from './rules.ts'

/** Answer when no rule matches: ask a person, always yes, always no. */
export type ApprovalMode = 'ask' | 'all' | 'none'

/** A person's answer. */
export interface ApprovalAnswer {
  readonly decision: 'allow' | 'deny'
  /** `run`: the same answer for every later call of this tool in this run. `always`: only for network access. */
  readonly scope: ApprovalScope
  /** For network access: one of the offered reaches. Absent: the first. */
  readonly reach?: AccessReach
  /** For a denial: what the agent should do instead. */
  readonly hint?: string
  /** With a yes to a plan question: the plan to execute instead. */
  readonly plan?: Plan
  /** With a yes of scope `once` to `ask_user`: the answer in the requested form. */
  readonly answer?: UserAnswer
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
  /** Called with the answer and its source, before the agent gets it. */
  readonly onDecision?: (ruling: DecisionRecord) => void
}
