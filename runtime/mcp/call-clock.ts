/**
 * How long one request to a server may take: so long since it last said that it gets on, and so long in all. It stands while a
 * person is asked on the server's behalf. Knows nothing of the request itself.
 */

export interface CallClockOptions {
  /** Without a word of the server, in milliseconds. */
  readonly silentMs: number
  /** In all, in milliseconds. */
  readonly totalMs: number
  /** Called once, when either is over. */
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

  /** It runs at once. */
  constructor(options: CallClockOptions) {
    this.#options = options
    this.#silentLeftMs = options.silentMs
    this.#totalLeftMs = options.totalMs
    this.#run()
  }

  /** The server has said that it gets on. */
  extend(): void {
    if (this.#holds === 0) this.#stop()
    this.#silentLeftMs = this.#options.silentMs
    if (this.#holds === 0) this.#run()
  }

  /** Stands until what is returned is called, which does nothing a second time. */
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
