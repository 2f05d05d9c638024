/**
 * One request to a model server and its answer in parts; a decoder implements the protocol. Follows no redirect.
 * Rejects answers over a size limit, timeouts, and streams without an end marker. Never throws for server errors.
 */
import type { Readable } from 'node:stream'
import type { Dispatcher } from 'undici'
import { parseExactly } from '#specs/node/model-protocols/json-tokens.ts'
import {
  errorFromResponse,
  errorFromStream,
  type ModelError,
  type ModelErrorCode,
  modelError,
} from '#specs/node/model-protocols/model-error.ts'
import type { AnswerDecoder, StreamPart, TokenCount } from '#specs/node/model-protocols/parts.ts'
import { describePage, isHtml } from '#specs/node/provider-quirks/provider-error.ts'
import type { RequestRejection } from '#specs/node/provider-quirks/rejection.ts'
import { type BodyLimits, readBody, readFailure, readHead, type SseEvent } from './sse.ts'

export type { AnswerDecoder, StreamPart, TokenCount }

/** Sends a POST request; resolves with the head of its answer. undici's `request` is one. */
export type SendRequest = (
  url: string,
  options: {
    readonly method: 'POST'
    readonly headers: Record<string, string>
    readonly body: string
    readonly signal: AbortSignal
    readonly dispatcher?: Dispatcher
    /** Both in milliseconds; 0: none. */
    readonly headersTimeout: number
    readonly bodyTimeout: number
  },
) => Promise<{
  readonly statusCode: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: Readable
}>

export interface ExchangeOptions {
  readonly signal: AbortSignal
  /** Headers besides those of JSON; only these contain a key. */
  readonly headers?: Readonly<Record<string, string>>
  /** Redacts secrets, such as the key, from server messages; default none. */
  readonly redact?: (text: string) => string
  /** An undici dispatcher; absent: the global one. */
  readonly dispatcher?: Dispatcher
  /** Replaces undici's. */
  readonly sendRequest?: SendRequest
  /** Default 10 minutes: more than the gateway's queue time plus its first-byte timeout. */
  readonly firstEventTimeoutMs?: number
  /** Default 180 s. */
  readonly idleTimeoutMs?: number
  /** Maximum bytes of one answer; default 16 MiB. */
  readonly maxBytes?: number
}

export interface ExchangeRequest {
  readonly url: string
  /** As JSON, or the value to convert. */
  readonly body: unknown
  /** Whether streaming is requested. */
  readonly streamed: boolean
  /** Reads from an error what a changed request would avoid. */
  readonly readRejection?: (status: number, text: string) => RequestRejection | null
}

const defaultMaxBytes = 16 * 1024 * 1024
const errorBodyMaxBytes = 64 * 1024
/** An error body deserves a shorter wait than an answer. */
const errorBodyTimeoutMs = 10_000
/**
 * Abort reason of a finished or abandoned request. Shared: errors are expensive to create, and nobody sees this one.
 */
const noLongerRead = new Error('the answer is no longer read')

/** The answer in parts, batched per read. A part `error` is the last; the request is not retried. */
export async function* exchange(
  request: ExchangeRequest,
  decoder: AnswerDecoder,
  options: ExchangeOptions,
): AsyncGenerator<readonly StreamPart[]> {
  // Own controller: leaving the generator early aborts the request and so the server's work.
  const controller = new AbortController()
  const signal = AbortSignal.any([options.signal, controller.signal])
  const limits = limitsOf(options)
  try {
    // Half of the library's import cost, and not needed before the first request.
    const sendRequest: SendRequest = options.sendRequest ?? (await import('undici')).request
    const response = await sendRequest(request.url, {
      ...(options.dispatcher === undefined ? {} : { dispatcher: options.dispatcher }),
      method: 'POST',
      headers: {
        ...options.headers,
        'content-type': 'application/json',
        accept: request.streamed ? 'text/event-stream' : 'application/json',
      },
      body: typeof request.body === 'string' ? request.body : JSON.stringify(request.body),
      signal,
      headersTimeout: limits.firstEventTimeoutMs,
      bodyTimeout: 0,
    })
    // A failed response emits its error even when nobody reads it any more.
    response.body.on('error', () => undefined)
    if (response.statusCode === 200) yield* readAnswer(response.body, limits, decoder, options)
    else yield [failed(await readError(response, limits, request, options), options)]
  } catch (error) {
    yield [failed(requestFailure(error, options.signal), options)]
  } finally {
    controller.abort(noLongerRead)
  }
}

