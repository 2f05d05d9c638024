/**
 * The model's client: one request, its answer as typed parts, and the fold of the parts to a turn. Speaks the
 * OpenAI-compatible protocol; knows no key (the gateway adds it). Refuses answers beyond a bound of bytes, silence,
 * and streams that stop without saying that they are finished. Never throws for what a server does.
 */
import { type Dispatcher, request as sendRequest } from 'undici'
import type { Result } from '#specs/protocol/error.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import { readChunk, type StreamPart, type TokenCount } from './chunk.ts'
import { describePage, errorFromResponse, errorFromStream, isHtml } from './dialects.ts'
import { type ModelError, type ModelErrorCode, modelError } from './errors.ts'
import {
  type ChatMessage,
  type ToolCallRequest,
  type ToolSpec,
  toWireMessage,
  toWireTool,
} from './messages.ts'
import { type BodyLimits, readBody, readFailure, readHead, type SseEvent } from './sse.ts'
import { ToolCallCollector } from './tool-calls.ts'

export interface ChatRequest {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  /** Left out of the request when empty. */
  readonly tools: readonly ToolSpec[]
  readonly maxTokens: number
  /** Default true; a server that streams badly is asked for its answer in one piece. */
  readonly stream?: boolean
  /** Whether the model gets back what it thought before its calls. */
  readonly echoReasoning?: boolean
  /** Absent: the model chooses. Only with tools. */
  readonly toolChoice?: ToolChoice
  /** The answer as JSON of this schema, where the server can. */
  readonly responseFormat?: ResponseFormat
}

export type ToolChoice = 'none' | 'required' | { readonly name: string }

export interface ResponseFormat {
  /** 1 to 64 of A-Z a-z 0-9 _ - */
  readonly name: string
  readonly schema: Readonly<Record<string, unknown>>
}

export interface ClientOptions {
  /** Up to and without `/chat/completions`, such as `http://gateway/v1`. */
  readonly baseUrl: string
  readonly signal: AbortSignal
  /** undici's; absent: the global one. */
  readonly dispatcher?: Dispatcher
  /** Default 10 minutes: longer than the gateway waits for its turn at a server and for the server's first byte together. */
  readonly firstEventTimeoutMs?: number
  /** Default 180 s. */
  readonly idleTimeoutMs?: number
  /** Bytes of one answer, default 16 MiB. */
  readonly maxBytes?: number
}

/** A model's whole answer. */
export interface Turn {
  readonly text: string
  readonly reasoning: string
  readonly toolCalls: readonly ToolCallRequest[]
  readonly usage: Usage
  /** `stop`, `tool_calls`, `length`, `content_filter` or the provider's word; `unknown` when it gave none. */
  readonly finishReason: string
}

const defaultMaxBytes = 16 * 1024 * 1024
const errorBodyMaxBytes = 64 * 1024
/** The words of an error are worth a shorter wait than an answer. */
const errorBodyTimeoutMs = 10_000
/** As many as the host lets through in one message. */
const toolCallsMaxCount = 128

/**
 * The answer to `request` in parts, as many at a time as one read brought. A part `error` is the last; the request is not
 * repeated here.
 */
export async function* streamChat(
  request: ChatRequest,
  options: ClientOptions,
): AsyncGenerator<readonly StreamPart[]> {
  // Own controller: leaving the generator early ends the request, and so the work at the other end.
  const controller = new AbortController()
  const signal = AbortSignal.any([options.signal, controller.signal])
  const limits = limitsOf(options)
  try {
    const response = await sendRequest(`${options.baseUrl}/chat/completions`, {
      ...(options.dispatcher === undefined ? {} : { dispatcher: options.dispatcher }),
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: request.stream === false ? 'application/json' : 'text/event-stream',
      },
      body: JSON.stringify(toWireRequest(request)),
      signal,
      headersTimeout: limits.firstEventTimeoutMs,
      bodyTimeout: 0,
    })
    // A failed response emits its error also where nobody reads any more.
    response.body.on('error', () => undefined)
    if (response.statusCode === 200) yield* readAnswer(response.body, limits, options.signal)
    else yield [{ type: 'error', error: await readRefusal(response, limits) }]
  } catch (error) {
    yield [{ type: 'error', error: requestFailure(error, options.signal) }]
  } finally {
    controller.abort()
  }
}

/**
 * The parts folded to a turn, each fragment seen once. `onPart` sees text and reasoning as they come.
 * Fails with the stream's error; what had come by then is lost, for nothing of it was acted on.
 */
export async function collectTurn(
  batches: AsyncIterable<readonly StreamPart[]>,
  onPart?: (part: StreamPart) => void,
): Promise<Result<Turn, ModelError>> {
  const text: string[] = []
  const reasoning: string[] = []
  const calls = new ToolCallCollector()
  let tokens: TokenCount = noUsage
  let finishReason = 'unknown'
  for await (const parts of batches) {
    for (const part of parts) {
      onPart?.(part)
      if (part.type === 'text') text.push(part.text)
      else if (part.type === 'tool-call-delta') calls.add(part.fragment)
      else if (part.type === 'reasoning') reasoning.push(part.text)
      else if (part.type === 'usage') tokens = greater(tokens, part.usage)
      else if (part.type === 'finish') finishReason = part.reason
      else return { ok: false, error: part.error }
    }
    if (calls.count > toolCallsMaxCount) {
      const message = `more than ${toolCallsMaxCount} tool calls in one answer`
      return { ok: false, error: modelError('answer_too_large', message) }
    }
  }
  const spoken = splitThinking(text.join(''))
  return {
    ok: true,
    value: {
      text: spoken.text.toWellFormed(),
      reasoning: (reasoning.join('') + spoken.thinking).toWellFormed(),
      toolCalls: calls.finish(),
      usage: { requests: 1, ...tokens },
      finishReason,
    },
  }
}

