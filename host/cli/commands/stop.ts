/** The first signal to this process as an AbortSignal; the next one ends it as ever. */
export class Stop implements Disposable {
  readonly #controller = new AbortController()
  readonly #onSignal = () => this.#controller.abort()

  constructor() {
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, this.#onSignal)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  [Symbol.dispose](): void {
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.off(name, this.#onSignal)
  }
}
