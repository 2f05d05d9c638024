/**
 * The model's client: one request, its stream as typed parts, and the fold of the parts to a turn. Speaks the
 * OpenAI-compatible protocol; knows no key (the gateway adds it). Refuses answers beyond a bound of bytes, silence,
 * and streams that stop without saying that they are finished. Never throws for what a server does.
 */
import { type Dispatcher, request as sendRequest } from 'undici'
import type { Result } from '#specs/protocol/error.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import { partsOfChunk, type StreamPart, type TokenCount } from './chunk.ts'
import { errorFromResponse, type ModelError, modelError } from './errors.ts'
import {
  type ChatMessage,
  type ToolCallRequest,
  type ToolSpec,
  toWireMessage,
  toWireTool,
} from './messages.ts'
import { readError, readEvents } from './sse.ts'
import { ToolCallCollector } from './tool-calls.ts'

export interface ChatRequest {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  /** Left out of the request when empty. */
  readonly tools: readonly ToolSpec[]
  readonly maxTokens: number
}

export interface ClientOptions {
  /** Up to and without `/chat/completions`, such as `http://gateway/v1`. */
  readonly baseUrl: string
  readonly signal: AbortSignal
  /** undici's; absent: the global one. */
  readonly dispatcher?: Dispatcher
  /** Default 300 s: prompts of 100,000 tokens were seen to take two minutes. */
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
  /** The provider's word; `unknown` when it ended its stream without one. */
  readonly finishReason: string
}

const errorBodyMaxBytes = 64 * 1024
/** As many as the host lets through in one message. */
const toolCallsMaxCount = 128

/** The answer to `request` in parts, as they come. A part `error` is the last; the request is not repeated here. */
export async function* streamChat(request: ChatRequest, options: ClientOptions): AsyncGenerator<StreamPart> {
  // Own controller: leaving the generator early ends the request, and so the work at the other end.
  const controller = new AbortController()
  const signal = AbortSignal.any([options.signal, controller.signal])
  const firstEventTimeoutMs = options.firstEventTimeoutMs ?? 300_000
  try {
    const response = await sendRequest(`${options.baseUrl}/chat/completions`, {
      ...(options.dispatcher === undefined ? {} : { dispatcher: options.dispatcher }),
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
      body: JSON.stringify(toWireRequest(request)),
      signal,
      headersTimeout: firstEventTimeoutMs,
      bodyTimeout: 0,
    })
    const type = headerText(response.headers['content-type'])
    // A failed response emits its error also where nobody reads any more.
    response.body.on('error', () => undefined)
    if (response.statusCode !== 200) {
      const body = await readBounded(response.body, errorBodyMaxBytes)
      const retryAfter = headerText(response.headers['retry-after'])
      yield { type: 'error', error: errorFromResponse(response.statusCode, body ?? '', retryAfter) }
    } else if (/\bjson\b/i.test(type)) {
      yield* readWhole(await readBounded(response.body, options.maxBytes ?? defaultMaxBytes))
    } else if (/\bhtml\b/i.test(type)) {
      const text = `expected an event stream from the model, got ${type}; check the address of the model's server`
      yield { type: 'error', error: modelError('broken', text, false, 200) }
    } else yield* readStream(response.body, options, firstEventTimeoutMs)
  } catch (error) {
    yield { type: 'error', error: requestError(error, options.signal) }
  } finally {
    controller.abort()
  }
}

/**
 * The parts folded to a turn, each fragment seen once. `onPart` sees text and reasoning as they come.
 * Fails with the stream's error; what had come by then is lost, for nothing of it was acted on.
 */
