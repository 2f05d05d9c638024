/**
 * Executes each request of the guest once, even if it is repeated. A request outlives its session, and its answer is
 * kept for the guest. Refuses an id that is reused for another request.
 */
import { createHash } from 'node:crypto'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type HandlerFailure, sessionEnded } from '#specs/protocol/peer.ts'

/** Called once per id; `signal` aborts when the guest withdraws the request, or is gone. */
export type RequestHandler<Q, A> = (
  request: Q,
  context: { signal: AbortSignal },
) => Promise<Result<A, HandlerFailure>>

export interface IdempotentOptions<Q, A> {
  /** Returns the id that identifies a repeated request. */
  readonly idOf: (request: Q) => string
  readonly work: RequestHandler<Q, A>
  /** Number of answers kept for repeated requests. */
  readonly keptAnswers: number
  /** Whether a request is refused after its answer is forgotten, because its effect cannot be repeated. */
  readonly neverTwice?: boolean
}

export interface IdempotentRequests<Q, A> {
  /** `signal` is the peer's: it withdraws the request, unless the session has ended. */
  ask(request: Q, signal: AbortSignal): Promise<Result<A, HandlerFailure>>
  /** Cancels all open requests and forgets the answers. */
  clear(): void
}

interface Entry<A> {
  /** Digest of the request, so that an answered request need not be kept. */
  readonly digest: string
  readonly controller: AbortController
  readonly answer: Promise<Result<A, HandlerFailure>>
  open: boolean
}

/** Maximum number of ids kept without their answer. */
const forgottenMaxCount = 200_000

export function createIdempotentRequests<Q, A>(options: IdempotentOptions<Q, A>): IdempotentRequests<Q, A> {
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

  /** Forgets the oldest answers. Open requests are never forgotten, so this may fail. */
  function evictOldest(): boolean {
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
        if (!evictOldest()) return refusal('busy', 'too many requests are open')
        entry = put(request, digest)
        entries.set(id, entry)
      } else if (entry.digest !== digest) {
        return refusal('invalidParams', 'this id was used for another request')
      }
      const asked = entry
      // A session that ends also aborts its handlers. The request stays open, since the guest will repeat it.
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
