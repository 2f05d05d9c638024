/** Gives other tasks of the process their turn during long work that would otherwise hold the thread. */
import { setImmediate as nextTurn } from 'node:timers/promises'

/** Longest stretch of work between two turns, in milliseconds. */
const TURN_MS = 8

export class Turns {
  #end = performance.now() + TURN_MS

  /** Whether others have waited long enough; then await {@link give}. */
  get isDue(): boolean {
    return performance.now() > this.#end
  }

  async give(): Promise<void> {
    await nextTurn()
    this.#end = performance.now() + TURN_MS
  }
}
