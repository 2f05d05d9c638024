/**
 * Opens TCP connections to permitted hosts. Resolves the name here, judges every address, and connects only to a judged
 * address. Behind the user's proxy, the proxy resolves the name; addresses known here are still judged.
 */
import { createConnection, type LookupFunction, type Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import { behindNat64, isBeside, notPublic } from '#specs/node/web/addresses.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { Network } from '../net/network.ts'
import type { Target } from '../net/target.ts'
import { hostInUrl, isAddress, parseHost } from '../net/target.ts'
import { openThroughProxy, type UserProxy } from '../net/user-proxy.ts'
import { type Resolve, type ResolveFailure, resolveName } from './resolve.ts'

export interface ConnectFailure {
  /** `refused`: the host refused an address. */
  readonly kind: 'refused' | 'unreachable' | 'timeout' | 'cancelled'
  /** For the agent: what failed, why, what to do. */
  readonly message: string
}

/** @param judge returns the reason against an address, null for none; `inside` names the non-public kind of address */
export type Connect = (
  target: Target,
  judge: (address: string, inside: string | null) => string | null,
  signal: AbortSignal,
) => Promise<Result<Socket, ConnectFailure>>

interface ConnectorOptions {
  readonly network: Network
  /** Absent: the system's resolver. */
  readonly resolve?: Resolve
  /** Time limit of the connection after the lookup. Absent: 15 s. */
  readonly timeoutMs?: number
}

const defaultTimeoutMs = 15_000
/** Time limit of a lookup that only predicts what the proxy will do. */
const proxiedLookupMs = 3_000
/** Delay before the next address is tried in parallel (RFC 8305). */
const nextAddressMs = 250

export function createConnector({
  network,
  resolve = resolveName,
  timeoutMs = defaultTimeoutMs,
}: ConnectorOptions): Connect {
  return async (target, judge, signal) => {
    const proxy = network.proxyFor(target)
    const found = await addressesOf(target.host, resolve, proxy !== null, signal)
    // Behind a proxy, many names are known only to the proxy.
    if (!found.ok && (proxy === null || signal.aborted)) {
      const { kind, message } = found.error
      const what = kind === 'timeout' || kind === 'cancelled' ? kind : 'unreachable'
      return failure(what, `${target.host} ${message}. Check the name; or this machine is offline.`)
    }
    const addresses = found.ok ? found.value.map(oneSpelling) : []
    for (const address of addresses) {
      const reason = judge(address, insideOf(address))
      if (reason !== null) return failure('refused', reason)
    }
    return proxy === null
      ? await connectDirectly(target, addresses, timeoutMs, signal)
      : await connectThrough(proxy, network, target, timeoutMs, signal)
  }
}

async function addressesOf(
  host: string,
  resolve: Resolve,
  isProxied: boolean,
  signal: AbortSignal,
): Promise<Result<readonly string[], ResolveFailure>> {
  if (isAddress(host)) return { ok: true, value: [host] }
  const patience = isProxied ? AbortSignal.any([signal, AbortSignal.timeout(proxiedLookupMs)]) : signal
  return await resolve(host, patience)
}

/** Tries the judged addresses only, alternating between both families. */
async function connectDirectly(
  { host, port }: Target,
  addresses: readonly string[],
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Result<Socket, ConnectFailure>> {
  const pinned = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
  const lookup: LookupFunction = (_name, _options, callback) => callback(null, pinned)
  const { promise, resolve } = Promise.withResolvers<Result<Socket, ConnectFailure>>()
  const socket = createConnection({
    host,
    port,
    lookup,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: nextAddressMs,
    noDelay: true,
    // A server that has finished sending may still read.
    allowHalfOpen: true,
  })
  const place = `${hostInUrl(host)}:${port}`
  const end = (kind: ConnectFailure['kind'], message: string): void => {
    socket.destroy()
    resolve(failure(kind, message))
  }
  const timer = setTimeout(
    () => end('timeout', `${place} did not answer within ${timeoutMs / 1000} s.`),
    timeoutMs,
  )
  const onAbort = (): void => end('cancelled', `${place} is not wanted any more.`)
  const onError = (error: Error): void => end('unreachable', `${place} cannot be reached (${codeOf(error)}).`)
  socket.on('error', onError)
  socket.once('connect', () => {
    socket.off('error', onError)
    resolve({ ok: true, value: socket })
  })
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) onAbort()
  return promise.finally(() => {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
  })
}

async function connectThrough(
  proxy: UserProxy,
  network: Network,
  target: Target,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Result<Socket, ConnectFailure>> {
  const trust = proxy.isTls ? { secureContext: network.secureContext() } : {}
  const opened = await openThroughProxy(proxy, target, { timeoutMs, signal, ...trust })
  return opened.ok ? opened : failure(signal.aborted ? 'cancelled' : 'unreachable', opened.error.message)
}

/** The form used in rules: also unwraps an IPv4 address from an IPv6 one. */
export function oneSpelling(address: string): string {
  const read = parseHost(address)
  return read.ok ? read.value : address
}

/**
 * Returns the kind of a non-public address; null for a public one.
 * @param interfaces network interfaces of this machine. Absent: the current ones
 */
export function insideOf(address: string, interfaces = networkInterfaces()): string | null {
  const inside = notPublic(address)
  if (inside !== null) return inside
  const own = Object.values(interfaces).flatMap((list) => list ?? [])
  // Services may trust connections from this machine or its network. With IPv6, a whole home or office has public
  // addresses.
  const reached = behindNat64(address) ?? address
  if (own.some((one) => one.address === reached)) return 'this machine'
  const isNear = own.some(({ cidr }) => cidr !== null && isBeside(reached, cidr))
  return isNear ? 'this machine’s own network' : null
}

/** Uses the first error of several attempts. */
function codeOf(error: Error): string {
  const first = error instanceof AggregateError ? (error.errors[0] as unknown) : error
  return first instanceof Error && 'code' in first ? String(first.code) : error.message
}

function failure(kind: ConnectFailure['kind'], message: string): { ok: false; error: ConnectFailure } {
  return { ok: false, error: { kind, message } }
}
