/**
 * Sends one request to a model server and reads the head of its answer: fixed headers, no redirects, polling of queued
 * requests (202). Failures are values in the guest's form; the caller reads the body of a good answer.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { type Dispatcher, request as send } from 'undici'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import { serverKinds } from '#specs/node/model-protocols/server-kinds.ts'
import { suggestedModels } from '#specs/node/provider-quirks/model-families.ts'
import { parseRetryAfter, readErrorBody } from '#specs/node/provider-quirks/provider-error.ts'
import { boundMessage, gatewayError, type WireError } from '../net/gateway-error.ts'
import { ProxyError } from '../net/user-proxy.ts'
import { createKeyRedaction } from '../secrets/redaction.ts'
import type { ModelProvider } from './providers.ts'
import { isNvidiaAddress } from './server-address.ts'
import { UpstreamBreak } from './upstream.ts'

export interface ExchangeTimeouts {
  /** From the request to the first byte. Long prompts take minutes on shared servers. */
  readonly firstByteTimeoutMs: number
  /** Maximum time between two chunks. */
  readonly idleTimeoutMs: number
}

export interface ExchangeOptions {
  readonly provider: ModelProvider & { readonly baseUrl: string }
  readonly dispatcher: Dispatcher
  readonly timeouts: ExchangeTimeouts
  /** Of the operation, at the provider's server. */
  readonly url: string
}

export interface ExchangeFailure {
  readonly ok: false
  /** The server's status; null if there was none. */
  readonly status: number | null
  /** Beginning of an error's body, unmodified; empty if there was none. */
  readonly body: string
  /** The pause that the server asked for; null if none. */
  readonly retryAfterMs: number | null
  readonly error: WireError
}

/** An answer with status 200 and a content type of a model. */
export interface ExchangeAnswer {
  readonly ok: true
  readonly response: Dispatcher.ResponseData
  readonly contentType: AnswerType
}

type AnswerType = 'text/event-stream' | 'application/json'

/** Maximum bytes read of an error body. */
const errorBodyMaxBytes = 64 * 1024
const userAgent = 'caisson/0.1 (+model-gateway)'
const firstPollDelayMs = 1_000
const maxPollDelayMs = 5_000

/** @param streamed whether to request server-sent events */
export async function exchange(
  body: string,
  streamed: boolean,
  signal: AbortSignal,
  options: ExchangeOptions,
): Promise<ExchangeAnswer | ExchangeFailure> {
  const { provider, dispatcher, timeouts } = options
  const headers = requestHeaders(provider, streamed)
  const until = performance.now() + timeouts.firstByteTimeoutMs
  try {
    const first = await send(options.url, { dispatcher, method: 'POST', headers, body, signal })
    const response = first.statusCode === 202 ? await poll(first, headers, until, signal, options) : first
    const contentType = contentTypeOf(response)
    if (response.statusCode === 200 && contentType !== null) return { ok: true, response, contentType }
    return await readFailure(response, options)
  } catch (cause) {
    return { ...noAnswer, error: describeFailure(cause, provider.baseUrl, timeouts) }
  }
}

const noAnswer = { ok: false, status: null, body: '', retryAfterMs: null } as const

function requestHeaders(provider: ExchangeOptions['provider'], streamed: boolean): Record<string, string> {
  return {
    'content-type': 'application/json',
    accept: streamed ? 'text/event-stream' : 'application/json',
    ...providerHeaders(provider),
  }
}

/** What every request to a provider has; alone holds its key. */
export function providerHeaders({
  baseUrl,
  key,
  kind = 'openai-compatible',
}: ExchangeOptions['provider']): Record<string, string> {
  const { headers, keyHeader } = serverKinds[isNvidiaAddress(baseUrl) ? 'nvidia' : kind]
  return { 'user-agent': userAgent, ...headers, ...(key === null ? {} : keyHeader(key.reveal())) }
}

/**
 * Address for polling a queued request: NVIDIA's own for its cloud, else the server itself. Never an address from the
 * answer, since the key is sent along. Null for an invalid id.
 */
export function pollUrl(baseUrl: string, id: string): string | null {
  if (!/^[A-Za-z0-9_-]{1,100}$/.test(id)) return null
  if (isNvidiaAddress(baseUrl)) return `https://api.nvcf.nvidia.com/v2/nvcf/pexec/status/${id}`
  return `${new URL(baseUrl).origin}/v1/status/${id}`
}

