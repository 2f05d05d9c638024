/** Questions of a run as interrupts, and resume entries as answers. An interrupt's ID names run, approval and digest. Pure. */

import type { Interrupt } from '@ag-ui/core'
import * as z from 'zod'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { AgUiResume } from '#specs/service/ag-ui-resources.ts'
import { type Answer, fitsForm, formOf, readForm } from '../run-view/question-form.ts'
import { nameOfQuestion } from '../run-view/question-name.ts'
import type { Question } from '../run-view/run-view.ts'

const elsewhere = 'It is too long to be answered here. Answer it in Caisson: the web page, or the terminal.'
/** What many front ends send for a call: yes or no, this once. */
const Approved = z.strictObject({ approved: z.boolean() })

export function interruptOf(question: Question, toolCallId: string | undefined, clean: CleanText): Interrupt {
  const { runId, approval } = question
  const digest = digestOfQuestion(question)
  const { message, requestedSchema } = formOf(question, clean)
  const isAnswered = fitsForm(question)
  return {
    ...{ id: nameOfQuestion(question), reason: reasonOf(question, toolCallId) },
    message: isAnswered ? message : elsewhere,
    ...(toolCallId === undefined ? {} : { toolCallId }),
    ...(isAnswered ? { responseSchema: { ...requestedSchema } } : {}),
    metadata: { caisson: { runId, approvalId: approval.approvalId, digest, tool: approval.tool } },
  }
}

/** The answer of an entry; a text that says what is wrong with it otherwise. */
export function answerOf(question: Question, { payload }: AgUiResume): Answer | string {
  if (!fitsForm(question)) return elsewhere
  const short = Approved.safeParse(payload).data
  if (short !== undefined && question.approval.question === undefined)
    return { decision: short.approved ? 'allow' : 'deny', scope: 'once' }
  return readForm(question, payload)
}

function reasonOf({ approval }: Question, toolCallId: string | undefined): string {
  if (approval.question !== undefined) return 'input_required'
  if (approval.access !== undefined) return 'caisson:network_access'
  return toolCallId === undefined ? 'confirmation' : 'tool_call'
}
