/**
 * Who sends a request: the owner of the service, or somebody with an API key or a JWT. Limits wrong keys by address, and
 * ends what a caller has open once their key or JWT is no longer valid.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { limits } from '#specs/protocol/limits.ts'
import { type Scope, scopes } from '#specs/service/route.ts'
import {
  type ApiKey,
  type ApiKeyQuotas,
  type ApiKeys,
  CaissonError,
  type JwtRefusal,
  type JwtVerdict,
  type JwtVerifier,
} from '../index.ts'
import { Refusal } from './problems.ts'

/** Who sends a request. */
export interface Caller {
  /** For journals, with the ID of a key or a subject. Whose runs are whose is compared by it. */
  readonly name: string
  readonly scopes: ReadonlySet<Scope>
  /** Absent: the owner of the service. */
  readonly account?: Account
  /** The one question that the caller may answer. Absent: what scopes and owner allow. */
  readonly link?: LinkGrant
  /** True: sees the runs that it started alone, also the owner and an admin. */
  readonly seesOwnAlone?: boolean
}

/** The holder of an API key or of a link, or the subject of a JWT. */
export interface Account {
  /** Of a key 12 hex digits, of a subject `jwt-` and more, of a link `link-` and more. */
  readonly id: string
  readonly kind: 'key' | 'subject' | 'link'
  readonly quotas: ApiKeyQuotas
  /** Whether the key or the JWT of the request is valid still. May reject, as when it cannot be found out. */
  isValid(): Promise<boolean>
}

/** What a link permits: to see one question and to answer it. */
export interface LinkGrant {
  readonly runId: string
  readonly approvalId: string
  /** Of the question as it was delivered. */
  readonly digest: string
  /** ms since 1970 */
  readonly expiresAt: number
  /** Who got the link. */
  readonly receiver: string
}

/** Tells who has a link. */
export interface LinkIdentity {
  /** Whether a text has the form of a link's token, valid or not. */
  isToken(text: string): boolean
  /** Null: the service did not sign it. @throws {Refusal} 410 when it has expired */
  identify(token: string, now: number): Caller | null
}

/** The user whose token or socket it is. */
export const owner: Caller = { name: 'the owner of the service', scopes: new Set(scopes) }

const wrongKeysMax = 20
const wrongKeysWindowMs = 60_000
/** Addresses that are remembered; beyond, the oldest is forgotten. */
const addressesMax = 10_000
/** How soon a stream of a revoked key or an expired JWT ends. */
const checkMs = 500

export interface CallersOptions {
  readonly token: string
  readonly keys: Pick<ApiKeys, 'recognize' | 'isValid'>
  /** Absent: no JWT is accepted. */
  readonly jwt?: JwtAccess
  /** Absent: no link is accepted. */
  readonly links?: LinkIdentity
  /** Reports that keys cannot be read, and why a JWT was refused. */
  readonly log: (line: Readonly<Record<string, unknown>>) => void
  /** ms since 1970 */
  readonly now?: () => number
}

/** JWTs that the service accepts. */
export interface JwtAccess {
  readonly verifier: JwtVerifier
  /** Of each subject. Default: none. */
  readonly quotas?: ApiKeyQuotas
}

export class Callers {
  readonly #digest: Buffer
  readonly #keys: CallersOptions['keys']
  readonly #jwt: JwtAccess | undefined
  readonly #links: CallersOptions['links']
  readonly #log: CallersOptions['log']
  readonly #now: () => number
  /** Times of wrong keys, by address; the address of the newest one is last. */
  readonly #wrong = new Map<string, number[]>()
  readonly #open = new Set<{ readonly account: Account; readonly end: () => void }>()
  #timer: NodeJS.Timeout | undefined
  #isChecking = false

  constructor({ token, keys, jwt, links, log, now = Date.now }: CallersOptions) {
    this.#digest = digestOf(token)
    this.#keys = keys
    this.#jwt = jwt
    this.#links = links
    this.#log = log
    this.#now = now
  }

