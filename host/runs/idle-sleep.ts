/**
 * Decides when a run that waits only for people, for answers or because one paused it, goes to sleep: its VM ends, and its
 * journal and disk remain.
 */
import type { HoldReason } from './deadline.ts'

interface IdleSleepOptions {
  /** Time without a change of what is waited for. 0: never. */
  readonly afterMs: number
  /** Whether nothing else is under way, and another agent can continue from here. */
  readonly canSleep: () => boolean
  /** Called once. */
  readonly onSleep: () => void
}

export class IdleSleep implements Disposable {
  readonly #options: IdleSleepOptions
  readonly #holds = new Map<HoldReason, number>()
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  constructor(options: IdleSleepOptions) {
    this.#options = options
  }

  /** Adds (+1) or removes (-1) a reason to wait. */
  hold(change: number, reason: HoldReason): void {
    this.#holds.set(reason, (this.#holds.get(reason) ?? 0) + change)
    this.#arm()
  }

  [Symbol.dispose](): void {
    this.#isOver = true
    clearTimeout(this.#timer)
  }

  #arm(): void {
    clearTimeout(this.#timer)
    const { afterMs } = this.#options
    const waits = (reason: HoldReason) => (this.#holds.get(reason) ?? 0) > 0
    if (this.#isOver || afterMs === 0 || !(waits('approval') || waits('pause'))) return
    // Node fires longer timers immediately.
    this.#timer = setTimeout(() => this.#fire(), Math.min(afterMs, 2 ** 31 - 1))
    this.#timer.unref()
  }

  #fire(): void {
    if (!this.#options.canSleep()) this.#arm()
    else {
      this[Symbol.dispose]()
      this.#options.onSleep()
    }
  }
}
