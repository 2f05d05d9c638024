/**
 * Checks JWTs of issuers for the HTTP service: signature, times, issuer, audience, subject and scopes. What it does not
 * know it refuses. It says why in words of its own, never in those of a token.
 */
import { createHash } from 'node:crypto'
import path from 'node:path'
import {
  decodeJwt,
  decodeProtectedHeader,
  errors,
  type JWTPayload,
  type JWTVerifyResult,
  jwtVerify,
} from 'jose'
import type { Dispatcher } from 'undici'
import * as z from 'zod'
import { CaissonError, hasCode, requireText, withCode } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type Scope, scopes } from '#specs/service/route.ts'
import { checkArguments } from '../files/check-arguments.ts'
import { algorithms, type KeySet } from './key-set.ts'
import { KeyAddress, KeyFile, type KeySource } from './key-sources.ts'

/** For clocks that differ. */
const leewayMs = 30_000
/** Longest time between issue and expiry, since nobody can revoke a token. */
const lifetimeMaxMs = 24 * 3_600_000
const tokenMaxChars = 8_192
/** OpenID Connect has no longer ones. */
const subjectMaxChars = 255
const shownSubjectMaxChars = 64

export interface JwtOptions {
  /** Public keys of the issuer: a file, or an address that starts with `https:` (on this machine also `http:`). */
  readonly jwks: string
  /** The exact `iss` of its tokens. */
  readonly issuer: string
  /** What `aud` must have. */
  readonly audience: string
}

const Words = z.string().min(1).max(1_024)
const Options = z.strictObject({
  jwks: Words.refine((place) => !/^[a-z][a-z0-9+.-]*:\/\//i.test(place) || isSafeUrl(place), {
    message:
      'expected a file, an address with https, or one of this machine with http; without user name and fragment',
  }),
  issuer: Words,
  audience: Words,
})

/** Who sends a valid token. */
export interface JwtSubject {
  /** `jwt-` and 32 hex digits, a digest of issuer and subject. */
  readonly id: string
  /** For people and journals: what can be shown of the subject, and its ID. */
  readonly name: string
  /** Those of the token that the service knows; maybe none. */
  readonly scopes: readonly Scope[]
  /** Whether the token is valid still, by its times and the keys of now. @throws {CaissonError} `state_unavailable` */
  isValid(): Promise<boolean>
}

export interface JwtRefusal {
  /** Such as `it has expired`. */
  readonly why: string
  /** Whether the issuer signed it, so that its sender may know why. */
  readonly isSigned: boolean
}

/** Whose a token is, or why it is refused. */
export type JwtVerdict =
  | { readonly ok: true; readonly value: JwtSubject }
  | { readonly ok: false; readonly error: JwtRefusal }

export interface JwtSurroundings {
  /** Opens connections of the host. */
  readonly dispatcher: () => Promise<Dispatcher>
  /** ms since 1970 */
  readonly now?: () => number
  /** Of one fetch of the keys. Default: 5 s. */
  readonly fetchTimeoutMs?: number
}

/** Checks the tokens of one issuer, or of several. */
export interface JwtVerifier {
  /** Whether a text has the form of a JWT, valid or not. */
  isToken(text: string): boolean
  /** Gets the keys, so that what is wrong shows before a token comes. @throws {CaissonError} `state_unavailable` */
  check(): Promise<void>
  /** @throws {CaissonError} `state_unavailable` while the keys cannot be got */
  verify(token: string): Promise<JwtVerdict>
}

/** Reads the keys of a file; those of an address are fetched when they are needed. @throws {CaissonError} `invalid_options` */
export async function openJwtVerifier(
  options: JwtOptions,
  surroundings: JwtSurroundings,
): Promise<JwtVerifier> {
  const given = checkArguments('JWTs cannot be checked', Options, options, { '': Object.keys(Options.shape) })
  const { dispatcher, now = Date.now, fetchTimeoutMs } = surroundings
  if (isUrl(given.jwks)) {
    const timeout = fetchTimeoutMs === undefined ? {} : { timeoutMs: fetchTimeoutMs }
    return new IssuerTokens(given, new KeyAddress({ url: given.jwks, dispatcher, now, ...timeout }), now)
  }
  const source = new KeyFile(path.resolve(given.jwks))
  await source.read().catch((cause: unknown) => {
    throw hasCode(cause, 'state_unavailable')
      ? new CaissonError('invalid_options', cause.message, { cause })
      : cause
  })
  return new IssuerTokens(given, source, now)
}

