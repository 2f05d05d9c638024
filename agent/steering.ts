/**
 * What a person does to a running agent: messages for it, and whether it holds. One for a run and all its sub-agents; they
 * share the pause, and messages go to the root agent alone.
 */
import { limits } from '#specs/protocol/limits.ts'

export interface SteerMessage {
  readonly messageId: string
  readonly text: string
}

export class Steering {
  readonly #known = new Set<string>()
  #waiting: SteerMessage[] = []
  #paused = false
  readonly #listeners = new Set<() => void>()

  get paused(): boolean {
    return this.#paused
  }

  /** False when too many wait already. A message that is known by its id changes nothing. */
  push(message: SteerMessage): boolean {
    if (this.#known.has(message.messageId)) return true
    if (this.#waiting.length >= limits.steerMaxPending) return false
    this.#known.add(message.messageId)
    this.#waiting.push(message)
    return true
  }

  /** The messages that nobody has taken yet, in the order in which they came. */
  take(): readonly SteerMessage[] {
    const taken = this.#waiting
    this.#waiting = []
    return taken
  }

  setPaused(paused: boolean): void {
    this.#paused = paused
    for (const listener of [...this.#listeners]) listener()
  }

  /** Resolves as soon as nothing is held back; also, for the caller to look at, when `signal` is aborted. */
  async ready(signal: AbortSignal): Promise<void> {
    while (this.#paused && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const go = (): void => {
          this.#listeners.delete(go)
          signal.removeEventListener('abort', go)
          resolve()
        }
        this.#listeners.add(go)
        signal.addEventListener('abort', go, { once: true })
      })
    }
  }
}
