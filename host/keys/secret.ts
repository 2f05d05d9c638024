/** A key that can be used but not shown: every way of turning it into text gives a mark in its place. */
import { inspect } from 'node:util'

const shown = '[secret]'

export class Secret {
  readonly #value: string

  /** @param value the key; empty is a misuse and throws */
  constructor(value: string) {
    if (value === '') throw new TypeError('a secret cannot be empty')
    this.#value = value
  }

  /** The key itself; for the one place that puts it into a request. */
  reveal(): string {
    return this.#value
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
