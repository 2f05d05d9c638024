/**
 * Sends the spans of a host's runs in batches, beside the runs: a bounded queue, one request at a time, one warning. What
 * the collector has not taken a few seconds after the last run's end is dropped, so that no process waits for it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { errorMessage } from '#specs/errors.ts'
import type { Sender, SendFailure } from './send.ts'
import type { TraceSpan } from './span.ts'

export interface ExportBounds {
  /** Longest time that a span waits for others. */
  readonly batchDelayMs: number
  readonly batchMaxSpans: number
  readonly batchMaxChars: number
  /** Of all that waits; beyond it the oldest spans are dropped, because a run's own span comes last. */
  readonly queueMaxSpans: number
  /** Of all texts that wait. */
  readonly queueMaxChars: number
  /** Shortest and longest pause after a failure. */
  readonly retryMinMs: number
  readonly retryMaxMs: number
  /** Time after the end of the last run. */
  readonly endMs: number
}

export const defaultBounds: ExportBounds = {
  batchDelayMs: 5_000,
  batchMaxSpans: 256,
  batchMaxChars: 4 * 1024 * 1024,
  queueMaxSpans: 2_048,
  queueMaxChars: 16 * 1024 * 1024,
  retryMinMs: 1_000,
  retryMaxMs: 30_000,
  endMs: 3_000,
}

/** Longest pause that a collector gets. */
const retryAfterMaxMs = 5 * 60_000

interface Queued {
  readonly span: TraceSpan
  readonly chars: number
}

export class SpanExporter {
  readonly #sender: Sender
  readonly #warn: (text: string) => void
  readonly #bounds: ExportBounds
  #queue: Queued[] = []
  #chars = 0
  #runs = 0
  #hasWarned = false
  /** The sending under way; undefined while nothing is sent. */
  #sending: Promise<void> | undefined
  #delay: NodeJS.Timeout | undefined
  /** Aborted when the time after the last run is over. */
  #stop = new AbortController()
  #end: NodeJS.Timeout | undefined
  /** Aborted when a pause is over early, since the last run has ended. */
  #pause = new AbortController()

  /** @param warn gets at most one text */
  constructor(sender: Sender, warn: (text: string) => void, bounds: ExportBounds = defaultBounds) {
    this.#sender = sender
    this.#warn = warn
    this.#bounds = bounds
  }

