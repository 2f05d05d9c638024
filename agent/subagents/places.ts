/**
 * Places of the sub-agents that may be at work at once, over all depths of a run. An agent that waits for its own
 * sub-agents has no place, so those that it waits for can always begin.
 */
import { Semaphore } from '#specs/node/semaphore.ts'

/**
 * At most `size` holders at once. Whoever continues comes before whoever begins, then deeper agents before higher ones:
 * few agents are under way at a time, and each that waits for others has one at work below it.
 */
export class Places {
  readonly #slots: Semaphore

  constructor(size: number) {
    this.#slots = new Semaphore(size)
  }

  /** Waits for a place; false without one once `signal` is aborted. @param depth 1 for a sub-agent of the root */
  async take(depth: number, signal: AbortSignal, isBack = false): Promise<boolean> {
    return await this.#slots.take(signal, (isBack ? 1_000 : 0) + depth)
  }

  giveBack(): void {
    this.#slots.giveBack()
  }
}

/** The place of one agent from its beginning to its end, which it does not hold while its own sub-agents work. */
export class OwnPlace {
  readonly #places: Places
  readonly #depth: number
  #holds = false
  /** Sub-agents of this one that are queued or at work. */
  #away = 0
  #taking: Promise<void> | null = null

  constructor(places: Places, depth: number) {
    this.#places = places
    this.#depth = depth
  }

  /** Whether the agent has its place; false once `signal` is aborted. */
  async begin(signal: AbortSignal): Promise<boolean> {
    this.#holds = await this.#places.take(this.#depth, signal)
    return this.#holds
  }

  /** Awaits work of other agents without a place, and has one again afterwards unless `signal` is aborted. */
  async without<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    this.#away++
    try {
      // It asks for its place first: else an agent that nobody waits for would begin in this one.
      const working = work()
      this.#release()
      return await working
    } finally {
      this.#away--
      if (this.#away === 0) await this.#takeAgain(signal)
    }
  }

  end(): void {
    this.#release()
  }

  async #takeAgain(signal: AbortSignal): Promise<void> {
    this.#taking ??= this.#places.take(this.#depth, signal, true).then((hasPlace) => {
      this.#taking = null
      this.#holds = hasPlace
      // Others began meanwhile.
      if (this.#away > 0) this.#release()
    })
    await this.#taking
  }

  #release(): void {
    if (!this.#holds) return
    this.#holds = false
    this.#places.giveBack()
  }
}
