/**
 * Decodes a response body: server-sent events (split UTF-8, all line ends, byte order mark, comments, missing final
 * blank line), or a single document. Limits size and silence; events, not bytes, reset the timeout.
 */

import { createParser } from 'eventsource-parser'
import { errorMessage } from '#specs/errors.ts'
import { type ModelError, modelError } from '#specs/node/model-protocols/model-error.ts'

export interface BodyLimits {
  /** Timeout of the first event. */
  readonly firstEventTimeoutMs: number
  /** Timeout between two events, or two reads of a document; comments do not count. */
  readonly idleTimeoutMs: number
  /** Maximum bytes of the whole body. */
  readonly maxBytes: number
}

export interface SseEvent {
  /** `message` unless the server named it. */
  readonly name: string
  readonly data: string
  /** False when the body ended within the event. */
  readonly ended: boolean
}

export type BodyItem =
  /** Events of one read; `done` once the server has marked the end. */
  | { readonly type: 'events'; readonly events: readonly SseEvent[]; readonly done: boolean }
  /** A complete body that is not a stream. */
  | { readonly type: 'document'; readonly text: string }
  /** Always the last: timeout, excess or a failed read. */
  | { readonly type: 'error'; readonly error: ModelError }

/** Event data that marks the end. */
const endOfStream = '[DONE]'
/** The same in Anthropic's protocol, as an event name. */
const endEvent = 'message_stop'
/** How long a server may take to end its response after the end marker; waiting keeps the connection reusable. */
const endGraceMs = 250

/** The body in its own form. A read that fails because `signal` was aborted is `cancelled`. */
export async function* readBody(
  body: AsyncIterable<Uint8Array>,
  limits: BodyLimits,
  signal: AbortSignal,
): AsyncGenerator<BodyItem> {
  const reads = body[Symbol.asyncIterator]()
  const clock = new IdleClock(limits)
  const reader = new BodyReader()
  let total = 0
  let leaving = false
  try {
    for (;;) {
      const next = await clock.race(reads.next())
      if (next === 'silent') {
        if (!leaving) yield { type: 'error', error: silenceError(clock) }
        return
      }
      total += next.value?.byteLength ?? 0
      if (total > limits.maxBytes) {
        const text = `the model's answer passed the bound of ${limits.maxBytes} bytes`
        if (!leaving) yield { type: 'error', error: modelError('answer_too_large', text) }
        return
      }
      const events = next.done === true ? reader.end() : reader.feed(next.value)
      if (events.length > 0 || reader.form === 'document') clock.reset()
      const justDone = reader.done && !leaving
      if (justDone) {
        clock.leave(endGraceMs)
        leaving = true
      }
      if (events.length > 0 || justDone) yield { type: 'events', events, done: justDone }
      if (next.done === true) break
    }
    if (reader.form === 'document') yield { type: 'document', text: reader.documentText() }
  } catch (error) {
    if (!leaving) yield { type: 'error', error: readFailure(error, signal, total > 0) }
  } finally {
    clock.stop()
    // The body may hang in a read; it ends on its own.
    reads.return?.().catch(() => undefined)
  }
}

/** The beginning of a body as text, until its end, failure, limit or timeout. */
export async function readHead(body: AsyncIterable<Uint8Array>, limits: BodyLimits): Promise<string> {
  const reads = body[Symbol.asyncIterator]()
  const clock = new IdleClock(limits)
  const parts: Uint8Array[] = []
  try {
    for (let total = 0; total < limits.maxBytes; ) {
      const next = await clock.race(reads.next())
      if (next === 'silent' || next.done === true) break
      parts.push(next.value)
      total += next.value.byteLength
      clock.reset()
    }
  } catch {
    // Use what arrived.
  } finally {
    clock.stop()
    reads.return?.().catch(() => undefined)
  }
  return new TextDecoder().decode(Buffer.concat(parts).subarray(0, limits.maxBytes))
}

/** Classifies a failed read or request; `begun` once part of the answer has arrived. */
export function readFailure(error: unknown, signal: AbortSignal, begun: boolean): ModelError {
  if (signal.aborted) return modelError('cancelled', 'the request was cancelled')
  const word = errorMessage(error)
  return begun
    ? modelError('truncated', `the connection to the model broke in the middle of its answer: ${word}`)
    : modelError('unreachable', `the connection to the model failed: ${word}`)
}

function silenceError(clock: IdleClock): ModelError {
  return modelError('timed_out', `no event from the model for ${clock.waitedMs} ms`)
}

/** Bytes in, events out; reads each character once. */
class BodyReader {
  readonly #decoder = new TextDecoder()
  readonly #document: string[] = []
  #events: SseEvent[] = []
  /** Decided by the first non-blank character. */
  form: 'unknown' | 'events' | 'document' = 'unknown'
  /** Whether the stream has said that it is finished. */
  done = false
  #ended = true
  readonly #parser = createParser({
    onEvent: ({ event = 'message', data }) => {
      // Pings prove that the connection is alive, not the model.
      if (event === 'ping') return
      if (data.trim() === endOfStream || event === endEvent) this.done = true
      else if (!this.done) this.#events.push({ name: event, data, ended: this.#ended })
    },
  })

  feed(bytes: Uint8Array): readonly SseEvent[] {
    return this.#take(this.#decoder.decode(bytes, { stream: true }))
  }

  end(): readonly SseEvent[] {
    const rest = this.#decoder.decode()
    this.#ended = false
    // Two line ends close an event that came without its blank line.
    return this.#take(this.form === 'events' ? `${rest}\n\n` : rest)
  }

  documentText(): string {
    return this.#document.join('')
  }

  #take(text: string): readonly SseEvent[] {
    if (this.form === 'unknown') this.form = formOf(text)
    if (this.form === 'document') this.#document.push(text)
    if (this.form !== 'events') return []
    this.#parser.feed(text)
    const events = this.#events
    if (events.length > 0) this.#events = []
    return events
  }
}

/** Detects JSON and HTML, whatever content type the server declares. */
function formOf(text: string): BodyReader['form'] {
  const first = text.trimStart().charAt(0)
  if (first === '') return 'unknown'
  return first === '{' || first === '[' || first === '<' ? 'document' : 'events'
}

/** One timer for all reads, so that many chunks do not create many timers. */
class IdleClock {
  readonly #limits: BodyLimits
  #timer: NodeJS.Timeout
  #onSilent: () => void = () => undefined
  #silent = false
  waitedMs: number

  constructor(limits: BodyLimits) {
    this.#limits = limits
    this.waitedMs = limits.firstEventTimeoutMs
    this.#timer = setTimeout(() => this.#fire(), this.waitedMs)
  }

  /** Data arrived; the next timeout is the one between two events. */
  reset(): void {
    if (this.waitedMs === this.#limits.idleTimeoutMs) this.#timer.refresh()
    else this.leave(this.#limits.idleTimeoutMs)
  }

  /** Sets the timeout to `ms` from now. */
  leave(ms: number): void {
    clearTimeout(this.#timer)
    this.waitedMs = ms
    this.#timer = setTimeout(() => this.#fire(), ms)
  }

  stop(): void {
    clearTimeout(this.#timer)
  }

  async race<T>(read: Promise<T>): Promise<T | 'silent'> {
    return new Promise((resolve, reject) => {
      this.#onSilent = () => resolve('silent')
      read.then(resolve, reject)
      if (this.#silent) resolve('silent')
    })
  }

  #fire(): void {
    this.#silent = true
    this.#onSilent()
  }
}
