/** A key that can be used but not printed, and its redaction from other text. */

import { inspect } from 'node:util'
import { CaissonError } from '#specs/errors.ts'

const shown = '[key]'
/** Characters allowed in a header: visible ASCII. */
const usable = /^[\x21-\x7e]+$/

export class ApiKey {
  readonly #value: string

  /**
   * Trims white space, since keys are often pasted.
   * @throws {CaissonError} `invalid_options`, without the key, for one that no header can contain
   */
  constructor(value: string) {
    const trimmed = value.trim()
    if (trimmed === '')
      throw new CaissonError(
        'invalid_options',
        'expected an API key, got an empty text; check whether what it is taken from is set',
      )
    if (!usable.test(trimmed))
      throw new CaissonError(
        'invalid_options',
        'expected an API key of visible ASCII characters, got one with spaces, line breaks or other letters; check how it was copied',
      )
    this.#value = trimmed
  }

  /** The key itself; only for building the request. */
  reveal(): string {
    return this.#value
  }

  /** Redacts the key from `text`, in all forms that servers echo. */
  redact(text: string): string {
    let result = text
    for (const form of new Set([
      this.#value,
      encodeURIComponent(this.#value),
      JSON.stringify(this.#value).slice(1, -1),
    ]))
      result = result.replaceAll(form, shown)
    return this.#redactCut(result)
  }

  /** A key truncated at the end of a message. */
  #redactCut(text: string): string {
    if (!text.endsWith('…')) return text
    for (let chars = this.#value.length - 1; chars >= 4; chars--) {
      const end = `${this.#value.slice(0, chars)}…`
      if (text.endsWith(end)) return `${text.slice(0, -end.length)}${shown}…`
    }
    return text
  }

  toString(): string {
    return shown
  }

  toJSON(): string {
    return shown
  }

  [inspect.custom](): string {
    return shown
  }
}
