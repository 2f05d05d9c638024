/** What people hear of a question that waits: short, without its arguments, and with a digest of all that was asked. */
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { RunApproval } from '../index.ts'

const textMaxChars = 2_000

/** What a question is about. */
export type QuestionKind = 'call' | 'access' | 'plan' | 'question'

export interface QuestionNotice {
  readonly runId: string
  readonly questionId: string
  readonly kind: QuestionKind
  /** In the words of the service. */
  readonly title: string
  /** What the question shows: its words, the address, the goal of the plan, or the preview; cut to 2,000 characters. */
  readonly text: string
  /** SHA-256 of the question as it was shown. */
  readonly digest: string
  /** Whether `text` is in the words of the agent. */
  readonly isClaim: boolean
  /** When it was asked, ISO 8601. */
  readonly askedAt: string
}

export function noticeOf(question: RunApproval): QuestionNotice {
  const { runId, at, approval } = question
  const kind = kindOf(approval)
  return {
    ...{ runId, questionId: approval.approvalId, kind },
    title: titleOf(kind, approval.tool),
    text: textOf(kind, approval).slice(0, textMaxChars).toWellFormed(),
    digest: digestOfQuestion(question),
    isClaim: approval.kind === 'cooperative',
    askedAt: new Date(at).toISOString(),
  }
}

function kindOf({ access, question, tool }: RunApproval['approval']): QuestionKind {
  if (access !== undefined) return 'access'
  if (question !== undefined) return 'question'
  return tool === 'submit_plan' ? 'plan' : 'call'
}

function titleOf(kind: QuestionKind, tool: string): string {
  if (kind === 'access') return 'Allow network access?'
  if (kind === 'question') return 'The agent asks you'
  return kind === 'plan' ? 'Approve this plan?' : `Allow ${tool.slice(0, 100).toWellFormed()}?`
}

function textOf(kind: QuestionKind, { access, question, preview }: RunApproval['approval']): string {
  if (kind === 'access') return access?.address ?? ''
  return kind === 'question' ? (question?.question ?? '') : preview
}
