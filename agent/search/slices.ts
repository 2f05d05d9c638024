/** Long work in slices, so that whatever else the agent has to do comes in between; ended by a signal or a time. */
import { setImmediate as nextTurn } from 'node:timers/promises'

const sliceMs = 12

export class Slices {
  readonly #signal: AbortSignal
  readonly #until: number
  #since = performance.now()

  /** @param maxMs after which no more should be begun */
  constructor(signal: AbortSignal, maxMs: number) {
    this.#signal = signal
    this.#until = performance.now() + maxMs
  }

  /** Whether the time is over, as of the last pause. */
  get isOver(): boolean {
    return this.#since >= this.#until
  }

  /** Whether the slice is full; asked between two small pieces of work, as often as there are such. */
  get isDue(): boolean {
    return performance.now() - this.#since >= sliceMs
  }

  /** Lets others have their turn. Throws the signal's reason once it is aborted. */
  async pause(): Promise<void> {
    await nextTurn()
    this.#signal.throwIfAborted()
    this.#since = performance.now()
  }
}