  /**
   * @param address of the client
   * @throws {Refusal} 401 with one text for keys that are unknown, revoked or expired; 429 after many of them; 503 while
   *   the keys cannot be read. A JWT that the issuer signed is refused with the reason
   */
  async identify(authorization: string | undefined, address: string): Promise<Caller> {
    const [, given] = /^Bearer ([^\s]{1,8192})$/i.exec(authorization ?? '') ?? []
    if (given === undefined) throw unauthorized()
    if (timingSafeEqual(digestOf(given), this.#digest)) return owner
    if (this.#links?.isToken(given) === true) return this.#identifyLink(given, address)
    if (this.#jwt?.verifier.isToken(given) === true) return await this.#identifyJwt(this.#jwt, given, address)
    const key = await this.#read(() => this.#keys.recognize(given))
    if (key !== null) return this.#callerOf(key)
    // A right key is accepted all the while: nobody guesses 256 bits, and behind a proxy all clients have one address.
    this.#countWrong(address)
    throw unauthorized()
  }

  /** Calls `end` once the key or JWT of the caller is no longer valid. @returns a function that forgets it */
  watch({ account }: Caller, end: () => void): () => void {
    if (account === undefined) return () => undefined
    const entry = { account, end }
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
    // One that waits for the keys of an issuer is not joined by another.
    if (this.#isChecking) return
    this.#isChecking = true
    try {
      // Requests of one key share an answer; those of one subject may have different tokens.
      const ofKeys = new Map<string, boolean>()
      for (const { account, end } of [...this.#open]) {
        const isValid = ofKeys.get(account.id) ?? (await account.isValid().catch(() => false))
        if (account.kind === 'key') ofKeys.set(account.id, isValid)
        if (!isValid) end()
      }
    } finally {
      this.#isChecking = false
    }
  }

  #identifyLink(token: string, address: string): Caller {
    const caller = this.#links?.identify(token, this.#now()) ?? null
    if (caller !== null) return caller
    this.#countWrong(address)
    throw unauthorized()
  }

  async #identifyJwt({ verifier, quotas = {} }: JwtAccess, token: string, address: string): Promise<Caller> {
    const verified = await this.#verify(verifier, token)
    if (verified.ok) {
      const { id, name, scopes: has, isValid } = verified.value
      return { name, scopes: allOf(has), account: { id, kind: 'subject', quotas, isValid } }
    }
    const { why, isSigned } = verified.error
    this.#log({ level: 'warn', message: 'a JWT was refused', why })
    if (!isSigned) this.#countWrong(address)
    throw refusedJwt(verified.error)
  }

  async #verify(verifier: JwtVerifier, token: string): Promise<JwtVerdict> {
    try {
      return await verifier.verify(token)
    } catch (error) {
      const { message: cause } = CaissonError.from(error)
      this.#log({ level: 'error', message: 'JWTs cannot be checked', cause })
      throw new Refusal(
        503,
        'state_unavailable',
        'the service cannot get the keys that JWTs are checked with, so it accepts none',
        {
          remedy: 'try again in a minute, or ask the owner of the service to correct what its log names',
          headers: { 'retry-after': '5' },
        },
      )
    }
  }

  #callerOf({ id, name, quotas, scopes: has }: ApiKey): Caller {
    const isValid = () => this.#keys.isValid(id)
    return { name: `key ${name} (${id})`, scopes: allOf(has), account: { id, kind: 'key', quotas, isValid } }
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
export function seesAll({ account, scopes: has, seesOwnAlone = false }: Caller): boolean {
  return !seesOwnAlone && (account === undefined || has.has('admin'))
}

/**
 * Who acts, for a journal. What a caller says of a person follows their key or subject, so that a request can name neither
 * another one nor the owner.
 */
export function actorOf({ account, name }: Caller, said: string | undefined): string {
  if (said === undefined) return name
  return account === undefined ? said : `${name}: ${said}`.slice(0, limits.lineMaxChars).toWellFormed()
}

/** @param waitMs until it can succeed */
export function tooMany(detail: string, waitMs: number, { remedy }: { remedy?: string } = {}): Refusal {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000))
  return new Refusal(429, 'too_many_requests', detail, {
    remedy: `${remedy === undefined ? '' : `${remedy}, or `}try again in ${seconds} s`,
    headers: { 'retry-after': `${seconds}` },
  })
}

function allOf(has: readonly Scope[]): ReadonlySet<Scope> {
  return new Set(has.includes('admin') ? scopes : has)
}

/** A token that the issuer did not sign tells nothing, as a wrong key. */
function refusedJwt({ why, isSigned }: JwtRefusal): Refusal {
  const detail = isSigned ? `the JWT is refused: ${why}` : 'the request has no valid token, API key or JWT'
  return new Refusal(401, 'unauthorized', detail, {
    remedy: 'get a new token from the issuer',
    headers: { 'www-authenticate': 'Bearer realm="caisson", error="invalid_token"' },
  })
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
