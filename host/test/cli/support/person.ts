/** A person at a terminal in memory: what they see, and the keys that they type. */
import { PassThrough, Writable } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'
import { expect } from 'vitest'

export class Person {
  readonly input = new PassThrough()
  readonly output: Writable & { readonly columns: number; readonly rows: number }
  readonly #withdrawal = new AbortController()
  /** Aborted when the question is withdrawn. */
  readonly signal = this.#withdrawal.signal
  #shown = ''
  #seen = 0

  constructor(size: { readonly columns: number; readonly rows: number } = { columns: 80, rows: 24 }) {
    const output = new Writable({
      write: (chunk, _encoding, done) => {
        this.#shown += String(chunk)
        done()
      },
    })
    this.output = Object.assign(output, size)
  }

  /** All that was shown, controls of the terminal too. */
  get raw(): string {
    return this.#shown
  }

  /** Waits for text after what was seen last. */
  async sees(text: string): Promise<void> {
    await expect.poll(() => stripVTControlCharacters(this.#shown.slice(this.#seen))).toContain(text)
    this.#seen = this.#shown.length
  }

  type(keys: string): void {
    this.input.write(keys)
  }

  withdraw(): void {
    this.#withdrawal.abort()
  }

  /** Whether something waits for keys. */
  get listens(): boolean {
    return this.input.listenerCount('keypress') > 0
  }
}