  /** A run begins; `end` follows. */
  begin(): void {
    this.#runs += 1
    clearTimeout(this.#end)
    if (this.#stop.signal.aborted) this.#stop = new AbortController()
  }

  add(spans: readonly TraceSpan[]): void {
    for (const span of spans) {
      const queued = { span, chars: charsOf(span) }
      this.#queue.push(queued)
      this.#chars += queued.chars
    }
    const { queueMaxSpans, queueMaxChars, batchMaxSpans, batchDelayMs } = this.#bounds
    let dropped = 0
    while (this.#queue.length > queueMaxSpans || this.#chars > queueMaxChars) {
      this.#chars -= this.#queue.shift()?.chars ?? 0
      dropped += 1
    }
    if (dropped > 0) this.#report('the collector is slower than the runs, and spans were dropped.')
    if (this.#queue.length >= batchMaxSpans) this.#start()
    else if (this.#queue.length > 0 && this.#delay === undefined) {
      this.#delay = setTimeout(() => this.#start(), batchDelayMs)
      this.#delay.unref()
    }
  }

  /** A run has ended, and its spans are added. */
  end(): void {
    this.#runs -= 1
    if (this.#runs > 0) return
    this.#pause.abort()
    this.#start()
    clearTimeout(this.#end)
    const stop = this.#stop
    this.#end = setTimeout(() => stop.abort(), this.#bounds.endMs)
    this.#end.unref()
  }

  /** Sends what waits now, as far as there is time. */
  async flush(): Promise<void> {
    this.#pause.abort()
    this.#start()
    const late = new AbortController()
    const { signal } = late
    await Promise.race([
      this.#sending,
      sleep(this.#bounds.endMs, undefined, { signal, ref: false }).catch(() => undefined),
    ])
    late.abort()
  }

  /** Resolves when nothing is sent. After the last run this has a bound. */
  async whenSent(): Promise<void> {
    while (this.#sending !== undefined) await this.#sending
  }

  /** Whether a run is under way or something is sent. */
  get isBusy(): boolean {
    return this.#runs > 0 || this.#sending !== undefined
  }

  #start(): void {
    clearTimeout(this.#delay)
    this.#delay = undefined
    this.#sending ??= this.#sendAll()
      .catch((error: unknown) => {
        // A rejection that nobody handles would end the process.
        this.#clear()
        this.#report(`internal error: ${errorMessage(error)}`)
      })
      .finally(() => {
        this.#sending = undefined
      })
  }

  async #sendAll(): Promise<void> {
    const { retryMinMs, retryMaxMs } = this.#bounds
    let pauseMs = retryMinMs
    while (this.#queue.length > 0) {
      const { signal } = this.#stop
      const batch = this.#takeBatch()
      const result = await this.#sender.send(
        batch.map(({ span }) => span),
        signal,
      )
      if (result.isSent) {
        pauseMs = retryMinMs
        if (result.rejected > 0)
          this.#report(`the collector rejected ${result.rejected} of ${batch.length} spans.`)
        continue
      }
      const { failure } = result
      this.#report(signal.aborted ? this.#lateText() : failure.text)
      if (!failure.isRetryable) continue
      if (!(await this.#waitToRetry(failure, pauseMs))) {
        this.#clear()
        return
      }
      pauseMs = Math.min(pauseMs * 2, retryMaxMs)
      this.#queue.unshift(...batch)
      this.#chars += batch.reduce((sum, { chars }) => sum + chars, 0)
    }
  }

  /** Returns false when there is no time to try again. */
  async #waitToRetry({ retryAfterMs }: SendFailure, pauseMs: number): Promise<boolean> {
    const { signal } = this.#stop
    const isDown = retryAfterMs === null
    // After the last run there is no time for a collector that does not say when it is back.
    if (signal.aborted || (this.#runs === 0 && (isDown || retryAfterMs >= this.#bounds.endMs))) return false
    this.#pause = new AbortController()
    const ends = AbortSignal.any([signal, ...(isDown ? [this.#pause.signal] : [])])
    const demandedMs = Math.min(retryAfterMs ?? 0, retryAfterMaxMs)
    await sleep(Math.max(pauseMs, demandedMs), undefined, {
      signal: ends,
      ref: this.#runs === 0,
    }).catch(() => undefined)
    return !signal.aborted
  }

  #takeBatch(): Queued[] {
    const { batchMaxSpans, batchMaxChars } = this.#bounds
    let chars = 0
    const tooLarge = this.#queue.findIndex((queued, at) => {
      chars += queued.chars
      return at >= batchMaxSpans || (at > 0 && chars > batchMaxChars)
    })
    const batch = this.#queue.splice(0, tooLarge < 0 ? this.#queue.length : tooLarge)
    this.#chars -= batch.reduce((sum, { chars }) => sum + chars, 0)
    return batch
  }

  #clear(): void {
    this.#queue = []
    this.#chars = 0
  }

  #lateText(): string {
    return `the collector did not take all spans within ${this.#bounds.endMs / 1000} s after the run.`
  }

  #report(text: string): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    this.#warn(`Traces of runs are not exported: ${text}`)
  }
}

/** Approximate size of a span. */
function charsOf({ name, attributes, message = '' }: TraceSpan): number {
  return Object.entries(attributes).reduce(
    (sum, [key, value]) => sum + key.length + `${value}`.length,
    name.length + message.length,
  )
}
