/** A question of a run, as the service shows it. */
import { AccessQuestion, OfferedAnswer } from '#specs/protocol/approval.ts'
import { Plan } from '#specs/protocol/plan.ts'
import type { PendingApproval } from '#specs/protocol/run-state.ts'
import { waitTool } from '#specs/protocol/tool-names.ts'
import { WaitArguments } from '#specs/protocol/workflow.ts'
import type { ServiceReply } from '../../client/index.ts'
import { dateTime } from '../parts/text.ts'

export interface Question {
  readonly runId: string
  readonly at: number
  readonly approval: Omit<PendingApproval, 'access' | 'answers'>
  readonly access: AccessQuestion | undefined
  readonly answers: readonly OfferedAnswer[]
  /** Of the service, for the answer. */
  readonly digest: string
  /** The plan that it asks about. */
  readonly plan: Plan | undefined
}

/** For journals that do not name the answers. */
const plainAnswers: readonly OfferedAnswer[] = [
  { label: 'yes, this once', decision: 'allow', scope: 'once' },
  { label: 'no', decision: 'deny', scope: 'once' },
]

export function fromResource({
  runId,
  at,
  approval,
  digest,
}: ServiceReply<'listApprovals'>['approvals'][number]): Question {
  const access = AccessQuestion.safeParse(approval.access).data
  const answers = OfferedAnswer.array().safeParse(approval.answers).data
  const { access: _, answers: __, ...rest } = approval
  return {
    ...{ runId, at, approval: rest as PendingApproval, access, digest },
    answers: answers === undefined || answers.length === 0 ? plainAnswers : answers,
    plan: access === undefined && approval.tool === 'submit_plan' ? readPlan(approval.arguments) : undefined,
  }
}

function readPlan(text: string): Plan | undefined {
  try {
    return Plan.safeParse(JSON.parse(text)).data
  } catch {
    return undefined
  }
}

/** When a wait of a workflow ends, ms since 1970; undefined for another question. */
export function untilOf({
  tool,
  arguments: given,
}: Pick<Question['approval'], 'tool' | 'arguments'>): number | undefined {
  if (tool !== waitTool) return undefined
  try {
    return WaitArguments.safeParse(JSON.parse(given)).data?.until
  } catch {
    return undefined
  }
}

/** What the card is called, in the page's own words. */
export function titleOf({ approval, access, plan }: Question): string {
  const until = untilOf(approval)
  if (until !== undefined) return `Waits until ${dateTime(until)}`
  if (access !== undefined) return 'Allow network access?'
  if (approval.question !== undefined) return 'The agent asks you'
  if (plan !== undefined) return 'Approve this plan?'
  return 'Allow'
}
