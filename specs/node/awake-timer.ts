/**
 * Time limits that count only the time in which this process runs. A stopped process (Ctrl-Z, SIGSTOP, swapping, a VM
 * whose QEMU is stopped) reads no messages and fires no timers, so that time says nothing about the other side.
 */

const tickMs = 1_000
/** A tick that is later than this means that the process was stopped. */
const lateMs = 1_000

export interface AwakeTimerOptions {
  /** Time in ms, including time in which the process was stopped. */
  readonly clock?: () => number
  /** Whether the timer leaves the process free to end. Default: it keeps it alive. */
  readonly unref?: boolean
}

export class AwakeTimer {
  readonly #timeoutMs: number
  readonly #onEnd: () => void
  readonly #clock: () => number
  readonly #unref: boolean
  #passedMs = 0
  #last: number
  #stepMs = 0
  #timer: NodeJS.Timeout | undefined

  /**
   * Calls `onEnd` after `timeoutMs` of running time.
   * @param timeoutMs Infinity: it never ends, and {@link passedMs} is a clock
   */
  constructor(
    timeoutMs: number,
    onEnd: () => void,
    { clock = () => performance.now(), unref = false }: AwakeTimerOptions = {},
  ) {
    this.#timeoutMs = timeoutMs
    this.#onEnd = onEnd
    this.#clock = clock
    this.#unref = unref
    this.#last = clock()
    this.#wait()
  }

  /** Running time since the start, or since the last {@link refresh}. */
  get passedMs(): number {
    this.#look()
    return this.#passedMs
  }

  /** Starts the time anew; a timer that has ended stays so. */
  refresh(): void {
    this.#look()
    this.#passedMs = 0
  }

  cancel(): void {
    this.#look()
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  [Symbol.dispose](): void {
    this.cancel()
  }

  #wait(): void {
    this.#stepMs = Math.max(0, Math.min(this.#timeoutMs - this.#passedMs, tickMs))
    this.#timer = setTimeout(() => this.#onTick(), this.#stepMs)
    if (this.#unref) this.#timer.unref()
  }

  #onTick(): void {
    this.#look()
    // Timers may fire a fraction of a millisecond early.
    if (this.#timeoutMs - this.#passedMs >= 1) {
      this.#wait()
      return
    }
    this.#timer = undefined
    this.#onEnd()
  }

  #look(): void {
    const now = this.#clock()
    const passedMs = now - this.#last
    this.#last = now
    if (this.#timer !== undefined)
      this.#passedMs += passedMs > this.#stepMs + lateMs ? this.#stepMs : passedMs
  }
}

/** Aborts `signal` after `timeoutMs` of running time, unless the limit is disposed before. */
export class AwakeLimit implements Disposable {
  readonly #controller = new AbortController()
  readonly #timer: AwakeTimer | undefined

  /** @param timeoutMs undefined: never */
  constructor(timeoutMs: number | undefined, options: AwakeTimerOptions = {}) {
    if (timeoutMs === undefined) return
    this.#timer = new AwakeTimer(timeoutMs, () => this.#controller.abort(), options)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  get isOver(): boolean {
    return this.#controller.signal.aborted
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel()
  }
}
