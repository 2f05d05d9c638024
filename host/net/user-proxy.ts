/**
 * The proxy through which the user's machine reaches the internet: which addresses go through it, and a connection
 * through it (CONNECT, RFC 9110 9.3.6). SOCKS is refused; this machine's own addresses never go through it.
 */
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { isIP, type Socket } from 'node:net'
import type { SecureContext } from 'node:tls'
import ipaddr from 'ipaddr.js'
import type { Result } from '#specs/protocol/error.ts'
import { Secret } from '../keys/secret.ts'

export interface UserProxy {
  /** For people: scheme, host and port, never the password. */
  readonly shown: string
  readonly isTls: boolean
  readonly host: string
  readonly port: number
  /** Value of `Proxy-Authorization`; null where the address has no user. */
  readonly authorization: Secret | null
}

/** Address of a connection. */
export interface Destination {
  readonly scheme: 'http' | 'https'
  /** A name or an address, IPv6 without brackets. */
  readonly host: string
  readonly port: number
}

/** A connection that the proxy did not give; the message says what to do and holds no password. */
export class ProxyError extends Error {
  override readonly name = 'ProxyError'
}

/** Reads a proxy's address. @param where the setting it comes from, for the error */
export function parseProxy(text: string, where: string): Result<UserProxy, string> {
  // `proxy:3128` is how many people write it; a URL parser would take `proxy:` for a scheme.
  const whole = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`
  const url = URL.canParse(whole) ? new URL(whole) : null
  if (url === null || url.hostname === '') {
    return { ok: false, error: `${where} is not the address of a proxy; expected http://HOST:PORT.` }
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    const error = `${where} names a ${url.protocol.slice(0, -1)} proxy; only http:// and https:// proxies are supported.`
    return { ok: false, error }
  }
  const isTls = url.protocol === 'https:'
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const port = Number(url.port) || (isTls ? 443 : 80)
  const authorization = readUser(url)
  return { ok: true, value: { shown: `${url.protocol}//${url.host}`, isTls, host, port, authorization } }
}

function readUser(url: URL): Secret | null {
  if (url.username === '') return null
  const pair = [url.username, url.password].map(decodePercent).join(':')
  return new Secret(`Basic ${Buffer.from(pair).toString('base64')}`)
}

function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/**
 * Whether an address is reached without the proxy by the words of NO_PROXY, parted by commas or space: `*`; a name, with
 * or without a dot before it, for itself and all below; `*.name` for all below; an address; a range such as `10.0.0.0/8`;
 * each but the range with `:PORT` for that port alone.
 */
export function isExcepted(noProxy: string, { host, port }: Pick<Destination, 'host' | 'port'>): boolean {
  const name = host.toLowerCase().replace(/\.$/, '')
  return noProxy
    .split(/[\s,]+/)
    .filter((entry) => entry !== '')
    .some((entry) => matchesEntry(entry.toLowerCase(), name, port))
}

function matchesEntry(entry: string, name: string, port: number): boolean {
  if (entry.includes('/')) return isInRange(entry, name)
  const bracketed = /^\[([^\]]*)\](?::(\d+))?$/.exec(entry)
  const plain = isIP(entry) === 6 ? null : /^([^:]*)(?::(\d+))?$/.exec(entry)
  const [, wanted = '', portText] = bracketed ?? plain ?? [entry, entry]
  if (portText !== undefined && Number(portText) !== port) return false
  if (wanted === '*') return true
  if (ipaddr.isValid(wanted)) return isInRange(`${wanted}/${isIP(wanted) === 6 ? 128 : 32}`, name)
  const bare = wanted.replace(/^\*?\.|\.$/g, '')
  return bare !== '' && ((!wanted.startsWith('*') && name === bare) || name.endsWith(`.${bare}`))
}

function isInRange(entry: string, name: string): boolean {
  if (!ipaddr.isValid(name) || !ipaddr.isValidCIDR(entry)) return false
  const address = ipaddr.process(name)
  const [range, bits] = ipaddr.parseCIDR(entry)
  return address.kind() === range.kind() && address.match(range, bits)
}

/** Names and addresses of this machine, which a proxy could not reach. */
export function isThisMachine(host: string): boolean {
  const name = host.toLowerCase().replace(/\.$/, '')
  if (name === 'localhost' || name.endsWith('.localhost')) return true
  return ipaddr.isValid(name) && ipaddr.process(name).range() === 'loopback'
}

/**
 * A TCP connection to `to` through the proxy; TLS to `to` is the caller's. The proxy resolves the name: no address can be
 * pinned.
 * @param options.secureContext what a proxy that itself speaks TLS is trusted by
 */
export function openThroughProxy(
  proxy: UserProxy,
  to: Pick<Destination, 'host' | 'port'>,
  options: {
    readonly signal?: AbortSignal
    readonly timeoutMs: number
    readonly secureContext?: SecureContext
  },
): Promise<Result<Socket, ProxyError>> {
  const { promise, resolve } = Promise.withResolvers<Result<Socket, ProxyError>>()
  const authority = `${isIP(to.host) === 6 ? `[${to.host}]` : to.host}:${to.port}`
  const fail = (why: string): void => {
    request.destroy()
    resolve({ ok: false, error: new ProxyError(`The proxy ${proxy.shown} ${why}`) })
  }
  const request = (proxy.isTls ? requestHttps : requestHttp)({
    host: proxy.host,
    port: proxy.port,
    method: 'CONNECT',
    path: authority,
    agent: false,
    headers: {
      host: authority,
      ...(proxy.authorization === null ? {} : { 'proxy-authorization': proxy.authorization.reveal() }),
    },
    ...(options.secureContext === undefined ? {} : { secureContext: options.secureContext }),
  })
  const seconds = options.timeoutMs / 1000
  const slow = `did not connect to ${authority} within ${seconds} s; check the proxy, or set another one.`
  const timer = setTimeout(() => fail(slow), options.timeoutMs)
  const onAbort = (): void => fail(`was not reached: the request to ${authority} was cancelled.`)
  request.on('error', (error) =>
    fail(`cannot be reached (${codeOf(error)}); check its address and the network.`),
  )
  request.once('connect', (response, socket, head) => {
    if (response.statusCode === undefined || response.statusCode < 200 || response.statusCode > 299) {
      socket.on('error', () => {})
      socket.destroy()
      return fail(refusal(authority, response.statusCode))
    }
    if (head.length > 0) socket.unshift(head)
    resolve({ ok: true, value: socket as Socket })
  })
  if (options.signal?.aborted === true) onAbort()
  else options.signal?.addEventListener('abort', onAbort, { once: true })
  request.end()
  return promise.finally(() => {
    clearTimeout(timer)
    options.signal?.removeEventListener('abort', onAbort)
  })
}

function refusal(authority: string, status: number | undefined): string {
  const remedy =
    status === 407
      ? 'it requires a user and a password; add them to its URL, http://USER:PASSWORD@HOST:PORT.'
      : 'it may not allow this address or port; ask its administrator, or exclude the address with NO_PROXY.'
  return `refused the connection to ${authority} (status ${status ?? 'unknown'}); ${remedy}`
}

function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name
}
