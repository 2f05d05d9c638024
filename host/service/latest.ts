/** What a read that takes time gave last: read again when it is old, once at a time, and waited for only so long. */

export interface LatestOptions {
  /** Time until a value is read again. */
  readonly keepMs: number
  /** Longest wait of a caller. */
  readonly waitMs: number
  /** A clock that never goes back, ms. */
  readonly now?: () => number
}

export type Reading<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly why: unknown }

export class Latest<T> {
  readonly #read: () => Promise<T>
  readonly #options: LatestOptions
  readonly #now: () => number
  #last: { readonly at: number; readonly reading: Reading<T> } | undefined
  #reading: Promise<Reading<T>> | undefined

  constructor(read: () => Promise<T>, options: LatestOptions) {
    this.#read = read
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
  }

  /** Never rejects. A read that takes longer than the wait continues, and nobody starts a second one beside it. */
  async get(): Promise<Reading<T>> {
    const { keepMs, waitMs } = this.#options
    if (this.#last !== undefined && this.#now() - this.#last.at < keepMs) return this.#last.reading
    this.#reading ??= this.#start()
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<Reading<T>>((resolve) => {
      const why = new Error(`it takes longer than ${waitMs} ms`)
      timer = setTimeout(() => resolve({ ok: false, why }), waitMs)
    })
    try {
      return await Promise.race([this.#reading, late])
    } finally {
      clearTimeout(timer)
    }
  }

  async #start(): Promise<Reading<T>> {
    const reading: Reading<T> = await this.#read().then(
      (value) => ({ ok: true, value }) as const,
      (why: unknown) => ({ ok: false, why }) as const,
    )
    this.#last = { at: this.#now(), reading }
    this.#reading = undefined
    return reading
  }
}
