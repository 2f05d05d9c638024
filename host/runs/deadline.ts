/**
 * A deadline that pauses while the run waits for a person or for free disk space. Time in which this process is stopped
 * does not count either: nobody could act in it.
 */
import { AwakeTimer } from '#specs/node/awake-timer.ts'

export type HoldReason = 'approval' | 'pause' | 'disk' | 'queue'

export class Deadline {
  readonly #onExpire: () => void
  readonly #onChange: (leftMs: number, heldBy: HoldReason | undefined) => void
  #leftMs: number
  /** Reasons to pause, by their number. */
  readonly #holds = new Map<HoldReason, number>()
  #isOver = false
  #timer: AwakeTimer | undefined

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
    return Math.max(0, this.#leftMs - (this.#timer?.passedMs ?? 0))
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
    this.#timer = new AwakeTimer(this.#leftMs, this.#onExpire, { unref: true })
  }

  #stop(): void {
    this.#timer?.cancel()
    this.#leftMs = this.leftMs
    this.#timer = undefined
  }
}
