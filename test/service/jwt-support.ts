// An issuer of JWTs with its keys, a served host that accepts its tokens, and requests of its subjects.
import { createHash } from 'node:crypto'
import { readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose'
import { Agent } from 'undici'
import { afterEach, expect, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { Host } from '../../host/index.ts'
import { openJwtVerifier } from '../../host/jwt/jwt.ts'
import type { JwtAccess } from '../../host/service/callers.ts'
import { placeOfRuns } from '../../host/test/support/changed-run.ts'
import { type Received, type Sent, type ServedHost, serveHost } from './support.ts'

export const issuer = 'https://id.example.com/'
export const audience = 'caisson'

/** Of any type, as a wrong issuer could send them. */
export type Claims = Readonly<Record<string, unknown>>

export interface SigningKey {
  readonly jwk: JWK
  readonly alg: string
  /** Claims beside those of a valid token; undefined leaves one out. */
  sign(claims?: Claims, header?: Claims): Promise<string>
}

/** Tokens of this test, which nothing may have written anywhere. */
const tokens = new Set<string>()
/** Where they could be. */
const places = new Set<{ readonly home: string; readonly logged: readonly unknown[] }>()

afterEach(async () => {
  for (const { home, logged } of places) await expectNowhere(home, logged)
  tokens.clear()
  places.clear()
})

export function remember(token: string): string {
  tokens.add(token)
  return token
}

export async function makeKey(alg = 'ES256', kid = 'k1', now = Date.now): Promise<SigningKey> {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
  const jwk = { ...(await exportJWK(publicKey)), kid, alg, use: 'sig' }
  return {
    ...{ jwk, alg },
    sign: async (claims = {}, header = {}) => {
      const seconds = Math.floor(now() / 1_000)
      const valid = { iss: issuer, aud: audience, sub: 'ada', iat: seconds, exp: seconds + 600 }
      const payload = { ...valid, scope: 'read run approve apply', ...claims }
      const given = Object.entries(payload).filter(([, value]) => value !== undefined)
      const signed = new SignJWT(Object.fromEntries(given)).setProtectedHeader({ alg, kid, ...header })
      return remember(await signed.sign(privateKey, { crit: { 'x-extension': true } }))
    },
  }
}

/** A token of parts as they stand, whatever they are; `signature` over the text before it. */
export function tokenOf(header: unknown, payload: unknown, signature: (text: string) => Buffer): string {
  const encode = (part: unknown) => Buffer.from(JSON.stringify(part)).toString('base64url')
  const text = `${encode(header)}.${encode(payload)}`
  return remember(`${text}.${signature(text).toString('base64url')}`)
}

export const keysText = (...keys: readonly (SigningKey | JWK)[]) =>
  JSON.stringify({ keys: keys.map((key) => ('jwk' in key ? key.jwk : key)) })

/** Replaces a file as a rotation should: whole or not at all. */
export async function replaceKeys(file: string, text: string): Promise<void> {
  await writeFile(`${file}.new`, text, { mode: 0o600 })
  await rename(`${file}.new`, file)
}

export interface JwtHost extends ServedHost {
  readonly host: Host
  /** The JWKS file. */
  readonly file: string
  /** Sends a request with a token; `body` as JSON. */
  as(
    token: string,
    method: string,
    path: string,
    body?: unknown,
    headers?: Sent['headers'],
  ): Promise<Received>
}

export interface JwtPlace extends JwtHost {
  readonly directory: string
}

export interface JwtHostOptions {
  /** Default: a file with the keys. */
  readonly jwks?: string
  readonly now?: () => number
  readonly quotas?: JwtAccess['quotas']
  readonly fetchTimeoutMs?: number
  readonly workspaces?: readonly string[]
}

/** A served host that accepts tokens of {@link issuer} by these keys, or by those of `jwks`. Call it from within a test. */
export async function serveJwtOf(
  host: Host,
  keys: readonly SigningKey[],
  { quotas, now, fetchTimeoutMs, jwks, workspaces = [] }: JwtHostOptions = {},
): Promise<JwtHost> {
  const file = await keyFile(...keys)
  const verifier = await openJwtVerifier(
    { jwks: jwks ?? file, issuer, audience },
    {
      dispatcher: async () => new Agent(),
      ...(now === undefined ? {} : { now }),
      ...(fetchTimeoutMs === undefined ? {} : { fetchTimeoutMs }),
    },
  )
  const jwt = { verifier, ...(quotas === undefined ? {} : { quotas }) }
  const served = await serveHost(host, { workspaces, jwt })
  watchPlace(host.folders.home, served.logged)
  return { ...served, host, file, as: asOf(served) }
}

/** The same with a workspace. Call it from within a test. */
export async function serveJwt(
  keys: readonly SigningKey[],
  { before = {}, ...options }: JwtHostOptions & { readonly before?: Parameters<typeof placeOfRuns>[0] } = {},
): Promise<JwtPlace> {
  const { host, directory } = await placeOfRuns(before)
  return { ...(await serveJwtOf(host, keys, { workspaces: [directory], ...options })), directory }
}

/** A JWKS file with these keys. Call it from within a test. */
export async function keyFile(...keys: readonly SigningKey[]): Promise<string> {
  const file = path.join(await temporaryFolder('issuer'), 'jwks.json')
  await writeFile(file, keysText(...keys), { mode: 0o600 })
  return file
}

/** Says that what this service logged and stored is searched for tokens too. */
export function watchPlace(home: string, logged: readonly unknown[]): void {
  places.add({ home, logged })
}

export function asOf({ send }: Pick<ServedHost, 'send'>): JwtPlace['as'] {
  return (token, method, path, body, headers = {}) =>
    send(method, path, {
      headers: {
        authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
}

/** As journals name a subject. */
export function labelOf(sub: string, shown = sub): string {
  const digest = createHash('sha256')
    .update(JSON.stringify([issuer, sub]))
    .digest('hex')
    .slice(0, 32)
  return `jwt ${shown} (${digest})`
}

/** Metadata of the runs that a subject starts. */
export const metadataOf = (sub: string) => ({
  'caisson.owner': labelOf(sub),
  'caisson.started-by': 'service',
})

export interface KeyServer {
  readonly url: string
  /** Paths of the requests so far. */
  readonly asked: string[]
}

/** A server of keys on a loopback address. Call it from within a test. */
export async function serveKeySet(answer: RequestListener): Promise<KeyServer> {
  const asked: string[] = []
  const server = createServer((request, response) => {
    asked.push(request.url ?? '')
    answer(request, response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks`, asked }
}

async function expectNowhere(home: string, logged: readonly unknown[]): Promise<void> {
  const texts = new Map([['the log', JSON.stringify(logged)]])
  for (const entry of await readdir(home, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name)
    if (entry.isFile()) texts.set(file, await readFile(file, 'latin1'))
  }
  for (const [place, text] of texts)
    for (const token of tokens) {
      const parts = token.split('.').filter((part) => part.length >= 16)
      expect([place, parts.filter((part) => text.includes(part.slice(0, 100)))]).toEqual([place, []])
    }
}
