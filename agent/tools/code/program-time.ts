/** A program's time limit: time in which its own calls of tools run does not count, since a person may think about one. */
import { AwakeTimer } from '#specs/node/awake-timer.ts'

export class ProgramTime implements Disposable {
  readonly #controller = new AbortController()
  #leftMs: number
  #timer: AwakeTimer | undefined

  constructor(limitMs: number) {
    this.#leftMs = limitMs
    this.hold(false)
  }

  /** Aborted when the time is over. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** Stops or starts the clock. */
  hold(isHeld: boolean): void {
    if (this.#timer !== undefined) this.#leftMs -= this.#timer.passedMs
    this.#timer?.cancel()
    this.#timer = isHeld
      ? undefined
      : new AwakeTimer(Math.max(0, this.#leftMs), () => this.#controller.abort('its time was over'))
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }
}
