/** Counts the questions that a person is asked and the agent does not know of, and tells it when the first begins and the last ends. */

export class HiddenApprovals {
  readonly #tell: (waiting: boolean) => Promise<void> | undefined
  #count = 0
  #last: Promise<void> = Promise.resolve()

  /** @param tell never rejects */
  constructor(tell: (waiting: boolean) => Promise<void> | undefined) {
    this.#tell = tell
  }

  /** One more (+1) or less (-1). */
  hold(change: number): void {
    const was = this.#count > 0
    this.#count += change
    const waiting = this.#count > 0
    // One after the other, so that the last word is the last that it hears.
    if (waiting !== was) this.#last = this.#last.then(() => this.#tell(waiting))
  }
}
