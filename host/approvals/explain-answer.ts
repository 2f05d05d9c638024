/** Says why an answer to an approval does not count. Pure. */
import * as z from 'zod'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import {
  type AccessQuestion,
  AnswerDuration,
  AnswerReach,
  type ApprovalRequest,
  ApprovalScope,
} from '#specs/protocol/approval.ts'
import type { PendingApproval } from '#specs/protocol/run-state.ts'
import { Sha256, Text } from '#specs/protocol/text.ts'
import { formatTime } from '../files/format.ts'
import type { AnswerResult, ApprovalAnswer, DecisionRecord } from './decisions.ts'
import { offeredAnswers } from './offered-answers.ts'
import { describeAnswer } from './user-question.ts'

/** Fields of every answer, also checked for untyped callers. Plan and answer are validated by question type. */
const AnswerForm = z.looseObject({
  decision: z.enum(['allow', 'deny']),
  scope: ApprovalScope,
  reach: AnswerReach.optional(),
  forMs: AnswerDuration.optional(),
  hint: Text.optional(),
  digest: Sha256.optional(),
})

const deciders = {
  rule: 'a rule',
  mode: 'the approval mode',
  cancel: 'the end of the run',
  agent: 'the agent, which withdrew it',
} as const

/** Undefined for what is no answer to any question. */
export function readAnswer(answer: ApprovalAnswer): ApprovalAnswer | undefined {
  return AnswerForm.safeParse(answer).success ? answer : undefined
}

/** The run ended, or another process has it, before its journal had the answer. */
export const unrecorded: AnswerResult = {
  taken: false,
  reason: 'connection_lost',
  message:
    'the run ended or left its host before the answer was in its journal; look at the run, then answer again',
}

export function explainUnknown(approvalId: string): AnswerResult {
  const message = `no approval of this run has the ID ${JSON.stringify(approvalId)}; list them: caisson approvals list, or pendingApprovals of the run's state`
  return { taken: false, reason: 'unknown', message }
}

export function explainDecided(
  approvalId: string,
  { ruling, at }: { readonly ruling: DecisionRecord; readonly at: number },
): AnswerResult {
  const who = ruling.by === 'person' ? `${ruling.name} (${ruling.via})` : deciders[ruling.by]
  const word = ruling.decision === 'allow' ? 'allowed' : 'denied'
  const message = `${approvalId} was already ${word} by ${who} at ${formatTime(at)}; the first answer counts`
  return { taken: false, reason: 'decided', message }
}

/** Undefined when the answer is for this question, or says of none. */
export function explainChanged(
  runId: string,
  approval: PendingApproval,
  { digest }: Pick<ApprovalAnswer, 'digest'>,
): AnswerResult | undefined {
  if (digest === undefined || digest === digestOfQuestion({ runId, approval })) return undefined
  const message = `the run asks something else under ${approval.approvalId} than the answer was for; nothing was answered`
  return { taken: false, reason: 'question_changed', message }
}

export function explainNotOffered({
  request,
  access,
  remembers,
}: {
  readonly request: ApprovalRequest
  readonly access: AccessQuestion | undefined
  readonly remembers: boolean
}): AnswerResult {
  const { approvalId, question } = request
  const labels = offeredAnswers(request, access, remembers).map(({ label }) => label)
  const form = question === undefined ? '' : ` (${describeAnswer(question)})`
  const message = `${approvalId} does not accept this answer; expected one of: ${labels.join(', ')}${form}`
  return { taken: false, reason: 'not_offered', message }
}
