/** Runs long work in time slices so that other work of the agent can proceed; a signal ends it. */
import { setImmediate as nextTurn } from 'node:timers/promises'

const sliceMs = 12

export class Slices {
  readonly #signal: AbortSignal
  #since = performance.now()

  constructor(signal: AbortSignal) {
    this.#signal = signal
  }

  /** Whether the slice is used up; check between small pieces of work. */
  get isDue(): boolean {
    return performance.now() - this.#since >= sliceMs
  }

  /** Yields to other work. Throws the signal's reason once it is aborted. */
  async pause(): Promise<void> {
    await nextTurn()
    this.#signal.throwIfAborted()
    this.#since = performance.now()
  }
}
