/** A deadline that pauses while the run waits for a person. */

export class Deadline {
  readonly #onExpire: () => void
  #leftMs: number
  #startedAt = 0
  #holds = 0
  #timer: NodeJS.Timeout | undefined

  /** Starts the deadline immediately. */
  constructor(ms: number, onExpire: () => void) {
    this.#leftMs = ms
    this.#onExpire = onExpire
    this.#run()
  }

  /** Adds (+1) or removes (-1) a reason to pause. */
  hold(change: number): void {
    const wasRunning = this.#holds === 0
    this.#holds = Math.max(0, this.#holds + change)
    if (wasRunning && this.#holds > 0) this.#stop()
    else if (!wasRunning && this.#holds === 0) this.#run()
  }

  [Symbol.dispose](): void {
    this.#stop()
    this.#holds = Number.POSITIVE_INFINITY
  }

  #run(): void {
    this.#startedAt = performance.now()
    // Node fires longer timers immediately.
    this.#timer = setTimeout(this.#onExpire, Math.min(this.#leftMs, 2 ** 31 - 1))
    this.#timer.unref()
  }

  #stop(): void {
    clearTimeout(this.#timer)
    this.#leftMs = Math.max(0, this.#leftMs - (performance.now() - this.#startedAt))
  }
}
