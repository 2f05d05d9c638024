/**
 * Chunks from the guest, until they end, fail, or the caller gives up: the caller's signal is heeded also while no
 * chunk comes. Remembers how it ended, since a stream cut short and a false one are told apart by that.
 */
import { ChangeStreamError } from '#specs/node/change-stream.ts'

export class WatchedSource implements AsyncIterable<Uint8Array> {
  readonly #source: AsyncIterable<Uint8Array>
  readonly #signal: AbortSignal | undefined
  /** Set when the source ended or was given up, with what it threw if it did. */
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
      // Not waited for: where the source is silent it would not come back before its next chunk.
      if (!isDone) void Promise.resolve(chunks.return?.()).catch(() => undefined)
    }
  }

  /** Whether the signal, and nothing else, is why `thrown` was thrown. */
  wasCancelled(thrown: unknown): boolean {
    if (this.#signal?.aborted !== true) return false
    if (thrown === this.#signal.reason) return true
    // A source that ends by the same signal fails with words of its own, or leaves the stream cut short.
    return this.ended !== undefined && (this.ended.thrown === thrown || thrown instanceof ChangeStreamError)
  }

  async #orAbort<T>(pending: Promise<T>): Promise<T> {
    const signal = this.#signal
    if (signal === undefined) return await pending
    // Whichever loses the race must not count as unhandled.
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
