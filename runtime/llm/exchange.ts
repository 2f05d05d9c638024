/**
 * One request to a model's server and its answer in parts, whatever protocol it speaks: what an event means is a decoder's to
 * say. Follows no redirect. Refuses answers beyond a bound of bytes, silence, and streams that stop without saying that they
 * are finished. Never throws for what a server does.
 */
import type { Dispatcher } from 'undici'
import type { StreamPart } from './chunk.ts'
import { describePage, errorFromResponse, errorFromStream, isHtml } from './dialects.ts'
import { type ModelError, type ModelErrorCode, modelError } from './errors.ts'
import { parseExactly } from './json-tokens.ts'
import { type BodyLimits, readBody, readFailure, readHead, type SseEvent } from './sse.ts'

export interface ExchangeOptions {
  readonly signal: AbortSignal
  /** Beside those of JSON; a key stands here alone. */
  readonly headers?: Readonly<Record<string, string>>
  /** Takes out of a server's words what must not be shown, such as the key; default nothing. */
  readonly redact?: (text: string) => string
  /** undici's; absent: the global one. */
  readonly dispatcher?: Dispatcher
  /** Default 10 minutes: longer than the gateway waits for its turn at a server and for the server's first byte together. */
  readonly firstEventTimeoutMs?: number
  /** Default 180 s. */
  readonly idleTimeoutMs?: number
  /** Bytes of one answer, default 16 MiB. */
  readonly maxBytes?: number
}

export interface ExchangeRequest {
  readonly url: string
  readonly body: unknown
  /** Whether the answer is asked for as a stream. */
  readonly streamed: boolean
}

/** What the values of a protocol mean. One for every answer, where it has to remember. */
export interface AnswerDecoder {
  /** Adds the parts of one event's JSON, or of a whole answer's, to `parts`. Takes any value, and throws at none. */
  readValue(value: unknown, parts: StreamPart[]): void
}

const defaultMaxBytes = 16 * 1024 * 1024
const errorBodyMaxBytes = 64 * 1024
/** The words of an error are worth a shorter wait than an answer. */
const errorBodyTimeoutMs = 10_000
/** Why a request is ended whose answer was read, or given up. One for all: an error is dear to make, and this one is seen by nobody. */
const noLongerRead = new Error('the answer is no longer read')

/** The answer in parts, as many at a time as one read brought. A part `error` is the last; the request is not repeated. */
export async function* exchange(
  request: ExchangeRequest,
  decoder: AnswerDecoder,
  options: ExchangeOptions,
): AsyncGenerator<readonly StreamPart[]> {
  // Own controller: leaving the generator early ends the request, and so the work at the other end.
  const controller = new AbortController()
  const signal = AbortSignal.any([options.signal, controller.signal])
  const limits = limitsOf(options)
  try {
    // Half of what importing the library would cost, and of no use before the first request.
    const { request: sendRequest } = await import('undici')
    const response = await sendRequest(request.url, {
      ...(options.dispatcher === undefined ? {} : { dispatcher: options.dispatcher }),
      method: 'POST',
      headers: {
        ...options.headers,
        'content-type': 'application/json',
        accept: request.streamed ? 'text/event-stream' : 'application/json',
      },
      body: JSON.stringify(request.body),
      signal,
      headersTimeout: limits.firstEventTimeoutMs,
      bodyTimeout: 0,
    })
    // A failed response emits its error also where nobody reads any more.
    response.body.on('error', () => undefined)
    if (response.statusCode === 200) yield* readAnswer(response.body, limits, decoder, options)
    else yield [failed(await readRefusal(response, limits, options), options)]
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

/** Adds an event's parts; false when it was the last that makes sense. */
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
    // A list is how Google's server words an error.
    decoder.readValue(Array.isArray(value) ? value[0] : value, parts)
    if (parts.length === 0)
      parts.push(broken('not_a_model', `the JSON answer holds no completion: ${sample(text)}`))
  } else if (isHtml(text))
    parts.push(broken('not_a_model', `expected a model's answer, got ${describePage(text)}`))
  else parts.push(broken('truncated', `the JSON answer of the model is not whole: ${sample(text)}`))
}

async function readRefusal(
  response: Dispatcher.ResponseData,
  limits: BodyLimits,
  { redact = keep }: ExchangeOptions,
): Promise<ModelError> {
  const timeoutMs = Math.min(limits.idleTimeoutMs, errorBodyTimeoutMs)
  const text = await readHead(response.body, {
    firstEventTimeoutMs: timeoutMs,
    idleTimeoutMs: timeoutMs,
    maxBytes: errorBodyMaxBytes,
  })
  const { 'retry-after': retryAfter } = response.headers
  return errorFromResponse(
    response.statusCode,
    // Before it is cut: half a key is one too much.
    redact(text),
    (Array.isArray(retryAfter) ? retryAfter[0] : retryAfter) ?? null,
  )
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

/** Undefined for what is not JSON. Some servers send a call's arguments as an object: its numbers are not to be rounded. */
function parseJson(text: string): unknown {
  try {
    return parseExactly(text)
  } catch {
    return undefined
  }
}
