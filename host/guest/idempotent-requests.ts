/**
 * Requests of the guest that the host answers once, however often the guest has to ask: one outlives the session it came in,
 * and its answer waits for the guest. Refuses an id that is used for another request.
 */
import { createHash } from 'node:crypto'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type HandlerFailure, sessionEnded } from '#specs/protocol/peer.ts'

/** Called once per id; `signal` is aborted when the guest withdraws the request, or is gone. */
export type RequestHandler<Q, A> = (
  request: Q,
  context: { signal: AbortSignal },
) => Promise<Result<A, HandlerFailure>>

export interface DeskOptions<Q, A> {
  /** What a request is known again by. */
  readonly idOf: (request: Q) => string
  readonly work: RequestHandler<Q, A>
  /** Answers kept for a guest that has to ask again. */
  readonly keptAnswers: number
  /** Whether an id whose answer is forgotten is never worked on again, as its effect cannot be repeated. */
  readonly neverTwice?: boolean
}

export interface IdempotentRequests<Q, A> {
  /** `signal` is the peer's: it withdraws the request, unless it is the session that ended. */
  ask(request: Q, signal: AbortSignal): Promise<Result<A, HandlerFailure>>
  /** Withdraws all that is open and forgets the answers. */
  clear(): void
}

interface Entry<A> {
  /** Of the request: what was answered need not be kept to know it again. */
  readonly digest: string
  readonly controller: AbortController
  readonly answer: Promise<Result<A, HandlerFailure>>
  open: boolean
}

/** Ids that are remembered without their answer. */
const forgottenMaxCount = 200_000

export function createIdempotentRequests<Q, A>(options: DeskOptions<Q, A>): IdempotentRequests<Q, A> {
  const entries = new Map<string, Entry<A>>()
  const forgotten = new Set<string>()

  function put(request: Q, digest: string): Entry<A> {
    const controller = new AbortController()
    const answer = options.work(request, { signal: controller.signal }).finally(() => {
      entry.open = false
    })
    const entry: Entry<A> = { digest, controller, open: true, answer }
    answer.catch(() => {})
    return entry
  }

  /** Forgets the oldest answers; what is open is never forgotten, so there may be no room. */
  function makeRoom(): boolean {
    let open = 0
    for (const entry of entries.values()) if (entry.open) open++
    if (open >= limits.pendingMaxRequests || forgotten.size >= forgottenMaxCount) return false
    for (const [id, entry] of entries) {
      if (entries.size < options.keptAnswers) break
      if (entry.open) continue
      entries.delete(id)
      if (options.neverTwice === true) forgotten.add(id)
    }
    return true
  }

  return {
    async ask(request, signal) {
      const id = options.idOf(request)
      const digest = createHash('sha256').update(JSON.stringify(request)).digest('hex')
      let entry = entries.get(id)
      if (entry === undefined) {
        if (forgotten.has(id))
          return refusal('invalidParams', 'the answer under this id is not kept any more')
        if (!makeRoom()) return refusal('busy', 'too many requests are open')
        entry = put(request, digest)
        entries.set(id, entry)
      } else if (entry.digest !== digest) {
        return refusal('invalidParams', 'this id was used for another request')
      }
      const asked = entry
      // A session that ends aborts its handlers too; the request then stays, for the guest will ask again.
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
      for (const entry of entries.values())
        if (entry.open) entry.controller.abort('the agent that asked is gone')
      entries.clear()
      forgotten.clear()
    },
  }
}

function refusal(code: HandlerFailure['code'], message: string): { ok: false; error: HandlerFailure } {
  return { ok: false, error: { code, message } }
}