export async function collectTurn(
  parts: AsyncIterable<StreamPart>,
  onPart?: (part: StreamPart) => void,
): Promise<Result<Turn, ModelError>> {
  const text: string[] = []
  const reasoning: string[] = []
  const calls = new ToolCallCollector()
  let tokens: TokenCount = noUsage
  let finishReason = 'unknown'
  for await (const part of parts) {
    onPart?.(part)
    if (part.type === 'error') return { ok: false, error: part.error }
    if (part.type === 'text') text.push(part.text)
    else if (part.type === 'reasoning') reasoning.push(part.text)
    else if (part.type === 'usage') tokens = greater(tokens, part.usage)
    else if (part.type === 'finish') finishReason = part.reason
    else calls.add(part.fragment)
    if (calls.count > toolCallsMaxCount) {
      return {
        ok: false,
        error: modelError('broken', `more than ${toolCallsMaxCount} tool calls in one answer`, false),
      }
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

const defaultMaxBytes = 16 * 1024 * 1024

function toWireRequest(request: ChatRequest): Record<string, unknown> {
  return {
    model: request.model,
    messages: request.messages.map(toWireMessage),
    ...(request.tools.length > 0 ? { tools: request.tools.map(toWireTool) } : {}),
    max_tokens: request.maxTokens,
    stream: true,
    stream_options: { include_usage: true },
  }
}

async function* readStream(
  body: AsyncIterable<Uint8Array>,
  options: ClientOptions,
  firstEventTimeoutMs: number,
): AsyncGenerator<StreamPart> {
  const limits = {
    firstEventTimeoutMs,
    idleTimeoutMs: options.idleTimeoutMs ?? 180_000,
    maxBytes: options.maxBytes ?? defaultMaxBytes,
  }
  let finished = false
  let said = false
  for await (const item of readEvents(body, limits, options.signal)) {
    if ('error' in item) return void (yield { type: 'error', error: item.error })
    if (item.data.trim() === '') continue
    if (item.data.trim() === '[DONE]') {
      finished = true
      break
    }
    const chunk = parseChunk(item.data)
    if (!chunk.ok) return void (yield { type: 'error', error: chunk.error })
    for (const part of partsOfChunk(chunk.value)) {
      if (part.type === 'finish') finished = true
      if (part.type !== 'usage') said = true
      yield part
      if (part.type === 'error') return
    }
  }
  if (!finished)
    yield { type: 'error', error: modelError('broken', 'the stream ended without a finish', true) }
  else if (!said) yield { type: 'error', error: modelError('broken', 'the model answered nothing', true) }
}

async function* readWhole(body: string | null): AsyncGenerator<StreamPart> {
  if (body === null) {
    return void (yield {
      type: 'error',
      error: modelError('too_large', 'the answer passed its bound', false),
    })
  }
  const chunk = parseChunk(body)
  if (!chunk.ok) return void (yield { type: 'error', error: chunk.error })
  const parts = partsOfChunk(chunk.value)
  if (parts.length === 0) {
    yield { type: 'error', error: modelError('broken', 'the JSON answer holds no completion', true, 200) }
  }
  yield* parts
}

function parseChunk(text: string): Result<unknown, ModelError> {
  try {
    return { ok: true, value: JSON.parse(text) }
  } catch {
    const sample = JSON.stringify(text.slice(0, 80))
    return { ok: false, error: modelError('broken', `expected JSON from the model, got ${sample}`, true) }
  }
}

/** The body as text; null when it is longer than the bound. */
async function readBounded(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string | null> {
  const parts: Uint8Array[] = []
  let total = 0
  for await (const part of body) {
    total += part.byteLength
    if (total > maxBytes) return null
    parts.push(part)
  }
  return new TextDecoder().decode(Buffer.concat(parts))
}

function requestError(error: unknown, signal: AbortSignal): ModelError {
  if (!signal.aborted && error instanceof Error && error.name === 'HeadersTimeoutError') {
    return modelError('timed_out', 'the model did not begin to answer in time', true)
  }
  return readError(error, signal)
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

function headerText(value: string | string[] | undefined): string {
  return typeof value === 'string' ? value : (value?.[0] ?? '')
}
