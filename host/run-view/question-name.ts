/** The name of a question as it was shown: run, approval and digest. An answer that has it is for that question alone. */
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { Question } from './run-view.ts'

export interface QuestionName {
  readonly runId: string
  readonly approvalId: string
  readonly digest: string
}

const form = /^(run-[0-9a-f]{20})\/(.+)\/([0-9a-f]{64})$/s

export function nameOfQuestion(question: Question): string {
  return `${question.runId}/${question.approval.approvalId}/${digestOfQuestion(question)}`
}

/** Undefined: it is no name that {@link nameOfQuestion} makes. */
export function readQuestionName(text: string): QuestionName | undefined {
  const [, runId, approvalId, digest] = form.exec(text) ?? []
  if (runId === undefined || approvalId === undefined || digest === undefined) return undefined
  return { runId, approvalId, digest }
}
