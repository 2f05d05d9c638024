/**
 * Limits the number of open streams of programs and their resets: the model shares the port, and the host ends a
 * session with too many resets.
 */

export interface GateOptions {
  /** Maximum concurrent streams; others wait. */
  readonly maxOpen: number
  /** How long to wait for a free slot before refusing. */
  readonly waitMs: number
  /** Resets allowed at once, and how many more per second. */
  readonly resetBurst: number
  readonly resetsPerSecond: number
}

/** Well below the host's limits: 64 streams, 512 resets at once and 64 more per second. */
export const defaultGate: GateOptions = { maxOpen: 40, waitMs: 30_000, resetBurst: 200, resetsPerSecond: 30 }

export class Gate {
  readonly #options: GateOptions
  readonly #waiting = new Set<() => void>()
  #open = 0
  /** When the reset allowance is full again, by `performance.now()`. */
  #paidAt = 0

  constructor(options: GateOptions = defaultGate) {
    this.#options = options
  }

  /** Takes a slot; false when none became free in time or the signal aborted. */
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

  /** Releases a slot. @param wasReset whether this side reset the stream */
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
