/** Long work in slices, so that whatever else the agent has to do comes in between; ended by a signal. */
import { setImmediate as nextTurn } from 'node:timers/promises'

const sliceMs = 12

export class Slices {
  readonly #signal: AbortSignal
  #since = performance.now()

  constructor(signal: AbortSignal) {
    this.#signal = signal
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