/** Polls a queued request at growing intervals until it is ready or the time limit is over. */
async function poll(
  queued: Dispatcher.ResponseData,
  { 'content-type': _, ...headers }: Record<string, string>,
  until: number,
  signal: AbortSignal,
  { provider, dispatcher }: ExchangeOptions,
): Promise<Dispatcher.ResponseData> {
  const url = pollUrl(provider.baseUrl, headerText(queued.headers['nvcf-reqid']) ?? '')
  let response = queued
  for (let delayMs = firstPollDelayMs; url !== null; delayMs = Math.min(delayMs * 1.5, maxPollDelayMs)) {
    if (performance.now() + delayMs >= until) return response
    discard(response)
    await sleep(delayMs, undefined, { signal })
    const headersTimeout = Math.max(1, until - performance.now())
    response = await send(url, { dispatcher, method: 'GET', headers, signal, headersTimeout })
    if (response.statusCode !== 202) return response
  }
  return response
}

/** Reads the limited body of a failure. */
async function readFailure(
  response: Dispatcher.ResponseData,
  { provider, timeouts }: ExchangeOptions,
): Promise<ExchangeFailure> {
  const status = response.statusCode
  const retryAfterMs = parseRetryAfter(headerText(response.headers['retry-after']))
  if (status >= 400 && status <= 599) {
    const body = await readBounded(response, timeouts.idleTimeoutMs)
    const error = readUpstreamError(status, body, provider)
    return { ok: false, status, body, retryAfterMs: retryAfterMs ?? readErrorBody(body).retryAfterMs, error }
  }
  discard(response)
  return { ok: false, status, body: '', retryAfterMs, error: describeStatus(response, provider) }
}

function describeStatus(
  { statusCode: status, headers }: Dispatcher.ResponseData,
  provider: ModelProvider,
): WireError {
  if (status === 200) {
    const type = headerText(headers['content-type']) ?? 'no content type'
    const shown = createKeyRedaction(provider.key?.reveal() ?? null)
      .text(type)
      .slice(0, 100)
    const text = `The model server answered 200 with ${shown} instead of a model's answer. Check the server's address.`
    return gatewayError('upstream_broken', text)
  }
  if (status >= 300 && status <= 399) {
    return gatewayError(
      'upstream_redirect',
      `The model server answered with a redirect (${status}), which is not followed, so that the key goes nowhere else.` +
        " Set the server's final address (CAISSON_LLM_URL, or url in the configuration).",
    )
  }
  if (status === 202) {
    const text = 'The model server queued the request (202) and did not process it in time. Try again later.'
    return gatewayError('upstream_pending', text)
  }
  return gatewayError('upstream_broken', `The model server answered with the unexpected status ${status}.`)
}

/** The body with the idle timeout; only time spent waiting for the server counts. */
export async function* watchBody(
  response: Dispatcher.ResponseData,
  idleTimeoutMs: number,
): AsyncGenerator<Uint8Array> {
  const stalled = gatewayError(
    'upstream_timeout',
    `The model server was silent for ${idleTimeoutMs / 1000} s.`,
  )
  const chunks = response.body[Symbol.asyncIterator]()
  try {
    for (;;) {
      using _ = new AwakeTimer(idleTimeoutMs, () => response.body.destroy(new UpstreamBreak(stalled)))
      const next = await chunks.next()
      if (next.done === true) return
      yield next.value as Uint8Array
    }
  } catch (cause) {
    if (cause instanceof UpstreamBreak) throw cause
    const text = `The connection to the model server ended in the middle of the answer (${reasonOf(cause)}).`
    throw new UpstreamBreak(gatewayError('upstream_broken', text))
  } finally {
    discard(response)
  }
}

async function readBounded(response: Dispatcher.ResponseData, idleTimeoutMs: number): Promise<string> {
  const parts: Uint8Array[] = []
  let size = 0
  try {
    for await (const chunk of watchBody(response, idleTimeoutMs)) {
      parts.push(chunk)
      size += chunk.byteLength
      if (size >= errorBodyMaxBytes) break
    }
  } catch {
    // The status is known; a partial reason is enough.
  }
  return Buffer.concat(parts).subarray(0, errorBodyMaxBytes).toString('utf8')
}

function contentTypeOf(response: Dispatcher.ResponseData): AnswerType | null {
  const type = headerText(response.headers['content-type'])?.split(';')[0]?.trim().toLowerCase()
  return type === 'text/event-stream' || type === 'application/json' ? type : null
}

