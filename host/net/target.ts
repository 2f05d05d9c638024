/**
 * Brings what the guest calls a place into one spelling, by the rules that URLs are read with: what is judged, looked up
 * and connected to is then the same. Refuses what has more than one reading.
 */
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import type { Result } from '#specs/protocol/error.ts'

/** Where the guest wants to go, in one spelling. */
export interface Target {
  readonly scheme: 'https' | 'http'
  /** A name in lower-case ASCII without a trailing dot, an IPv4 address in four decimals, or an IPv6 address without brackets. */
  readonly host: string
  readonly port: number
  /** Upper case; null in a tunnel, where it is encrypted. */
  readonly method: string | null
  /** With its query; null in a tunnel. */
  readonly path: string | null
}

/** Longest address that is read, in characters. */
const urlMaxChars = 8_192
const defaultPorts = { https: 443, http: 80 } as const

/**
 * A request's target. Userinfo, white space, control characters and backslashes are refused; a fragment is left out.
 * @param method in any case; CONNECT is refused, see {@link parseAuthority}
 */
export function parseTarget(text: string, method: string): Result<Target, string> {
  const shown = printable(withoutUserinfo(text))
  if (text.length > urlMaxChars) return failure(`an address of more than ${urlMaxChars} characters`)
  if (/[\s\p{Cc}\p{Cs}\\]/u.test(text))
    return failure(`${shown} holds white space, a control character or a backslash`)
  const authority = /^https?:\/\/([^/?#]+)/i.exec(text)?.[1]
  if (authority === undefined)
    return failure(`${shown} is not a whole http or https address, such as https://example.com/`)
  if (authority.includes('@'))
    return failure(`${shown} holds a user or password; credentials do not go into an address`)
  const upper = method.toUpperCase()
  if (!/^[A-Z]{1,20}$/.test(upper) || upper === 'CONNECT')
    return failure(`${printable(method)} is not a method of a request`)
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null) return failure(`${shown} is not a valid address`)
  const host = oneSpelling(url.hostname)
  if (!host.ok) return failure(`${shown}: ${host.error}`)
  const scheme = url.protocol === 'https:' ? 'https' : 'http'
  const port = url.port === '' ? defaultPorts[scheme] : Number(url.port)
  if (port === 0) return failure(`${shown}: there is no port 0`)
  return {
    ok: true,
    value: { scheme, host: host.value, port, method: upper, path: url.pathname + url.search },
  }
}

/** The target of a tunnel: exactly `host:port`, an IPv6 address in brackets. Tunnels are for TLS. */
export function parseAuthority(authority: string): Result<Target, string> {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+):([1-9]\d{0,4})$/i.exec(authority.slice(0, 300))
  const port = Number(match?.[2])
  if (match?.[1] === undefined || port > 0xffff)
    return failure(`${printable(authority)} is not HOST:PORT, such as example.com:443`)
  const host = parseHost(match[1])
  if (!host.ok) return failure(`${printable(authority)}: ${host.error}`)
  return { ok: true, value: { scheme: 'https', host: host.value, port, method: null, path: null } }
}

/** The canonical form of a name or address in a URL (an IPv6 address also without its brackets). */
export function parseHost(text: string): Result<string, string> {
  const bracketed = /^[0-9a-f:.]*:[0-9a-f:.]*$/i.test(text) ? `[${text}]` : text
  const isPlain = bracketed !== '' && !/[\s\p{Cc}\p{Cs}\\/?#@%]/u.test(bracketed)
  const hasPort = /:\d*$/.test(bracketed) && !bracketed.endsWith(']')
  const url = `https://${bracketed}/`
  if (!isPlain || hasPort || !URL.canParse(url))
    return failure(`${printable(text)} is not the name or address of a host`)
  return oneSpelling(new URL(url).hostname)
}

/** Whether a host in its one spelling is an address, not a name. */
export function isAddress(host: string): boolean {
  return isIP(host) !== 0
}

/** `GET https://example.com/a?b`, or `CONNECT example.com:443`: whole, for people and the journal. */
export function describeTarget(target: Target): string {
  if (target.method === null) return `CONNECT ${hostInUrl(target.host)}:${target.port}`
  return `${target.method} ${targetUrl(target)}`
}

/** The address of a target; of a tunnel the address of its root. */
export function targetUrl({ scheme, host, port, path }: Target): string {
  const suffix = port === defaultPorts[scheme] ? '' : `:${port}`
  return `${scheme}://${hostInUrl(host)}${suffix}${path ?? '/'}`
}

/** A host as in a URL before a port: an IPv6 address in brackets. */
export function hostInUrl(host: string): string {
  return host.includes(':') ? `[${host}]` : host
}

/** @param hostname as `URL` gives it: names in ASCII, IPv4 in decimals, IPv6 in brackets */
function oneSpelling(hostname: string): Result<string, string> {
  if (hostname.startsWith('[')) {
    const address = ipaddr.IPv6.parse(hostname.slice(1, -1))
    // The same machine as the IPv4 address in it, so that one rule is enough.
    const plain = address.isIPv4MappedAddress() ? address.toIPv4Address() : address
    return { ok: true, value: plain instanceof ipaddr.IPv6 ? address.toRFC5952String() : plain.toString() }
  }
  const name = hostname.replace(/\.$/, '')
  const isName = name.length <= 253 && name.split('.').every((label) => /^[a-z0-9_-]{1,63}$/.test(label))
  return isName ? { ok: true, value: name } : failure(`${printable(hostname)} is not the name of a host`)
}

function failure(error: string): { ok: false; error: string } {
  return { ok: false, error }
}

/** The text is no valid address perhaps, so that everything before its last `@` may be a password. */
function withoutUserinfo(text: string): string {
  const at = text.lastIndexOf('@')
  return at < 0 ? text : `${/^[a-z]*:\/\//i.exec(text)?.[0] ?? ''}...${text.slice(at)}`
}

/** Untrusted text for a line of ours. */
function printable(text: string): string {
  return text.slice(0, 200).replaceAll(/[^\x20-\x7e]/g, '?') + (text.length > 200 ? '…' : '')
}
