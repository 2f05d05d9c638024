/**
 * What requests of all protocols share: the address, the headers with the key, the limits. The key can be used but not
 * printed.
 */

import { inspect } from 'node:util'
import { CaissonError } from '#specs/errors.ts'
import type { ExchangeOptions } from '../llm/exchange.ts'
import type { ProviderConfig } from './config.ts'

/** Shorter header values are not redacted: too much other text would match. */
const secretMinChars = 8

export class Connection {
  /** Without a trailing slash. */
  readonly baseUrl: string
  readonly config: ProviderConfig
  readonly #key: ApiKey | null
  readonly #headers: Readonly<Record<string, string>>
  readonly #secrets: readonly ApiKey[]
  readonly #keyHeader: (key: string) => Readonly<Record<string, string>>

  /** @param keyHeader the header that carries a key */
  constructor(
    baseUrl: string,
    config: ProviderConfig,
    keyHeader: (key: string) => Readonly<Record<string, string>>,
  ) {
    const { apiKey, headers = {}, ...rest } = config
    this.baseUrl = baseUrl
    // The key and the headers are stored where inspecting the object does not show them.
    this.config = rest
    this.#key = apiKey === undefined ? null : new ApiKey(apiKey)
    this.#headers = headers
    const values = Object.values(headers).flatMap((value) => value.split(/\s+/))
    const secrets = values.filter((word) => word.length >= secretMinChars).map((word) => new ApiKey(word))
    this.#secrets = this.#key === null ? secrets : [this.#key, ...secrets]
    this.#keyHeader = keyHeader
  }

  options(signal: AbortSignal, headers: Readonly<Record<string, string>> = {}): ExchangeOptions {
    const { dispatcher, firstEventTimeoutMs, idleTimeoutMs } = this.config
    return {
      signal,
      headers: {
        'user-agent': 'caisson',
        ...headers,
        ...(this.#key === null ? {} : this.#keyHeader(this.#key.reveal())),
        ...this.#headers,
      },
      redact: (text) => this.#secrets.reduce((rest, secret) => secret.redact(rest), text),
      ...(dispatcher === undefined ? {} : { dispatcher }),
      ...(firstEventTimeoutMs === undefined ? {} : { firstEventTimeoutMs }),
      ...(idleTimeoutMs === undefined ? {} : { idleTimeoutMs }),
    }
  }
}

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