export function describeFailure(cause: unknown, baseUrl: string, timeouts: ExchangeTimeouts): WireError {
  if (cause instanceof ProxyError) return gatewayError('upstream_unreachable', cause.message)
  const code = codeOf(cause)
  if (code === 'UND_ERR_HEADERS_TIMEOUT') {
    const seconds = timeouts.firstByteTimeoutMs / 1000
    return gatewayError('upstream_timeout', `The model server did not start to answer within ${seconds} s.`)
  }
  if (code === 'UND_ERR_HEADERS_OVERFLOW' || code.startsWith('HPE_')) {
    return gatewayError('upstream_broken', `The model server's answer is not valid HTTP (${code}).`)
  }
  const { origin } = new URL(baseUrl)
  if (/CERT|SIGNATURE|ISSUER/.test(code)) {
    const text =
      `The certificate of the model server ${origin} is not trusted (${code}). Add your own certificate authority to ` +
      'network.ca in the configuration.'
    return gatewayError('upstream_untrusted', text)
  }
  const text = `The model server ${origin} cannot be reached (${reasonOf(cause)}). Check the network and the address.`
  return gatewayError('upstream_unreachable', text)
}

function codeOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : ''
}

/** A short word for a network failure; never the full message, which may quote sent or received data. */
function reasonOf(cause: unknown): string {
  const code = codeOf(cause) || (cause instanceof Error ? codeOf(cause.cause) : '')
  return code || (cause instanceof Error ? cause.name : 'unknown')
}

export function headerText(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value
}

/** Discards an unread body; this closes the connection. */
function discard(response: Dispatcher.ResponseData): void {
  response.body.on('error', () => {})
  response.body.destroy()
}

/**
 * Converts a server's error to the guest's form, without the key and with what the user can do.
 * @param status the upstream's, 400 to 599
 * @param body its first bytes, as text
 * @param provider its key is removed from the message, and its settings are named
 */
export function readUpstreamError(
  status: number,
  body: string,
  provider: Pick<ModelProvider, 'key' | 'keySetting'>,
): WireError {
  const redaction = createKeyRedaction(provider.key?.reveal() ?? null)
  const read = readErrorBody(body)
  const message = read.message === '' ? 'the model server gave no reason' : read.message
  return {
    status,
    message: boundMessage(redaction.text(`HTTP ${status}: ${message}${remedyFor(status, body, provider)}`)),
    type: redaction.text(word(isUri(read.type) ? '' : read.type) ?? typeOfStatus(status)),
    code: redaction.text(word(read.status) ?? word(read.code) ?? String(status)),
  }
}

/** What to do about a model that its server does not have. @param gone ids also known to be gone */
export function modelRemedy({ model, baseUrl }: ModelProvider, gone: readonly string[]): string {
  const choose = `${model} is not available there; choose another (option model, CAISSON_MODEL)`
  if (baseUrl === null || !isNvidiaAddress(baseUrl)) return choose
  const others = suggestedModels.filter((id) => id !== model && !gone.includes(id)).slice(0, 3)
  return others.length === 0 ? choose : `${choose}, such as ${others.join(', ')}`
}

/** What to do about a model that does not accept tools. */
export function toolsRemedy(model: string): string {
  return `${model} takes no tools, and the agent works by tools; choose another model (option model, CAISSON_MODEL), or switch tools on at its server`
}

function typeOfStatus(status: number): string {
  if (status === 401 || status === 403) return 'authentication_error'
  if (status === 402) return 'payment_required'
  if (status === 404) return 'not_found_error'
  if (status === 410) return 'gone'
  if (status === 429) return 'rate_limit_error'
  return status >= 500 ? 'server_error' : 'invalid_request_error'
}

/** What the user can do; the guest's model can do nothing about these. */
function remedyFor(
  status: number,
  body: string,
  { key, keySetting = 'its setting' }: Pick<ModelProvider, 'key' | 'keySetting'>,
): string {
  if (status === 401 || status === 403) {
    return key === null ? ` (set its key in ${keySetting})` : ` (check the key in ${keySetting})`
  }
  if (status === 402) return ' (the account of the key has no credit left)'
  if (status === 404 && /^\s*404 page not found/i.test(body)) {
    return " (the address is wrong: it ends with /v1, once; set it in CAISSON_LLM_URL or in the provider's url)"
  }
  return ''
}

/** problem+json identifies its kind by a URI. */
function isUri(type: string): boolean {
  return /^(?:urn|about|https?):/i.test(type)
}

function word(text: string): string | undefined {
  return text === '' ? undefined : text.toWellFormed().slice(0, 100)
}
