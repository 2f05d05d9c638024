/** What a session works on, as its editor sees it: running while anything is under way, and idle once nothing is. */
import type { StopReason } from '@agentclientprotocol/sdk'
import type { Editor, SessionState } from './editor.ts'

export class Foreground {
  readonly #editor: Editor
  #works = 0
  #isLeft = false
  #over = Promise.withResolvers<void>()

  constructor(editor: Editor) {
    this.#editor = editor
    this.#over.resolve()
  }

  /** Resolves when nothing is under way. */
  get over(): Promise<void> {
    return this.#over.promise
  }

  /** @param isTaken whether a failure is one of work under way, not a refusal of it */
  async during(work: () => Promise<StopReason>, isTaken: () => boolean = () => true): Promise<StopReason> {
    await this.#begin()
    try {
      const stopReason = await work()
      await this.#end({ stopReason })
      return stopReason
    } catch (error) {
      await this.#end(isTaken() ? { error } : {})
      throw error
    }
  }

  /** Its editor has gone, or another object has the session. */
  leave(): void {
    this.#isLeft = true
  }

  async #begin(): Promise<void> {
    this.#works += 1
    if (this.#works > 1) return
    this.#over = Promise.withResolvers()
    await this.#show({ state: 'running' })
  }

  async #end(how: { readonly stopReason?: StopReason; readonly error?: unknown }): Promise<void> {
    this.#works -= 1
    if (this.#works > 0) return
    await this.#show({ state: 'idle', ...how }).catch(() => undefined)
    this.#over.resolve()
  }

  async #show(state: SessionState): Promise<void> {
    if (!this.#isLeft) await this.#editor.show(state)
  }
}