/** At most so many issuers of one service. */
export const issuersMaxCount = 16

/**
 * Each token is checked as those of the issuer that it names, and of no other.
 * @throws {CaissonError} `invalid_options` for none, too many, or the same issuer twice
 */
export async function openJwtVerifiers(
  options: readonly JwtOptions[],
  surroundings: JwtSurroundings,
): Promise<JwtVerifier> {
  if (options.length === 0 || options.length > issuersMaxCount)
    throw new CaissonError(
      'invalid_options',
      `JWTs need 1 to ${issuersMaxCount} issuers, got ${options.length}`,
    )
  const verifiers = new Map<string, JwtVerifier>()
  for (const one of options) {
    const verifier = await openJwtVerifier(one, surroundings)
    if (verifiers.has(one.issuer))
      throw new CaissonError('invalid_options', `the issuer ${JSON.stringify(one.issuer)} is named twice`, {
        remedy: 'put all its keys into one JWKS document',
      })
    verifiers.set(one.issuer, verifier)
  }
  const [first] = verifiers.values()
  return verifiers.size === 1 && first !== undefined ? first : new TokensOfSeveral(verifiers)
}

class TokensOfSeveral implements JwtVerifier {
  readonly #verifiers: ReadonlyMap<string, JwtVerifier>

  constructor(verifiers: ReadonlyMap<string, JwtVerifier>) {
    this.#verifiers = verifiers
  }

  isToken(text: string): boolean {
    return hasTokenForm(text)
  }

