/** What the queue, its rules and those who answer have in common: what a person's answer is, and a question of the host's own. */
import type { AccessQuestion, ApprovalDecision, ApprovalScope } from '#specs/protocol/approval.ts'
import type { AccessReach } from '#specs/protocol/egress.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import type { UserAnswer } from '#specs/protocol/question.ts'
import type { DecisionRecord } from './decisions.ts'
import type { Call } from './rules.ts'

/** What answers when no rule does: a person, always yes, always no. */
export type ApprovalMode = 'ask' | 'all' | 'none'

/** An answer by a person. */
export interface ApprovalAnswer {
  readonly decision: 'allow' | 'deny'
  /** `run`: the same answer for every later call of this tool in this run; `always` for a way out alone. */
  readonly scope: ApprovalScope
  /** Of a way out: one that the question offers; absent: its first. */
  readonly reach?: AccessReach
  /** For a denial: what the agent should do instead. */
  readonly hint?: string
  /** To a question about a plan, with a yes: what is to be carried out in its place. */
  readonly plan?: Plan
  /** To a question of `ask_user`, with a yes of scope `once`: of the form that it asks for. */
  readonly answer?: UserAnswer
}

/** What makes a question the host's own: its words, what answers it, and what an answer brings about. */
export interface HostQuestion {
  readonly access: AccessQuestion
  /** What rules that name the tool look at. */
  readonly call: Call
  /** The answer that is there without anybody being asked; also looked for while it waits. */
  known(): DecisionRecord | undefined
  /** The answer where nobody is there. */
  readonly unattended: DecisionRecord
  /** Makes the answer hold, after it was journaled. @returns what the agent is told */
  carryOut(ruling: DecisionRecord): Promise<ApprovalDecision>
}

/** What is otherwise than usual about a question that is settled as one about a call. Absent: the agent's words, and it waits for the answer. */
export interface AskOptions {
  /** `host`: the host does the effect itself and has worded the question. */
  readonly words?: 'host'
  /** Whether no rule, mode or earlier answer says yes to it. */
  readonly mustAsk?: boolean
  /** Whether the agent does not know that a person is asked. */
  readonly isUnseen?: boolean
  /** Told of the answer and who gave it, before the agent is. */
  readonly onDecision?: (ruling: DecisionRecord) => void
}