function limitsOf(options: ClientOptions): BodyLimits {
  return {
    firstEventTimeoutMs: options.firstEventTimeoutMs ?? 600_000,
    idleTimeoutMs: options.idleTimeoutMs ?? 180_000,
    maxBytes: options.maxBytes ?? defaultMaxBytes,
  }
}

function toWireRequest(request: ChatRequest): Record<string, unknown> {
  const streamed = request.stream !== false
  const { toolChoice, responseFormat } = request
  return {
    model: request.model,
    messages: request.messages.map((message) => toWireMessage(message, request.echoReasoning)),
    ...(request.tools.length > 0 ? { tools: request.tools.map(toWireTool) } : {}),
    ...(toolChoice === undefined ? {} : { tool_choice: toWireChoice(toolChoice) }),
    ...(responseFormat === undefined
      ? {}
      : { response_format: { type: 'json_schema', json_schema: responseFormat } }),
    max_tokens: request.maxTokens,
    stream: streamed,
    ...(streamed ? { stream_options: { include_usage: true } } : {}),
  }
}

function toWireChoice(choice: ToolChoice): unknown {
  return typeof choice === 'string' ? choice : { type: 'function', function: choice }
}

async function* readAnswer(
  body: AsyncIterable<Uint8Array>,
  limits: BodyLimits,
  signal: AbortSignal,
): AsyncGenerator<readonly StreamPart[]> {
  let finished = false
  let said = false
  for await (const item of readBody(body, limits, signal)) {
    if (item.type === 'error') return void (yield [{ type: 'error', error: item.error }])
    const parts: StreamPart[] = []
    if (item.type === 'document') readDocument(item.text, parts)
    else for (const event of item.events) if (!readEvent(event, parts)) break
    const last = parts.at(-1)
    finished ||= item.type === 'document' || item.done || parts.some(({ type }) => type === 'finish')
    said ||= parts.some(({ type }) => type !== 'usage')
    if (last !== undefined) yield parts
    if (last?.type === 'error') return
  }
  if (!finished) yield [broken('truncated', 'the stream ended without a finish')]
  else if (!said) yield [broken('empty', 'the model answered nothing')]
}

/** Adds an event's parts; false when it was the last that makes sense. */
function readEvent({ name, data, ended }: SseEvent, parts: StreamPart[]): boolean {
  if (data.trim() === '') return true
  const chunk = parseJson(data)
  if (name === 'error') {
    parts.push({ type: 'error', error: errorFromStream(chunk === undefined ? data : chunk) })
  } else if (chunk === undefined) {
    parts.push(broken(ended ? 'broken' : 'truncated', `expected JSON from the model, got ${sample(data)}`))
  } else readChunk(chunk, parts)
  return parts.at(-1)?.type !== 'error'
}

function readDocument(text: string, parts: StreamPart[]): void {
  const value = parseJson(text)
  if (value !== undefined) {
    // A list is how Google's server words an error.
    readChunk(Array.isArray(value) ? value[0] : value, parts)
    if (parts.length === 0)
      parts.push(broken('not_a_model', `the JSON answer holds no completion: ${sample(text)}`))
  } else if (isHtml(text))
    parts.push(broken('not_a_model', `expected a model's answer, got ${describePage(text)}`))
  else parts.push(broken('truncated', `the JSON answer of the model is not whole: ${sample(text)}`))
}

async function readRefusal(response: Dispatcher.ResponseData, limits: BodyLimits): Promise<ModelError> {
  const timeoutMs = Math.min(limits.idleTimeoutMs, errorBodyTimeoutMs)
  const text = await readHead(response.body, {
    firstEventTimeoutMs: timeoutMs,
    idleTimeoutMs: timeoutMs,
    maxBytes: errorBodyMaxBytes,
  })
  const { 'retry-after': retryAfter } = response.headers
  return errorFromResponse(
    response.statusCode,
    text,
    (Array.isArray(retryAfter) ? retryAfter[0] : retryAfter) ?? null,
  )
}

function requestFailure(error: unknown, signal: AbortSignal): ModelError {
  if (!signal.aborted && error instanceof Error && error.name === 'HeadersTimeoutError')
    return modelError('timed_out', 'the model did not begin to answer in time')
  return readFailure(error, signal, false)
}

function broken(code: ModelErrorCode, message: string): StreamPart {
  return { type: 'error', error: modelError(code, message) }
}

function sample(text: string): string {
  return JSON.stringify(text.trim().slice(0, 80))
}

/** Undefined for what is not JSON. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Some models think aloud at the head of their text. */
function splitThinking(text: string): { text: string; thinking: string } {
  const found = /^\s*<think>([\s\S]*?)<\/think>\s*/.exec(text)
  return found === null
    ? { text, thinking: '' }
    : { text: text.slice(found[0].length), thinking: found[1] ?? '' }
}

function greater(a: TokenCount, b: TokenCount): TokenCount {
  return {
    inputTokens: Math.max(a.inputTokens, b.inputTokens),
    outputTokens: Math.max(a.outputTokens, b.outputTokens),
    reasoningTokens: Math.max(a.reasoningTokens, b.reasoningTokens),
  }
}
