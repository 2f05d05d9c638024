/**
 * Reads chunks from the guest until they end, fail, or the caller aborts, even while no chunk arrives. Records how it
 * ended, to tell a truncated stream from an invalid one.
 */
import { ChangeStreamError } from '#specs/node/change-stream.ts'

export class WatchedSource implements AsyncIterable<Uint8Array> {
  readonly #source: AsyncIterable<Uint8Array>
  readonly #signal: AbortSignal | undefined
  /** Set when the source ended or was aborted, with its error if any. */
  ended: { readonly thrown?: unknown } | undefined

  constructor(source: AsyncIterable<Uint8Array>, signal: AbortSignal | undefined) {
    this.#source = source
    this.#signal = signal
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    const chunks = this.#source[Symbol.asyncIterator]()
    let isDone = false
    try {
      for (;;) {
        const next = await this.#orAbort(chunks.next())
        if (next.done === true) break
        yield next.value
      }
      isDone = true
      this.ended = {}
    } catch (thrown) {
      this.ended = { thrown }
      throw thrown
    } finally {
      // Not awaited: a silent source would not return before its next chunk.
      if (!isDone) void Promise.resolve(chunks.return?.()).catch(() => undefined)
    }
  }

  /** Whether only the signal caused `thrown`. */
  wasCancelled(thrown: unknown): boolean {
    if (this.#signal?.aborted !== true) return false
    if (thrown === this.#signal.reason) return true
    // A source that ends by the same signal throws its own error, or truncates the stream.
    return this.ended !== undefined && (this.ended.thrown === thrown || thrown instanceof ChangeStreamError)
  }

  async #orAbort<T>(pending: Promise<T>): Promise<T> {
    const signal = this.#signal
    if (signal === undefined) return await pending
    // The loser of the race must not be an unhandled rejection.
    pending.catch(() => undefined)
    signal.throwIfAborted()
    const { promise, reject } = Promise.withResolvers<never>()
    const abort = () => reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    try {
      return await Promise.race([pending, promise])
    } finally {
      signal.removeEventListener('abort', abort)
    }
  }
}
