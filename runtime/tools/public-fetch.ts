/**
 * GET requests of the library's `web_fetch`: to public internet addresses, and to internal ones that the application
 * allows. Checks the connected address on every redirect; reads bodies up to a limit.
 */
import { lookup as systemLookup } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { Agent, fetch, type Response } from 'undici'
import { failure } from '#specs/node/file-error.ts'
import { hostInside, notPublic } from '#specs/node/web/addresses.ts'
import type { Result } from '#specs/protocol/error.ts'

export interface FetchBounds {
  /**
   * Internal addresses that are allowed: a host as written in a URL, `localhost` or `10.0.0.5` for any port,
   * `localhost:8080` for one.
   */
  readonly privateHosts: readonly string[]
  readonly signal: AbortSignal
}

export interface Fetched {
  /** Maximum redirects. */
  readonly url: string
  readonly status: number
  /** The server's value; empty without one. */
  readonly contentType: string
  readonly bytes: Buffer
  /** Whether the body was longer than the limit. */
  readonly cut: boolean
}

const redirectsMax = 5
const redirectStatuses: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])
const bodyMaxBytes = 5 * 1024 * 1024
const headers = {
  accept: 'text/html,application/xhtml+xml,application/json,text/*;q=0.9,*/*;q=0.5',
  'user-agent': 'caisson',
}

export async function fetchPublic(address: string, bounds: FetchBounds): Promise<Result<Fetched>> {
  let judged = judge(address, bounds.privateHosts)
  for (let redirects = 0; ; redirects++) {
    if (!judged.ok) return judged
    const { url, isPrivate } = judged.value
    // One per hop: whether its host may be internal differs.
    const dispatcher = new Agent({
      connect: { lookup: isPrivate ? systemLookup : lookupPublic, timeout: 10_000 },
      maxHeaderSize: 64 * 1024,
      maxResponseSize: 2 * bodyMaxBytes,
    })
    try {
      const response = await fetch(url, { dispatcher, headers, redirect: 'manual', signal: bounds.signal })
      const location = response.headers.get('location')
      if (!redirectStatuses.has(response.status) || location === null)
        return { ok: true, value: await readAnswer(response, url) }
      if (redirects === redirectsMax)
        return failure('unavailable', `${shown(address)} leads on more than ${redirectsMax} times.`)
      judged = follow(location, url, bounds.privateHosts)
    } catch (cause) {
      return describeFailure(cause, url, bounds.signal)
    } finally {
      // Not close(): the unread rest of the answer is irrelevant.
      await dispatcher.destroy()
    }
  }
}

interface Judged {
  readonly url: URL
  readonly isPrivate: boolean
}

function judge(address: string, privateHosts: readonly string[]): Result<Judged> {
  const url = URL.canParse(address) ? new URL(address) : null
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:'))
    return failure('invalid_input', `${shown(address)} is no address of http or https.`)
  if (url.username !== '' || url.password !== '')
    return failure('invalid_input', 'An address with a name or password in it is not fetched.')
  const host = url.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port
  const isPrivate = privateHosts.some(
    (known) => known === url.hostname || known === `${url.hostname}:${port}`,
  )
  const inside = isPrivate ? null : hostInside(host)
  return inside === null ? { ok: true, value: { url, isPrivate } } : refuseInside(url.host, inside)
}

function follow(location: string, from: URL, privateHosts: readonly string[]): Result<Judged> {
  const where = URL.canParse(location, from.href) ? new URL(location, from.href).href : location
  const next = judge(where, privateHosts)
  if (!next.ok)
    return failure(
      next.error.code,
      `${shown(from.href)} leads on, and that is not followed: ${next.error.message}`,
    )
  return from.protocol === 'https:' && next.value.url.protocol === 'http:'
    ? failure(
        'unavailable',
        `${shown(from.href)} leads on to ${shown(where)}, which is not encrypted; that is not followed.`,
      )
    : next
}

function refuseInside(host: string, what: string): ReturnType<typeof failure> {
  return failure(
    'denied',
    `${host.slice(0, 200)} is ${what}, not on the public internet; the application did not allow that (privateHosts).`,
  )
}

class InsideError extends Error {
  readonly what: string

  constructor(what: string) {
    super(`the name leads to ${what}`)
    this.what = what
  }
}

/** Resolves a name; refuses one with any internal address. */
const lookupPublic: LookupFunction = (hostname, options, callback) => {
  systemLookup(hostname, { ...options, all: true }, (error, addresses) => {
    if (error !== null) return callback(error, [])
    for (const { address } of addresses) {
      const what = notPublic(address)
      if (what !== null) return callback(new InsideError(what), [])
    }
    const [first] = addresses
    if (options.all === true || first === undefined) callback(null, addresses)
    else callback(null, first.address, first.family)
  })
}

async function readAnswer(response: Response, url: URL): Promise<Fetched> {
  const parts: Uint8Array[] = []
  let bytes = 0
  // Decompressed incrementally: data beyond the limit is never produced.
  for await (const chunk of response.body ?? []) {
    parts.push(chunk)
    bytes += chunk.length
    if (bytes > bodyMaxBytes) break
  }
  return {
    url: url.href,
    status: response.status,
    contentType: response.headers.get('content-type') ?? '',
    bytes: Buffer.concat(parts).subarray(0, bodyMaxBytes),
    cut: bytes > bodyMaxBytes,
  }
}

function describeFailure(cause: unknown, url: URL, signal: AbortSignal): ReturnType<typeof failure> {
  if (signal.aborted) return failure('timed_out', `${shown(url.href)} was not there in time.`, true)
  for (let at = cause; at instanceof Error; at = at.cause)
    if (at instanceof InsideError) return refuseInside(url.host, at.what)
  return failure('unavailable', `${shown(url.href)} could not be fetched: ${reasonOf(cause)}.`, true)
}

/** The innermost code, which names the reason. */
function reasonOf(cause: unknown): string {
  let reason = 'unknown reason'
  for (let at = cause; at instanceof Error; at = at.cause)
    reason = 'code' in at && typeof at.code === 'string' ? at.code : at.message
  return reason.slice(0, 200)
}

function shown(address: string): string {
  return address.slice(0, 200)
}
