/**
 * The timeouts of one request to a server: since its last sign of progress, and in total. Stops while a person is
 * asked on the server's behalf. Knows nothing of the request.
 */

interface CallClockOptions {
  /** Milliseconds without progress from the server. */
  readonly silentMs: number
  /** Milliseconds in total. */
  readonly totalMs: number
  /** Called once, when either timeout expires. */
  onOver(words: string): void
}

export class CallClock implements Disposable {
  readonly #options: CallClockOptions
  #silentLeftMs: number
  #totalLeftMs: number
  #timer: NodeJS.Timeout | undefined
  #startedAt = 0
  #holds = 0
  #isOver = false

  /** Starts immediately. */
  constructor(options: CallClockOptions) {
    this.#options = options
    this.#silentLeftMs = options.silentMs
    this.#totalLeftMs = options.totalMs
    this.#run()
  }

  /** Records progress from the server. */
  extend(): void {
    if (this.#holds === 0) this.#stop()
    this.#silentLeftMs = this.#options.silentMs
    if (this.#holds === 0) this.#run()
  }

  /** Stops until the returned function is called; calling that again has no effect. */
  hold(): () => void {
    if (this.#holds++ === 0) this.#stop()
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      if (--this.#holds === 0) this.#run()
    }
  }

  [Symbol.dispose](): void {
    this.#isOver = true
    clearTimeout(this.#timer)
  }

  #run(): void {
    if (this.#isOver) return
    this.#startedAt = performance.now()
    const isTotal = this.#totalLeftMs < this.#silentLeftMs
    const { silentMs, totalMs, onOver } = this.#options
    this.#timer = setTimeout(
      () => {
        this.#isOver = true
        onOver(isTotal ? `it took more than ${totalMs} ms` : `no answer within ${silentMs} ms`)
      },
      Math.max(0, Math.min(this.#silentLeftMs, this.#totalLeftMs)),
    )
  }

  #stop(): void {
    clearTimeout(this.#timer)
    const passedMs = performance.now() - this.#startedAt
    this.#silentLeftMs -= passedMs
    this.#totalLeftMs -= passedMs
  }
}