function limitsOf(options: ExchangeOptions): BodyLimits {
  return {
    firstEventTimeoutMs: options.firstEventTimeoutMs ?? 600_000,
    idleTimeoutMs: options.idleTimeoutMs ?? 180_000,
    maxBytes: options.maxBytes ?? defaultMaxBytes,
  }
}

async function* readAnswer(
  body: AsyncIterable<Uint8Array>,
  limits: BodyLimits,
  decoder: AnswerDecoder,
  options: ExchangeOptions,
): AsyncGenerator<readonly StreamPart[]> {
  let finished = false
  let said = false
  for await (const item of readBody(body, limits, options.signal)) {
    if (item.type === 'error') return void (yield [failed(item.error, options)])
    const parts: StreamPart[] = []
    if (item.type === 'document') readDocument(item.text, decoder, parts)
    else for (const event of item.events) if (!readEvent(event, decoder, parts)) break
    const last = parts.at(-1)
    finished ||= item.type === 'document' || item.done || parts.some(({ type }) => type === 'finish')
    said ||= parts.some(({ type }) => type !== 'usage')
    if (last?.type === 'error') return void (yield parts.with(-1, failed(last.error, options)))
    if (last !== undefined) yield parts
  }
  if (!finished) yield [broken('truncated', 'the stream ended without a finish')]
  else if (!said) yield [broken('empty', 'the model answered nothing')]
}

/** Appends an event's parts; false when it was the last valid one. */
function readEvent({ name, data, ended }: SseEvent, decoder: AnswerDecoder, parts: StreamPart[]): boolean {
  if (data.trim() === '') return true
  const chunk = parseJson(data)
  if (name === 'error') {
    parts.push({ type: 'error', error: errorFromStream(chunk === undefined ? data : chunk) })
  } else if (chunk === undefined) {
    parts.push(broken(ended ? 'broken' : 'truncated', `expected JSON from the model, got ${sample(data)}`))
  } else decoder.readValue(chunk, parts)
  return parts.at(-1)?.type !== 'error'
}

function readDocument(text: string, decoder: AnswerDecoder, parts: StreamPart[]): void {
  const value = parseJson(text)
  if (value !== undefined) {
    // Google's server wraps an error in a list.
    decoder.readValue(Array.isArray(value) ? value[0] : value, parts)
    if (parts.length === 0)
      parts.push(broken('not_a_model', `the JSON answer holds no completion: ${sample(text)}`))
  } else if (isHtml(text))
    parts.push(broken('not_a_model', `expected a model's answer, got ${describePage(text)}`))
  else parts.push(broken('truncated', `the JSON answer of the model is not whole: ${sample(text)}`))
}

async function readError(
  response: Awaited<ReturnType<SendRequest>>,
  limits: BodyLimits,
  { readRejection }: ExchangeRequest,
  { redact = keep }: ExchangeOptions,
): Promise<ModelError> {
  const timeoutMs = Math.min(limits.idleTimeoutMs, errorBodyTimeoutMs)
  const text = await readHead(response.body, {
    firstEventTimeoutMs: timeoutMs,
    idleTimeoutMs: timeoutMs,
    maxBytes: errorBodyMaxBytes,
  })
  const { statusCode: status, headers } = response
  const { 'retry-after': retryAfter } = headers
  const header = (Array.isArray(retryAfter) ? retryAfter[0] : retryAfter) ?? null
  // Redact before truncating: half a key would remain otherwise.
  const error = errorFromResponse(status, redact(text), header)
  const rejection = readRejection?.(status, text) ?? null
  return rejection === null ? error : { ...error, rejection }
}

function requestFailure(error: unknown, signal: AbortSignal): ModelError {
  if (!signal.aborted && error instanceof Error && error.name === 'HeadersTimeoutError')
    return modelError('timed_out', 'the model did not begin to answer in time')
  return readFailure(error, signal, false)
}

function failed(error: ModelError, { redact = keep }: ExchangeOptions): StreamPart {
  return { type: 'error', error: { ...error, message: redact(error.message) } }
}

function keep(text: string): string {
  return text
}

function broken(code: ModelErrorCode, message: string): StreamPart {
  return { type: 'error', error: modelError(code, message) }
}

function sample(text: string): string {
  return JSON.stringify(text.trim().slice(0, 80))
}

/** Undefined for text that is not JSON. Numbers in call arguments sent as an object must not be rounded. */
function parseJson(text: string): unknown {
  try {
    return parseExactly(text)
  } catch {
    return undefined
  }
}
