/**
 * Approval questions of the guest, each put to the host once however often the guest has to ask: a question outlives
 * the session it came in, and its answer waits for the guest. Refuses an id that is used for another question.
 */
import { createHash } from 'node:crypto'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type HandlerFailure, sessionEnded } from '#specs/protocol/peer.ts'

export type ApprovalAnswer = Result<ApprovalDecision, HandlerFailure>
export type ApprovalHandler = (
  request: ApprovalRequest,
  context: { signal: AbortSignal },
) => Promise<ApprovalAnswer>

interface Question {
  /** Of the request: what was answered need not be kept to know it again. */
  digest: string
  controller: AbortController
  answer: Promise<ApprovalAnswer>
  open: boolean
}

/** Answers kept for guests that have to ask again. */
const keptAnswers = 1_024

export interface ApprovalDesk {
  /** `signal` is the peer's: it withdraws the question, unless it is the session that ended. */
  ask(request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalAnswer>
  /** Withdraws all open questions and forgets the answers. */
  clear(): void
}

export function createApprovalDesk(handler: ApprovalHandler): ApprovalDesk {
  const questions = new Map<string, Question>()

  function put(request: ApprovalRequest, digest: string): Question {
    const controller = new AbortController()
    const question: Question = {
      digest,
      controller,
      open: true,
      answer: handler(request, { signal: controller.signal }).finally(() => {
        question.open = false
      }),
    }
    question.answer.catch(() => {})
    return question
  }

  return {
    async ask(request, signal) {
      const digest = createHash('sha256').update(JSON.stringify(request)).digest('hex')
      let question = questions.get(request.approvalId)
      if (question === undefined) {
        if (!makeRoom(questions)) {
          return { ok: false, error: { code: 'busy', message: 'too many questions are open' } }
        }
        question = put(request, digest)
        questions.set(request.approvalId, question)
      } else if (question.digest !== digest) {
        const message = 'this approvalId was used for another question'
        return { ok: false, error: { code: 'invalidParams', message } }
      }
      const asked = question
      // A session that ends aborts its handlers too; the question then stays, for the guest will ask again.
      const withdraw = (): void => {
        if (signal.reason !== sessionEnded) asked.controller.abort('the step that asked has ended')
      }
      signal.addEventListener('abort', withdraw, { once: true })
      try {
        return await asked.answer
      } finally {
        signal.removeEventListener('abort', withdraw)
      }
    },
    clear() {
      for (const question of questions.values())
        if (question.open) question.controller.abort('the agent that asked is gone')
      questions.clear()
    },
  }
}

/** Forgets the oldest answers; open questions are never forgotten, so there may be no room. */
function makeRoom(questions: Map<string, Question>): boolean {
  let open = 0
  for (const question of questions.values()) if (question.open) open++
  if (open >= limits.pendingMaxRequests) return false
  for (const [id, question] of questions) {
    if (questions.size < keptAnswers) break
    if (!question.open) questions.delete(id)
  }
  return true
}
