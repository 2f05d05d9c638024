/**
 * How many streams programs may have open at once, and how quickly they may break them off: the port is shared with the
 * model, and a session with too many resets is ended by the host.
 */

export interface GateOptions {
  /** Streams at once; others wait. */
  readonly maxOpen: number
  /** How long one waits for a free place before it is turned away. */
  readonly waitMs: number
  /** Streams that may be broken off at once, and how many more each second. */
  readonly resetBurst: number
  readonly resetsPerSecond: number
}

/** Well below what the host takes: 64 streams, 512 resets at once and 64 more each second. */
export const defaultGate: GateOptions = { maxOpen: 40, waitMs: 30_000, resetBurst: 200, resetsPerSecond: 30 }

export class Gate {
  readonly #options: GateOptions
  readonly #waiting = new Set<() => void>()
  #open = 0
  /** When all resets so far will have been made up for, by `performance.now()`. */
  #paidAt = 0

  constructor(options: GateOptions = defaultGate) {
    this.#options = options
  }

  /** Takes a place; false when none became free in time or the signal aborted. */
  async enter(signal: AbortSignal): Promise<boolean> {
    const deadline = performance.now() + this.#options.waitMs
    for (;;) {
      if (signal.aborted) return false
      const delayMs = this.#delayMs()
      if (delayMs <= 0 && this.#open < this.#options.maxOpen) {
        this.#open += 1
        return true
      }
      const leftMs = deadline - performance.now()
      if (leftMs <= 0) return false
      await this.#change(delayMs > 0 ? Math.min(delayMs, leftMs) : leftMs, signal)
    }
  }

  /** Gives a place back. @param wasReset whether the stream was broken off from this side */
  leave(wasReset: boolean): void {
    this.#open -= 1
    if (wasReset)
      this.#paidAt = Math.max(this.#paidAt, performance.now()) + 1_000 / this.#options.resetsPerSecond
    for (const wake of [...this.#waiting]) wake()
  }

  #delayMs(): number {
    const { resetBurst, resetsPerSecond } = this.#options
    return this.#paidAt - performance.now() - (resetBurst / resetsPerSecond) * 1_000
  }

  #change(timeoutMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer)
        this.#waiting.delete(wake)
        signal.removeEventListener('abort', wake)
        resolve()
      }
      const timer = setTimeout(wake, Math.ceil(timeoutMs))
      this.#waiting.add(wake)
      signal.addEventListener('abort', wake, { once: true })
    })
  }
}
