/** Yields to other tasks of the process during long synchronous work. */
import { setImmediate as nextTurn } from 'node:timers/promises'

/** Maximum time between two yields, in milliseconds. */
const TURN_MS = 8

export class Turns {
  #end = performance.now() + TURN_MS

  /** Whether it is time to yield; then await {@link give}. */
  get isDue(): boolean {
    return performance.now() > this.#end
  }

  async give(): Promise<void> {
    await nextTurn()
    this.#end = performance.now() + TURN_MS
  }
}