  async check(): Promise<void> {
    await Promise.all([...this.#verifiers.values()].map((one) => one.check()))
  }

  async verify(token: string): Promise<JwtVerdict> {
    requireText('the token', token)
    const why = refusedHeader(token)
    if (why !== undefined) return refused(why, false)
    // What it says of itself is proved by the key of that issuer alone.
    const verifier = this.#verifiers.get(issuerNamedBy(token) ?? '')
    return verifier === undefined
      ? refused('it names no issuer whose tokens are accepted (iss)', false)
      : await verifier.verify(token)
  }
}

function issuerNamedBy(token: string): string | undefined {
  try {
    const { iss } = decodeJwt(token)
    return typeof iss === 'string' ? iss : undefined
  } catch {
    return undefined
  }
}

class IssuerTokens implements JwtVerifier {
  readonly #issuer: string
  readonly #audience: string
  readonly #source: KeySource
  readonly #now: () => number

  constructor({ issuer, audience }: JwtOptions, source: KeySource, now: () => number) {
    this.#issuer = issuer
    this.#audience = audience
    this.#source = source
    this.#now = now
  }

  isToken(text: string): boolean {
    return hasTokenForm(text)
  }

  async check(): Promise<void> {
    await withCode(async () => void (await this.#source.read()))
  }

  async verify(token: string): Promise<JwtVerdict> {
    return await withCode(async () => {
      requireText('the token', token)
      const why = refusedHeader(token)
      if (why !== undefined) return refused(why, false)
      let keys = await this.#source.read()
      let verified = await this.#verifyWith(token, keys)
      if (!verified.ok && verified.error.why === noSuchKey) {
        keys = await this.#source.readAgain()
        verified = await this.#verifyWith(token, keys)
      }
      return verified.ok ? { ok: true, value: this.#subjectOf(token, verified.value, keys) } : verified
    })
  }

  async #verifyWith(token: string, { keyOf }: KeySet): Promise<Result<JWTPayload, JwtRefusal>> {
    let verified: JWTVerifyResult
    try {
      verified = await jwtVerify(token, keyOf, {
        algorithms: [...algorithms],
        issuer: this.#issuer,
        audience: this.#audience,
        requiredClaims: ['exp', 'sub'],
        clockTolerance: leewayMs / 1_000,
        currentDate: new Date(this.#now()),
      })
    } catch (error) {
      return refusalOf(error)
    }
    const why = refusedClaims(verified.payload, this.#now())
    return why === undefined ? { ok: true, value: verified.payload } : refused(why, true)
  }

  #subjectOf(token: string, payload: JWTPayload, keys: KeySet): JwtSubject {
    const { sub = '', exp = 0 } = payload
    const digest = createHash('sha256')
      .update(JSON.stringify([this.#issuer, sub]))
      .digest('hex')
      .slice(0, 32)
    let checked = keys
    return {
      id: `jwt-${digest}`,
      name: `jwt ${shownSubject(sub)} (${digest})`,
      scopes: scopesOf(payload),
      isValid: async () => {
        if (exp * 1_000 + leewayMs <= this.#now()) return false
        const current = await this.#source.read()
        if (current === checked) return true
        const { ok } = await this.#verifyWith(token, current)
        if (ok) checked = current
        return ok
      },
    }
  }
}

function hasTokenForm(text: string): boolean {
  requireText('the text', text)
  return /^[\w-]+\.[\w-]+\.[\w-]*$/.test(text)
}

const noSuchKey = 'no key of the issuer fits it'

/** Why a token is refused before its signature is checked; undefined for no reason. */
function refusedHeader(token: string): string | undefined {
  if (token.length > tokenMaxChars) return `it is longer than ${tokenMaxChars} characters`
  let header: Readonly<Record<string, unknown>>
  try {
    header = decodeProtectedHeader(token)
  } catch {
    return 'it is no JWT'
  }
  const { alg, crit, typ } = header
  if (!algorithms.some((known) => known === alg)) return `its algorithm is none of ${algorithms.join(', ')}`
  if (crit !== undefined) return 'its header has extensions (crit)'
  const isJwt =
    typ === undefined || (typeof typ === 'string' && /^(?:application\/)?(?:at\+)?jwt$/i.test(typ))
  return isJwt ? undefined : 'its type is neither JWT nor at+jwt'
}

/** Why a signed token is refused besides issuer, audience and times; undefined for no reason. */
function refusedClaims({ sub, iat, exp = 0, cnf }: JWTPayload, now: number): string | undefined {
  if (typeof sub !== 'string' || sub === '') return 'it has no subject (sub)'
  if (sub.length > subjectMaxChars || /\p{Cc}/u.test(sub) || !sub.isWellFormed())
    return `its subject (sub) has more than ${subjectMaxChars} characters, or control characters`
  // Who holds it has to prove that it holds a key, which the service does not check.
  if (cnf !== undefined) return 'it is bound to a key of its holder (cnf)'
  if (iat !== undefined && iat * 1_000 > now + leewayMs) return 'it was issued in the future (iat)'
  const begin = iat === undefined ? now : Math.min(iat * 1_000, now)
  if (exp * 1_000 - begin > lifetimeMaxMs + leewayMs)
    return `it is valid for more than ${lifetimeMaxMs / 3_600_000} hours (exp)`
  return undefined
}

const claimTexts: Readonly<Record<string, string>> = {
  iss: 'it is of another issuer (iss)',
  aud: 'it is not for this service (aud)',
  sub: 'it has no subject (sub)',
  exp: 'its time of expiry is missing or no number (exp)',
  nbf: 'it is not valid yet (nbf)',
  iat: 'its time of issue is no number (iat)',
}

/** jose checks the claims after the signature. Errors may have texts of the token, so none is passed on. */
function refusalOf(error: unknown): Result<never, JwtRefusal> {
  if (error instanceof errors.JWTExpired) return refused('it has expired (exp)', true)
  if (error instanceof errors.JWTClaimValidationFailed)
    return refused(claimTexts[error.claim] ?? 'a claim of it does not fit', true)
  if (error instanceof errors.JWKSNoMatchingKey) return refused(noSuchKey, false)
  if (error instanceof errors.JWKSMultipleMatchingKeys)
    return refused('several keys of the issuer fit it, and its header names none (kid)', false)
  if (error instanceof errors.JWSSignatureVerificationFailed) return refused('its signature is wrong', false)
  return refused('it is no JWT that can be checked', false)
}

function refused(why: string, isSigned: boolean): { readonly ok: false; readonly error: JwtRefusal } {
  return { ok: false, error: { why, isSigned } }
}

/** `scope`, or without it `scp`: words with blanks between them, or a list of words. Other words count for nothing. */
function scopesOf({ scope, scp }: JWTPayload): Scope[] {
  const given = scope ?? scp
  const words: readonly unknown[] =
    typeof given === 'string' ? given.split(' ') : Array.isArray(given) ? given : []
  return scopes.filter((known) => words.includes(known))
}

/** The digest tells subjects apart, so what a terminal could show wrongly may be replaced. */
function shownSubject(sub: string): string {
  return sub.slice(0, shownSubjectMaxChars).replaceAll(/[^\w.@:|+-]/g, '_')
}

function isUrl(place: string): boolean {
  return /^https?:\/\//i.test(place)
}

function isSafeUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, hostname, username, password, hash } = new URL(text)
  if (username !== '' || password !== '' || hash !== '') return false
  return (
    protocol === 'https:' ||
    (protocol === 'http:' && /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname))
  )
}
