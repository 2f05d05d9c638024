/** What requests of all protocols share: the address, the headers with the key, the limits. */
import type { ExchangeOptions } from '../llm/exchange.ts'
import type { ProviderConfig } from './config.ts'
import { ApiKey } from './secret.ts'

export const defaultMaxTokens = 16_384

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
