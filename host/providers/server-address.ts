/** Validates the address of a model server, and determines who could read the traffic. */
import { isIP } from 'node:net'
import type { Result } from '#specs/protocol/error.ts'

export interface ServerAddress {
  /** Without a trailing slash. */
  readonly baseUrl: string
  /** Notices for the user, one sentence each. */
  readonly notes: readonly string[]
}

export interface AddressError {
  readonly code: 'invalid_url' | 'insecure_url'
  readonly message: string
}

/** @param setting name of the setting, for the message; the address is not repeated, since it may contain a key */
export function readServerAddress(text: string, setting: string): Result<ServerAddress, AddressError> {
  const fail = (code: AddressError['code'], message: string) => ({
    ok: false as const,
    error: { code, message: `${setting} ${message}` },
  })
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    return fail('invalid_url', 'is not an http or https address, such as http://127.0.0.1:8080/v1.')
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    return fail(
      'invalid_url',
      'must not hold a user, a query or a fragment; the key has a setting of its own.',
    )
  }
  if (/\/chat\/completions\/*$/.test(url.pathname)) {
    return fail('invalid_url', 'must end before /chat/completions, such as http://127.0.0.1:8080/v1.')
  }
  const reach = url.protocol === 'http:' ? reachOfHost(url.hostname) : 'encrypted'
  if (reach === 'public') {
    return fail(
      'insecure_url',
      `uses plain http to ${url.hostname}, which is neither this machine nor a private address: the conversation and ` +
        'the key could be read on the way. Use https.',
    )
  }
  const note = `The model server ${url.host} is reached by plain http in a private network: what is sent can be read there.`
  return {
    ok: true,
    value: { baseUrl: url.href.replace(/\/+$/, ''), notes: reach === 'private' ? [note] : [] },
  }
}

/** Whether an address is NVIDIA's, over https: where NVIDIA_API_KEY may be sent. */
export function isNvidiaAddress(baseUrl: string): boolean {
  const { protocol, hostname, port } = new URL(baseUrl)
  return protocol === 'https:' && port === '' && /(^|\.)api\.nvidia\.com$/.test(hostname)
}

/**
 * Who could read plain http to this host. Names other than localhost count as public, since they may resolve to
 * anything.
 */
function reachOfHost(hostname: string): 'loopback' | 'private' | 'public' {
  const host = hostname.replace(/^\[|\]$/g, '').toLowerCase()
  if (host === 'localhost' || host.endsWith('.localhost')) return 'loopback'
  const family = isIP(host)
  if (family === 4) {
    if (host.startsWith('127.')) return 'loopback'
    return /^(10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.)/.test(host) ? 'private' : 'public'
  }
  if (family === 6) {
    if (host === '::1') return 'loopback'
    return /^f[cd]/.test(host) ? 'private' : 'public'
  }
  return 'public'
}
