/**
 * How this host itself reaches the internet: directly or through the user's proxy, and whom its TLS trusts. For every
 * connection that the host makes on its own behalf or a guest's; whether it may be made is decided elsewhere.
 */

import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls'
import { Agent, buildConnector, type Dispatcher } from 'undici'
import { reasonOf } from '#specs/node/file-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import {
  type Destination,
  isExcepted,
  isThisMachine,
  openThroughProxy,
  parseProxy,
  type UserProxy,
} from './user-proxy.ts'

const caMaxBytes = 4 * 1024 * 1024
const defaultConnectTimeoutMs = 15_000

export interface Network {
  /** The proxy that leads to this address; null when it is reached directly. */
  proxyFor(to: Destination): UserProxy | null
  /** Trusts Node's roots, the system's and those of the user's file. Made at the first use, then the same one. */
  secureContext(): SecureContext
  /** Direct or proxied connections with that trust, HTTP/1.1 alone; the caller closes it. */
  dispatcher(options?: DispatcherOptions): Dispatcher
}

/** Options of undici's agent except how it connects. */
type DispatcherOptions = Omit<Agent.Options, 'connect' | 'factory' | 'allowH2'> & {
  /** Until a connection is open, with TLS. Default: 15 s. */
  readonly connectTimeoutMs?: number
}

/** The section `network` of the user's configuration. */
interface NetworkSettings {
  /** Absent: the environment's. */
  readonly proxy?: string | undefined
  /** A PEM file of further certificate authorities. */
  readonly ca?: string | undefined
}

type Environment = Readonly<Record<string, string | undefined>>

/**
 * @param config the section `network` of the user's configuration; wins over the environment
 * @param env HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, lower case first, as curl reads them
 * @returns an error that names the setting and what to do
 */
export function openNetwork(config: NetworkSettings, env: Environment = {}): Result<Network, string> {
  const proxies = chooseProxies(config.proxy, env)
  if (!proxies.ok) return proxies
  const ca = config.ca === undefined ? { ok: true as const, value: [] } : readAuthorities(config.ca, env)
  if (!ca.ok) return ca
  return { ok: true, value: createNetwork(proxies.value, settingOf(env, 'no_proxy') ?? '', ca.value) }
}

/** No proxy and no further authorities. */
export const directNetwork: Network = createNetwork({ http: null, https: null }, '', [])

type Proxies = Readonly<Record<Destination['scheme'], UserProxy | null>>

function createNetwork(proxies: Proxies, noProxy: string, authorities: readonly string[]): Network {
  let context: SecureContext | undefined
  const secureContext = (): SecureContext => {
    context ??= createSecureContext({ ca: trusted(authorities) })
    return context
  }
  const proxyFor = (to: Destination): UserProxy | null =>
    isThisMachine(to.host) || isExcepted(noProxy, to) ? null : proxies[to.scheme]
  return {
    proxyFor,
    secureContext,
    dispatcher: ({ connectTimeoutMs = defaultConnectTimeoutMs, ...options } = {}) =>
      new Agent({
        ...options,
        allowH2: false,
        connect: createConnector(proxyFor, secureContext, connectTimeoutMs),
      }),
  }
}

function trusted(authorities: readonly string[]): string[] {
  return [...new Set([...getCACertificates('default'), ...getCACertificates('system'), ...authorities])]
}

/** undici's own connector, on a connection through the proxy where there is one. */
function createConnector(
  proxyFor: Network['proxyFor'],
  secureContext: Network['secureContext'],
  timeoutMs: number,
): buildConnector.connector {
  const plain = buildConnector({ timeout: timeoutMs, allowH2: false })
  let secure: buildConnector.connector | undefined
  return (options, callback) => {
    const isTls = options.protocol === 'https:'
    if (isTls) {
      secure ??= buildConnector({ timeout: timeoutMs, allowH2: false, secureContext: secureContext() })
    }
    const connect = isTls && secure !== undefined ? secure : plain
    const to = {
      scheme: isTls ? ('https' as const) : ('http' as const),
      host: options.hostname.replace(/^\[|\]$/g, ''),
      port: Number(options.port) || (isTls ? 443 : 80),
    }
    const proxy = proxyFor(to)
    if (proxy === null) return connect(options, callback)
    const trust = proxy.isTls ? { secureContext: secureContext() } : {}
    void openThroughProxy(proxy, to, { timeoutMs, ...trust }).then((opened) => {
      if (!opened.ok) callback(opened.error, null)
      else if (isTls) connect({ ...options, httpSocket: opened.value }, callback)
      else callback(null, opened.value)
    })
  }
}

function chooseProxies(configured: string | undefined, env: Environment): Result<Proxies, string> {
  if (configured !== undefined) {
    const proxy = parseProxy(configured, 'network.proxy in the configuration file')
    return proxy.ok ? { ok: true, value: { http: proxy.value, https: proxy.value } } : proxy
  }
  const read = (...names: string[]): Result<UserProxy | null, string> => {
    const name = names.find((candidate) => settingOf(env, candidate) !== undefined)
    if (name === undefined) return { ok: true, value: null }
    return parseProxy(settingOf(env, name) ?? '', name.toUpperCase())
  }
  const http = read('http_proxy', 'all_proxy')
  if (!http.ok) return http
  const https = read('https_proxy', 'all_proxy')
  if (!https.ok) return https
  return { ok: true, value: { http: http.value, https: https.value } }
}

function settingOf(env: Environment, name: string): string | undefined {
  return [env[name], env[name.toUpperCase()]].map((text) => text?.trim()).find((text) => text)
}

function readAuthorities(file: string, env: Environment): Result<string[], string> {
  const place = file.startsWith('~/') ? path.join(env.HOME || homedir(), file.slice(2)) : file
  const fail = (why: string): Result<string[], string> => ({
    ok: false,
    error: `network.ca in the configuration file: ${place} ${why}; expected a PEM certificate file.`,
  })
  if (!path.isAbsolute(place)) return fail('is not an absolute path')
  try {
    const text = readFileSync(place, 'utf8')
    if (text.length > caMaxBytes) return fail(`is longer than ${caMaxBytes} bytes`)
    const found = text.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g)
    if (found === null) return fail('holds no certificate')
    // What OpenSSL cannot read fails here, with the file's name, and not at the first connection.
    createSecureContext({ ca: found })
    return { ok: true, value: [...found] }
  } catch (cause) {
    return fail(`cannot be used (${reasonOf(cause)})`)
  }
}
