/**
 * Server-sent events out of bytes: UTF-8 split anywhere, CR, LF and CRLF, a byte order mark, comments, a last event
 * without its blank line. Refuses streams beyond a bound of bytes, and silence: the clock is reset by events, not by bytes.
 */
import { createParser } from 'eventsource-parser'
import { type ModelError, modelError } from './errors.ts'

export interface SseLimits {
  /** Longest wait for the first event. */
  readonly firstEventTimeoutMs: number
  /** Longest wait between two events; comments do not count. */
  readonly idleTimeoutMs: number
  /** Bytes of the whole stream. */
  readonly maxBytes: number
}

export type SseItem = { readonly data: string } | { readonly error: ModelError }

/**
 * The data of each event. An item with `error` is the last one; it stands for silence, excess or a failed read
 * (a read that fails because `signal` was aborted is `cancelled`).
 */
export async function* readEvents(
  body: AsyncIterable<Uint8Array>,
  limits: SseLimits,
  signal: AbortSignal,
): AsyncGenerator<SseItem> {
  const events: string[] = []
  const parser = createParser({ onEvent: ({ data }) => events.push(data) })
  const decoder = new TextDecoder()
  const bytes = body[Symbol.asyncIterator]()
  const clock = new IdleClock(limits)
  let total = 0
  try {
    for (;;) {
      const next = await clock.race(bytes.next())
      if (next === 'silent') return void (yield { error: silenceError(clock) })
      if (next.done === true) break
      total += next.value.byteLength
      if (total > limits.maxBytes) {
        const text = `the model's answer passed the bound of ${limits.maxBytes} bytes`
        return void (yield { error: modelError('too_large', text, false) })
      }
      parser.feed(decoder.decode(next.value, { stream: true }))
      if (events.length > 0) clock.reset()
      for (const data of events.splice(0)) yield { data }
    }
    // Two line ends close an event that came without its blank line.
    parser.feed(`${decoder.decode()}\n\n`)
    for (const data of events.splice(0)) yield { data }
  } catch (error) {
    yield { error: readError(error, signal) }
  } finally {
    clock.stop()
    // The body may be stuck in a read; ending it is its own business.
    bytes.return?.().catch(() => undefined)
  }
}

/** What a failed read or a failed request means. */
export function readError(error: unknown, signal: AbortSignal): ModelError {
  if (signal.aborted) return modelError('cancelled', 'the request was cancelled', false)
  const word = error instanceof Error ? error.message : String(error)
  return modelError('unreachable', `the connection to the model failed: ${word}`, true)
}

function silenceError(clock: IdleClock): ModelError {
  return modelError('timed_out', `no event from the model for ${clock.waitedMs} ms`, true)
}

/** One timer for all reads, so that a stream of many chunks does not make a timer for each. */
class IdleClock {
  readonly #limits: SseLimits
  #timer: NodeJS.Timeout
  #onSilent: () => void = () => undefined
  #silent = false
  waitedMs: number

  constructor(limits: SseLimits) {
    this.#limits = limits
    this.waitedMs = limits.firstEventTimeoutMs
    this.#timer = setTimeout(() => this.#fire(), this.waitedMs)
  }

  reset(): void {
    if (this.waitedMs === this.#limits.idleTimeoutMs) {
      this.#timer.refresh()
      return
    }
    clearTimeout(this.#timer)
    this.waitedMs = this.#limits.idleTimeoutMs
    this.#timer = setTimeout(() => this.#fire(), this.waitedMs)
  }

  stop(): void {
    clearTimeout(this.#timer)
  }

  async race<T>(read: Promise<T>): Promise<T | 'silent'> {
    if (this.#silent) return 'silent'
    return new Promise((resolve, reject) => {
      this.#onSilent = () => resolve('silent')
      read.then(resolve, reject)
    })
  }

  #fire(): void {
    this.#silent = true
    this.#onSilent()
  }
}
