/** A semaphore and a mutex. Waiters of equal rank are served in request order. */

/** At most `size` holders at once. */
export class Semaphore {
  readonly #size: number
  #taken = 0
  /** The next one first. */
  readonly #waiting: { readonly rank: number; readonly go: () => void }[] = []

  constructor(size: number) {
    this.#size = size
  }

  /**
   * Waits for a slot; returns false without one once `signal` is aborted.
   * @param rank waiters with a higher one are served first
   */
  async take(signal: AbortSignal, rank = 0): Promise<boolean> {
    if (signal.aborted) return false
    if (this.#taken < this.#size) {
      this.#taken++
      return true
    }
    const turn = Promise.withResolvers<boolean>()
    const waiter = { rank, go: () => turn.resolve(true) }
    const giveUp = (): void => {
      const at = this.#waiting.indexOf(waiter)
      // The slot may have been assigned already.
      if (at !== -1) this.#waiting.splice(at, 1)
      turn.resolve(at === -1)
    }
    const after = this.#waiting.findIndex((other) => other.rank < rank)
    this.#waiting.splice(after === -1 ? this.#waiting.length : after, 0, waiter)
    signal.addEventListener('abort', giveUp, { once: true })
    const hasPlace = await turn.promise
    signal.removeEventListener('abort', giveUp)
    return hasPlace
  }

  /** Passes a slot to the next waiter. */
  giveBack(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#taken--
    else next.go()
  }
}

/** Runs one piece of work after the other. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve()

  run<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#last.then(work)
    this.#last = result.catch(() => undefined)
    return result
  }
}
