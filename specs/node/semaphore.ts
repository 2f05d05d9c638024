/** A semaphore and a mutex. Waiters are served in request order. */

/** At most `size` holders at once. */
export class Semaphore {
  readonly #size: number
  #taken = 0
  readonly #waiting: (() => void)[] = []

  constructor(size: number) {
    this.#size = size
  }

  /** Waits for a slot; returns false without one once `signal` is aborted. */
  async take(signal: AbortSignal): Promise<boolean> {
    if (signal.aborted) return false
    if (this.#taken < this.#size) {
      this.#taken++
      return true
    }
    const turn = Promise.withResolvers<boolean>()
    const go = (): void => turn.resolve(true)
    const giveUp = (): void => {
      const at = this.#waiting.indexOf(go)
      // The slot may have been assigned already.
      if (at !== -1) this.#waiting.splice(at, 1)
      turn.resolve(at === -1)
    }
    this.#waiting.push(go)
    signal.addEventListener('abort', giveUp, { once: true })
    const hasPlace = await turn.promise
    signal.removeEventListener('abort', giveUp)
    return hasPlace
  }

  /** Passes a slot to the longest waiter. */
  giveBack(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#taken--
    else next()
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
