/**
 * The loop's time limit and the application's signal as one interruption of any wait. Waits for one thing at a time,
 * so that a long loop adds no listeners to its signal.
 */
type Interruption = 'timeout' | 'aborted'

/** Result of an interrupted wait. */
export const interrupted: unique symbol = Symbol('interrupted')

/** Longer timers fire at once. */
const timerMaxMs = 2 ** 31 - 1

export class Interruptions {
  readonly #controller = new AbortController()
  readonly #startedAt = performance.now()
  readonly #maxWallTimeMs: number
  readonly #source: AbortSignal | undefined
  #timer: NodeJS.Timeout | undefined
  #kind: Interruption | null = null
  #release: (() => void) | null = null
  readonly #onAbort = (): void => this.#interrupt('aborted', this.#source?.reason)

  constructor(maxWallTimeMs: number, source: AbortSignal | undefined) {
    this.#maxWallTimeMs = maxWallTimeMs
    this.#source = source
    if (source?.aborted === true) this.#onAbort()
    else {
      source?.addEventListener('abort', this.#onAbort, { once: true })
      this.#startTimer()
    }
  }

  /** Aborted with the loop. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** Whole milliseconds. */
  get elapsedMs(): number {
    return Math.round(performance.now() - this.#startedAt)
  }

  /** The interruption so far. A timer is late after blocking work. */
  check(): Interruption | null {
    if (this.#kind === null && performance.now() - this.#startedAt >= this.#maxWallTimeMs) this.#timeOut()
    return this.#kind
  }

  /** The value of `work`, or `interrupted` as soon as that happens; later results of `work` are ignored. */
  wait<T>(work: T | PromiseLike<T>): T | Promise<T | typeof interrupted> {
    if (!isThenable(work)) return work
    return new Promise((resolve, reject) => {
      const release = (): void => resolve(interrupted)
      const done = (): void => {
        if (this.#release === release) this.#release = null
      }
      this.#release = release
      work.then(
        (value) => {
          done()
          resolve(value)
        },
        (error: unknown) => {
          done()
          // Work that obeys the signal often throws its reason.
          if (this.#kind === null) reject(error)
          else resolve(interrupted)
        },
      )
      if (this.#kind !== null) release()
    })
  }

  /** As `wait`, with `graceMs` more for a `work` that obeys the signal. */
  async waitPatiently<T>(work: T | PromiseLike<T>, graceMs: number): Promise<T | typeof interrupted> {
    const value = await this.wait(work)
    if (value !== interrupted || graceMs === 0) return value
    const late = Promise.withResolvers<typeof interrupted>()
    const timer = setTimeout(() => late.resolve(interrupted), Math.min(graceMs, timerMaxMs))
    try {
      return await Promise.race([work, late.promise])
    } catch {
      return interrupted
    } finally {
      clearTimeout(timer)
    }
  }

  /** Releases timer and signal listener. */
  close(): void {
    clearTimeout(this.#timer)
    this.#source?.removeEventListener('abort', this.#onAbort)
  }

  #startTimer(): void {
    const leftMs = this.#maxWallTimeMs - (performance.now() - this.#startedAt)
    const again = leftMs > timerMaxMs
    this.#timer = setTimeout(
      () => (again ? this.#startTimer() : this.#timeOut()),
      Math.max(0, Math.ceil(Math.min(leftMs, timerMaxMs))),
    )
  }

  #timeOut(): void {
    const message = `the turn loop's wall time of ${this.#maxWallTimeMs} ms is over`
    this.#interrupt('timeout', new DOMException(message, 'TimeoutError'))
  }

  #interrupt(kind: Interruption, reason: unknown): void {
    if (this.#kind !== null) return
    this.#kind = kind
    this.#controller.abort(reason)
    this.#release?.()
  }
}

function isThenable<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}
