/**
 * Requests of a sign-in: to the MCP server, and to addresses that it and its authorization server name. Each address is
 * judged as for the egress of a run. Answers are bounded in size and time; redirects are returned, never followed.
 */
import { type IncomingMessage, request } from 'node:http'
import type { Duplex } from 'node:stream'
import type { FetchLike } from '@modelcontextprotocol/client'
import { createConnector } from '../egress/connect.ts'
import { readResponseBody, startTls } from '../egress/http-exchange.ts'
import { decide, type EgressPolicy, judgeResolved } from '../egress/policy.ts'
import type { Resolve } from '../egress/resolve.ts'
import type { Network } from '../net/network.ts'
import { describeTarget, hostInUrl, parseTarget, type Target } from '../net/target.ts'

export interface JudgedFetchOptions {
  readonly network: Network
  /** Of the configuration. A public address needs no rule, because the user asked for the sign-in. */
  readonly policy: EgressPolicy
  readonly signal: AbortSignal
  /** Of one request and its answer. Absent: 15 s. */
  readonly timeoutMs?: number
  /** Absent: the system's resolver. */
  readonly resolve?: Resolve
}

const answerMaxBytes = 256 * 1024
const defaultTimeoutMs = 15_000
const headerMaxBytes = 16 * 1024
const withoutBody = new Set([204, 205, 304])

/** The request failed before an answer. A TypeError, as of `fetch`, so that the library does not continue without it. */
export class RequestFailedError extends TypeError {}

/** The network, or the time for an answer, failed it; the same request can succeed later. */
export class LostRequestError extends RequestFailedError {}

export function createJudgedFetch(options: JudgedFetchOptions): FetchLike {
  const { network, policy, resolve, timeoutMs = defaultTimeoutMs } = options
  const connect = createConnector({ network, timeoutMs, ...(resolve === undefined ? {} : { resolve }) })
  return async (address, init = {}) => {
    const parsed = parseTarget(String(address), init.method ?? 'GET')
    if (!parsed.ok) throw new RequestFailedError(parsed.error)
    const target = parsed.value
    const problem = reasonAgainst(policy, target)
    if (problem !== null) throw new RequestFailedError(`${describeTarget(target)}: ${problem}`)
    const ends = AbortSignal.any([options.signal, AbortSignal.timeout(timeoutMs)])
    const judge = (ip: string, inside: string | null): string | null =>
      inside === null && target.scheme === 'http'
        ? 'expected https, since the address is public'
        : judgeResolved(policy, target, ip, inside)
    const opened = await connect(target, judge, ends)
    if (!opened.ok) {
      const Failure = opened.error.kind === 'refused' ? RequestFailedError : LostRequestError
      throw new Failure(`${describeTarget(target)}: ${opened.error.message}`)
    }
    using _ = { [Symbol.dispose]: () => opened.value.destroy() }
    opened.value.on('error', () => undefined)
    const socket = await secure(opened.value, target, network, ends)
    return await exchange(socket, target, init, ends)
  }
}

/** A rule that denies it, or an address of this machine or its network without a rule that names it. */
function reasonAgainst(policy: EgressPolicy, target: Target): string | null {
  const decision = decide(policy, target)
  if (decision.effect !== 'deny') return null
  if (decision.by !== null) return `the rule “${decision.rule}” denies it`
  return decision.canAsk ? null : decision.rule
}

async function secure(
  socket: Duplex,
  target: Target,
  network: Network,
  signal: AbortSignal,
): Promise<Duplex> {
  if (target.scheme === 'http') return socket
  const secured = await startTls(socket, target, network.secureContext(), signal)
  if (!secured.ok) throw new LostRequestError(secured.error.message)
  return secured.value
}

async function exchange(
  connection: Duplex,
  target: Target,
  init: RequestInit,
  signal: AbortSignal,
): Promise<Response> {
  const { host, port, scheme, path, method } = target
  const isUsual = port === (scheme === 'https' ? 443 : 80)
  const body = init.body === undefined || init.body === null ? null : Buffer.from(String(init.body))
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const sent = request({
    createConnection: () => connection,
    method: method ?? 'GET',
    path: path ?? '/',
    headers: {
      ...Object.fromEntries(new Headers(init.headers)),
      host: isUsual ? hostInUrl(host) : `${hostInUrl(host)}:${port}`,
      'accept-encoding': 'identity',
      connection: 'close',
      ...(body === null ? {} : { 'content-length': body.length }),
    },
    maxHeaderSize: headerMaxBytes,
    setHost: false,
    signal,
  })
  sent.once('response', resolve)
  sent.on('error', (error) => reject(failureOf(host, error, signal)))
  sent.once('close', () => reject(new LostRequestError(`${host} closed the connection without an answer`)))
  sent.end(body ?? undefined)
  const answer = await promise
  // A stream of events does not end; nothing here reads one.
  const isStream = answer.headers['content-type']?.includes('text/event-stream') === true
  const read = isStream ? null : await readResponseBody(answer, host, answerMaxBytes, signal)
  if (isStream) answer.destroy()
  if (read !== null && !read.ok) throw new LostRequestError(read.error.message)
  if (read?.value.cut === true)
    throw new RequestFailedError(`${host} answered with more than ${answerMaxBytes} bytes`)
  const status = answer.statusCode ?? 502
  const headers = new Headers()
  for (const [name, value] of Object.entries(answer.headers))
    for (const one of Array.isArray(value) ? value : [value ?? ''])
      if (/^[\t\x20-\x7e\x80-\xff]*$/.test(one)) headers.append(name, one)
  const bytes = withoutBody.has(status) || read === null ? null : new Uint8Array(read.value.bytes)
  const response = new Response(bytes, { status: Math.min(599, Math.max(200, status)), headers })
  return Object.defineProperties(response, {
    url: { value: `${scheme}://${hostInUrl(host)}:${port}${path ?? '/'}` },
  })
}

function failureOf(host: string, error: Error, signal: AbortSignal): LostRequestError {
  if (signal.aborted) return new LostRequestError(`${host} did not answer in time`)
  const code = 'code' in error && typeof error.code === 'string' ? error.code : error.name
  return new LostRequestError(`the connection with ${host} failed (${code})`)
}
