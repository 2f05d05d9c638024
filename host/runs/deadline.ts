/** A deadline that pauses while the run waits for a person or for free disk space. */

export type HoldReason = 'approval' | 'pause' | 'disk'

export class Deadline {
  readonly #onExpire: () => void
  readonly #onChange: (leftMs: number, heldBy: HoldReason | undefined) => void
  #leftMs: number
  #startedAt = 0
  /** Reasons to pause, by their number. */
  readonly #holds = new Map<HoldReason, number>()
  #isOver = false
  #timer: NodeJS.Timeout | undefined

  /**
   * Starts the deadline immediately.
   * @param onChange called at the start and whenever the reason to pause is another; `undefined`: the time runs
   */
  constructor(
    ms: number,
    onExpire: () => void,
    onChange: (leftMs: number, heldBy: HoldReason | undefined) => void = () => undefined,
  ) {
    this.#onExpire = onExpire
    this.#onChange = onChange
    this.#leftMs = ms
    this.#run()
    onChange(ms, undefined)
  }

  get leftMs(): number {
    const isRunning = !this.#isOver && this.#heldBy() === undefined
    return Math.max(0, this.#leftMs - (isRunning ? performance.now() - this.#startedAt : 0))
  }

  /** Adds (+1) or removes (-1) a reason to pause. */
  hold(change: number, reason: HoldReason): void {
    if (this.#isOver) return
    const before = this.#heldBy()
    this.#holds.set(reason, Math.max(0, (this.#holds.get(reason) ?? 0) + change))
    const now = this.#heldBy()
    if (before === undefined && now !== undefined) this.#stop()
    else if (before !== undefined && now === undefined) this.#run()
    if (now !== before) this.#onChange(this.#leftMs, now)
  }

  [Symbol.dispose](): void {
    this.#stop()
    this.#isOver = true
  }

  #heldBy(): HoldReason | undefined {
    return [...this.#holds].find(([, count]) => count > 0)?.[0]
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
