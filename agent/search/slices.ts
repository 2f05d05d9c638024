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

  /** Whether the time is over. */
  get isOver(): boolean {
    return performance.now() >= this.#until
  }

  /** Called between two small pieces of work, as often as there are such. Throws the signal's reason once it is aborted. */
  async pause(): Promise<void> {
    if (performance.now() - this.#since < sliceMs) return
    await nextTurn()
    this.#signal.throwIfAborted()
    this.#since = performance.now()
  }
}
