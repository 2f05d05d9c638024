/**
 * Sends one POST to an address of people: a webhook, a push service. Connects to a judged address alone, follows no
 * redirects, reads no body, and ends within its time.
 */
import { request } from 'node:http'
import type { Duplex } from 'node:stream'
import { parseRetryAfter } from '#specs/node/provider-quirks/provider-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import { createConnector, insideOf } from '../egress/connect.ts'
import { startTls } from '../egress/http-exchange.ts'
import type { Network } from '../net/network.ts'
import { hostInUrl, isAddress, parseTarget, type Target } from '../net/target.ts'

/** Of one attempt: lookup, connection, TLS, request and the headers of the answer. */
const attemptMs = 15_000
const headerMaxBytes = 16 * 1024

export interface Message {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Uint8Array
  /** Whether a person allowed addresses of this machine and its network, and plain http to them. */
  readonly isLocalAllowed: boolean
  /** How a person allows them, for logs. */
  readonly localSetting: string
  /** Statuses by which the receiver wants no more messages. Absent: 410. */
  readonly goneStatuses?: readonly number[]
}

/** Whether the message arrived. Texts have no word of the receiver, and no path of its address. */
export type SendResult =
  | { readonly isSent: true }
  | {
      readonly isSent: false
      /** For logs. */
      readonly why: string
      /** Whether the same message may arrive later. */
      readonly isRetryable: boolean
      /** Pause that the receiver demands; null: none. */
      readonly retryAfterMs: number | null
      /** Whether the receiver wants no more messages at all. */
      readonly isGone: boolean
    }

export type Post = (message: Message, signal: AbortSignal) => Promise<SendResult>

/** @param timeoutMs of one attempt. Absent: 15 s */
export function createPost(network: Network, timeoutMs = attemptMs): Post {
  const connect = createConnector({ network, timeoutMs })
  return async ({ url, headers, body, isLocalAllowed, localSetting, goneStatuses = [410] }, signal) => {
    const target = parseTarget(url, 'POST')
    if (!target.ok) return failed('its address cannot be used', { isRetryable: false })
    const ends = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
    const judge = (_address: string, inside: string | null) =>
      reasonAgainst(target.value.scheme, inside, isLocalAllowed ? null : localSetting)
    const opened = await connect(target.value, judge, ends)
    if (!opened.ok) {
      const isRetryable = opened.error.kind !== 'refused'
      return failed(opened.error.message, { isRetryable })
    }
    using _ = { [Symbol.dispose]: () => opened.value.destroy() }
    // Whatever the other side does to the connection is seen by the request.
    opened.value.on('error', () => undefined)
    const secured = await secure(opened.value, target.value, network, ends)
    if (!secured.ok) return failed(secured.error, { isRetryable: true })
    return await send(secured.value, target.value, { headers, body, goneStatuses, signal: ends })
  }
}

/**
 * Why no message can go to a URL; null unless its text alone shows that. A name is judged with each attempt.
 */
export function refuseUrl({
  url,
  isLocalAllowed,
  localSetting,
}: Pick<Message, 'url' | 'isLocalAllowed' | 'localSetting'>): string | null {
  const target = parseTarget(url, 'POST')
  if (!target.ok) return target.error
  const { host, scheme } = target.value
  if (!isAddress(host)) return null
  return reasonAgainst(scheme, insideOf(host), isLocalAllowed ? null : localSetting)
}

function reasonAgainst(
  scheme: Target['scheme'],
  inside: string | null,
  /** Null: it is set. */
  missingSetting: string | null,
): string | null {
  if (inside !== null)
    return missingSetting === null
      ? null
      : `its address belongs to ${inside}; allow it with ${missingSetting}`
  return scheme === 'https' ? null : 'its address is public and not https'
}

async function secure(
  socket: Duplex,
  target: Target,
  network: Network,
  signal: AbortSignal,
): Promise<Result<Duplex, string>> {
  if (target.scheme === 'http') return { ok: true, value: socket }
  const secured = await startTls(socket, target, network.secureContext(), signal)
  return secured.ok ? secured : { ok: false, error: secured.error.message }
}

type Outgoing = Pick<Message, 'headers' | 'body'> & {
  readonly goneStatuses: readonly number[]
  readonly signal: AbortSignal
}

function send(
  connection: Duplex,
  { host, port, scheme, path }: Target,
  { headers, body, goneStatuses, signal }: Outgoing,
): Promise<SendResult> {
  const { promise, resolve } = Promise.withResolvers<SendResult>()
  const isUsual = port === (scheme === 'https' ? 443 : 80)
  const sent = request({
    createConnection: () => connection,
    method: 'POST',
    path: path ?? '/',
    headers: {
      host: isUsual ? hostInUrl(host) : `${hostInUrl(host)}:${port}`,
      'content-length': Buffer.byteLength(body),
      connection: 'close',
      ...headers,
    },
    maxHeaderSize: headerMaxBytes,
    signal,
  })
  sent.once('response', (response) => {
    const { statusCode = 0, headers: answered } = response
    // Its body is not read, however long it is.
    response.on('error', () => undefined)
    response.destroy()
    resolve(resultOf(statusCode, answered['retry-after'], goneStatuses))
  })
  sent.on('error', (error) => {
    const why = signal.aborted ? 'it did not answer in time' : `the connection failed (${codeOf(error)})`
    resolve(failed(why, { isRetryable: true }))
  })
  sent.end(body)
  return promise
}

function resultOf(
  status: number,
  retryAfter: string | undefined,
  goneStatuses: readonly number[],
): SendResult {
  if (status >= 200 && status <= 299) return { isSent: true }
  const isRetryable = status === 408 || status === 429 || status >= 500
  const isRedirect = status >= 300 && status <= 399
  return failed(`it answered ${status}${isRedirect ? ', and redirects are not followed' : ''}`, {
    isRetryable,
    retryAfterMs: isRetryable ? parseRetryAfter(retryAfter) : null,
    isGone: goneStatuses.includes(status),
  })
}

function failed(
  why: string,
  { isRetryable = false, retryAfterMs = null as number | null, isGone = false },
): SendResult {
  return { isSent: false, why, isRetryable, retryAfterMs, isGone }
}

function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name
}
