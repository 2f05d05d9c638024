/** What the host has to say beside the run: at once before the run, and later when no question can be open. */
export class Notices implements Disposable {
  readonly #show: (lines: readonly string[]) => void
  /** Undefined while they are shown at once. */
  #held: string[] | undefined

  constructor(show: (lines: readonly string[]) => void) {
    this.#show = show
  }

  add(lines: readonly string[]): void {
    if (this.#held === undefined) this.#show(lines)
    else this.#held.push(...lines)
  }

  hold(): void {
    this.#held ??= []
  }

  [Symbol.dispose](): void {
    const held = this.#held ?? []
    this.#held = undefined
    this.#show(held)
  }
}
