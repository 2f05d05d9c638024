/**
 * Where the keys that JWTs are checked with come from: a file, read again once it is another one, or an address, whose
 * keys count for a time. Keys that cannot be got admit nobody.
 */
import { constants } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { type Dispatcher, request } from 'undici'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { readBounded } from '../files/regular-file.ts'
import { type KeySet, keySetMaxBytes, parseKeySet } from './key-set.ts'

export interface KeySource {
  /** The keys that count now. @throws {CaissonError} `state_unavailable` */
  read(): Promise<KeySet>
  /** The keys after another look, for a token whose key is not among them. @throws {CaissonError} `state_unavailable` */
  readAgain(): Promise<KeySet>
}

export class KeyFile implements KeySource {
  readonly #file: string
  #known: { readonly version: string; readonly keys: KeySet } | undefined

  constructor(file: string) {
    this.#file = file
  }

  async read(): Promise<KeySet> {
    const version = await this.#version()
    if (this.#known?.version === version) return this.#known.keys
    const keys = parseKeySet(await this.#text())
    if (!keys.ok) throw unusable(`the JWKS ${this.#file} ${keys.error}`)
    this.#known = { version, keys: keys.value }
    return keys.value
  }

  async readAgain(): Promise<KeySet> {
    return await this.read()
  }

  /** A link is followed: orchestrators mount such files as links. */
  async #version(): Promise<string> {
    const found = await stat(this.#file, { bigint: true }).catch((cause: unknown) => {
      throw this.#unreadable(cause)
    })
    const me = process.getuid?.()
    const isTrusted = me === undefined || Number(found.uid) === me || found.uid === 0n
    if (found.isFile() && isTrusted && (found.mode & 0o022n) === 0n)
      return `${found.dev} ${found.ino} ${found.mtimeNs} ${found.ctimeNs} ${found.size}`
    throw unusable(`the JWKS ${this.#file} may not be used: expected a file that only you or root can write`)
  }

  async #text(): Promise<string> {
    try {
      await using handle = await open(this.#file, constants.O_RDONLY | constants.O_NONBLOCK)
      const bytes = await readBounded(handle, keySetMaxBytes)
      if (bytes !== null) return bytes.toString('utf8')
    } catch (cause) {
      throw this.#unreadable(cause)
    }
    throw unusable(`the JWKS ${this.#file} is larger than ${keySetMaxBytes} bytes`)
  }

  #unreadable(cause: unknown): CaissonError {
    return unusable(`the JWKS ${this.#file} cannot be read: ${reasonOf(cause)}`, cause)
  }
}

/** Keys are fetched again when they are older; those known count meanwhile. */
const freshMs = 5 * 60_000
/** Older keys do not count. */
const maxAgeMs = 15 * 60_000
/** Between two fetches, so that tokens with invented key IDs cause few. */
const pauseMs = 30_000
const pauseAfterFailureMs = 5_000
/** For a whole answer. */
const fetchTimeoutMs = 5_000

export interface KeyAddressOptions {
  readonly url: string
  /** Connections of the host; closed after each fetch. */
  readonly dispatcher: () => Promise<Dispatcher>
  /** ms since 1970 */
  readonly now: () => number
  readonly timeoutMs?: number
}

export class KeyAddress implements KeySource {
  readonly #options: KeyAddressOptions
  #known: { readonly at: number; readonly keys: KeySet } | undefined
  #tried: { readonly at: number; readonly failure?: CaissonError } | undefined
  #pending: Promise<void> | undefined

  constructor(options: KeyAddressOptions) {
    this.#options = options
  }

  async read(): Promise<KeySet> {
    const known = this.#known
    if (known !== undefined && this.#isWithin(known.at, freshMs)) return known.keys
    const fetched = this.#refresh()
    if (known !== undefined && this.#isWithin(known.at, maxAgeMs)) return known.keys
    await fetched
    if (this.#known !== undefined && this.#isWithin(this.#known.at, maxAgeMs)) return this.#known.keys
    throw this.#tried?.failure ?? unusable(`the JWKS ${shownUrl(this.#options.url)} was not fetched`)
  }

  async readAgain(): Promise<KeySet> {
    await this.#refresh()
    // Without an answer nobody knows whether the key is one of the issuer.
    if (this.#tried?.failure !== undefined) throw this.#tried.failure
    return await this.read()
  }

  /** Fetches the keys unless that was done a moment ago. Never rejects. */
  #refresh(): Promise<void> {
    if (this.#pending !== undefined) return this.#pending
    const tried = this.#tried
    const pause = tried?.failure === undefined ? pauseMs : pauseAfterFailureMs
    if (tried !== undefined && this.#isWithin(tried.at, pause)) return Promise.resolve()
    const at = this.#options.now()
    this.#pending = this.#fetch().then(
      (keys) => {
        this.#tried = { at }
        // Keys that are the same stay the same object.
        this.#known = { at, keys: keys.text === this.#known?.keys.text ? this.#known.keys : keys }
        this.#pending = undefined
      },
      (cause: unknown) => {
        const failure = hasCode(cause, 'state_unavailable')
          ? (cause as CaissonError)
          : this.#unreachable(cause)
        this.#tried = { at, failure }
        this.#pending = undefined
      },
    )
    return this.#pending
  }

  async #fetch(): Promise<KeySet> {
    const { url, dispatcher: openDispatcher, timeoutMs = fetchTimeoutMs } = this.#options
    const dispatcher = await openDispatcher()
    try {
      const signal = AbortSignal.timeout(timeoutMs)
      const headers = { accept: 'application/jwk-set+json, application/json' }
      // undici follows no redirect by itself.
      const { statusCode, body } = await request(url, { dispatcher, headers, signal })
      if (statusCode !== 200) throw this.#unusable(`answered with status ${statusCode}; expected 200`)
      const parsed = parseKeySet(await this.#textOf(body))
      if (parsed.ok) return parsed.value
      throw this.#unusable(parsed.error)
    } finally {
      await dispatcher.destroy()
    }
  }

  async #textOf(body: Dispatcher.ResponseData['body']): Promise<string> {
    const parts: Buffer[] = []
    let size = 0
    for await (const chunk of body) {
      parts.push(chunk as Buffer)
      size += (chunk as Buffer).length
      if (size > keySetMaxBytes) throw this.#unusable(`is larger than ${keySetMaxBytes} bytes`)
    }
    return Buffer.concat(parts).toString('utf8')
  }

  #unusable(why: string, cause?: unknown): CaissonError {
    return unusable(`the JWKS ${shownUrl(this.#options.url)} ${why}`, cause)
  }

  #unreachable(cause: unknown): CaissonError {
    const isLate = cause instanceof Error && cause.name === 'TimeoutError'
    const seconds = (this.#options.timeoutMs ?? fetchTimeoutMs) / 1_000
    return this.#unusable(
      isLate ? `gave no whole answer in ${seconds} s` : `cannot be reached: ${reasonOf(cause)}`,
      cause,
    )
  }

  /** A clock that was set back makes a time in the future, which is within nothing. */
  #isWithin(at: number, ms: number): boolean {
    const age = this.#options.now() - at
    return age >= 0 && age < ms
  }
}

/** The address as it may be shown: a query may hold a key. */
export function shownUrl(url: string): string {
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname}`
}

function unusable(message: string, cause?: unknown): CaissonError {
  return new CaissonError('state_unavailable', message, { cause })
}
