/**
 * Counts approvals that the agent does not know of, and notifies the agent when the first one opens and the last one
 * closes.
 */

export class HiddenApprovals {
  readonly #notify: (waiting: boolean) => Promise<void> | undefined
  #count = 0
  #last: Promise<void> = Promise.resolve()

  /** @param notify must not reject */
  constructor(notify: (waiting: boolean) => Promise<void> | undefined) {
    this.#notify = notify
  }

  /** One question more (+1) or fewer (-1). */
  hold(change: number): void {
    const was = this.#count > 0
    this.#count += change
    const waiting = this.#count > 0
    // One at a time, so that the agent receives the last state last.
    if (waiting !== was) this.#last = this.#last.then(() => this.#notify(waiting))
  }
}
