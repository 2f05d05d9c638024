/**
 * Who sends a request: the owner of the service, or somebody with an API key. Limits wrong keys by address, and ends what
 * a key has open once it is revoked or has expired.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { limits } from '#specs/protocol/limits.ts'
import { type Scope, scopes } from '#specs/service/route.ts'
import type { ApiKey, ApiKeys } from '../index.ts'
import { Refusal } from './problems.ts'

/** Who sends a request. */
export interface Caller {
  /** For journals, with the ID of a key. */
  readonly name: string
  readonly scopes: ReadonlySet<Scope>
  /** Absent: the owner of the service. */
  readonly key?: ApiKey
}

/** The user whose token or socket it is. */
export const owner: Caller = { name: 'the owner of the service', scopes: new Set(scopes) }

const wrongKeysMax = 20
const wrongKeysWindowMs = 60_000
/** Addresses that are remembered; beyond, the oldest is forgotten. */
const addressesMax = 10_000
/** How soon a stream of a revoked key ends. */
const checkMs = 500

export interface CallersOptions {
  readonly token: string
  readonly keys: Pick<ApiKeys, 'recognize' | 'isValid'>
  /** Reports that the keys cannot be read. */
  readonly log: (line: Readonly<Record<string, unknown>>) => void
  /** ms since 1970 */
  readonly now?: () => number
}

export class Callers {
  readonly #digest: Buffer
  readonly #keys: CallersOptions['keys']
  readonly #log: CallersOptions['log']
  readonly #now: () => number
  /** Times of wrong keys, by address; the address of the newest one is last. */
  readonly #wrong = new Map<string, number[]>()
  readonly #open = new Set<{ readonly keyId: string; readonly end: () => void }>()
  #timer: NodeJS.Timeout | undefined

  constructor({ token, keys, log, now = Date.now }: CallersOptions) {
    this.#digest = digestOf(token)
    this.#keys = keys
    this.#log = log
    this.#now = now
  }

  /**
   * @param address of the client
   * @throws {Refusal} 401 with one text for keys that are unknown, revoked or expired; 429 after many of them; 503 while
   *   the keys cannot be read
   */
  async identify(authorization: string | undefined, address: string): Promise<Caller> {
    const [, given] = /^Bearer ([^\s]{1,4096})$/i.exec(authorization ?? '') ?? []
    if (given === undefined) throw unauthorized()
    if (timingSafeEqual(digestOf(given), this.#digest)) return owner
    const key = await this.#read(() => this.#keys.recognize(given))
    if (key !== null) return callerOf(key)
    // A right key is accepted all the while: nobody guesses 256 bits, and behind a proxy all clients have one address.
    this.#countWrong(address)
    throw unauthorized()
  }

  /** Calls `end` once the key of the caller is no longer valid. @returns a function that forgets it */
  watch({ key }: Caller, end: () => void): () => void {
    if (key === undefined) return () => undefined
    const entry = { keyId: key.id, end }
    this.#open.add(entry)
    this.#timer ??= setInterval(() => void this.#check(), checkMs).unref()
    return () => {
      this.#open.delete(entry)
      if (this.#open.size > 0) return
      clearInterval(this.#timer)
      this.#timer = undefined
    }
  }

  async #check(): Promise<void> {
    const ids = new Set([...this.#open].map(({ keyId }) => keyId))
    for (const id of ids) {
      const isValid = await this.#keys.isValid(id).catch(() => false)
      if (!isValid) for (const { keyId, end } of [...this.#open]) if (keyId === id) end()
    }
  }

  async #read<T>(read: () => Promise<T>): Promise<T> {
    try {
      return await read()
    } catch (error) {
      this.#log({ level: 'error', message: 'the API keys cannot be read', cause: String(error) })
      throw new Refusal(
        503,
        'state_unavailable',
        'the service cannot read its API keys, so it accepts none',
        {
          remedy: 'ask the owner of the service to correct the file that its log names',
        },
      )
    }
  }

  /** @throws {Refusal} 429 */
  #countWrong(address: string): void {
    const now = this.#now()
    const name = networkOf(address)
    const recent = (this.#wrong.get(name) ?? []).filter((at) => at > now - wrongKeysWindowMs)
    const first = recent[0]
    if (recent.length >= wrongKeysMax && first !== undefined)
      throw tooMany(`${wrongKeysMax} wrong keys came from this address`, first + wrongKeysWindowMs - now, {
        remedy: 'send a valid key',
      })
    this.#wrong.delete(name)
    this.#wrong.set(name, [...recent, now])
    const [oldest] = this.#wrong.keys()
    if (this.#wrong.size > addressesMax && oldest !== undefined) this.#wrong.delete(oldest)
  }
}

/** Whether the caller sees the runs of everybody. */
export function seesAll({ key, scopes: has }: Caller): boolean {
  return key === undefined || has.has('admin')
}

/**
 * Who acts, for a journal. What the caller of a key says of a person follows the key, so that a request can name neither
 * another key nor the owner.
 */
export function actorOf({ key, name }: Caller, said: string | undefined): string {
  if (said === undefined) return name
  return key === undefined ? said : `${name}: ${said}`.slice(0, limits.lineMaxChars).toWellFormed()
}

/** @param waitMs until it can succeed */
export function tooMany(detail: string, waitMs: number, { remedy }: { remedy?: string } = {}): Refusal {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000))
  return new Refusal(429, 'too_many_requests', detail, {
    remedy: `${remedy === undefined ? '' : `${remedy}, or `}try again in ${seconds} s`,
    headers: { 'retry-after': `${seconds}` },
  })
}

function callerOf(key: ApiKey): Caller {
  const has = key.scopes.includes('admin') ? scopes : key.scopes
  return { name: `key ${key.name} (${key.id})`, scopes: new Set(has), key }
}

function unauthorized(): Refusal {
  return new Refusal(401, 'unauthorized', 'the request has no valid token or API key', {
    remedy:
      'send "Authorization: Bearer TOKEN" with the token from the file that `caisson serve` names, or with a key of `caisson serve keys create`',
    headers: { 'www-authenticate': 'Bearer realm="caisson"' },
  })
}

/** The /64 network of an IPv6 address, which one client usually has as a whole. */
function networkOf(address: string): string {
  if (!isIPv6(address) || address.startsWith('::ffff:')) return address
  const [head = '', tail = ''] = address.split('::')
  const groups = head === '' ? [] : head.split(':')
  const missing = 8 - groups.length - (tail === '' ? 0 : tail.split(':').length)
  return [...groups, ...Array<string>(Math.max(0, missing)).fill('0'), ...tail.split(':')]
    .slice(0, 4)
    .join(':')
}

/** All texts have a digest of one length, so that a comparison tells nothing of theirs. */
function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
