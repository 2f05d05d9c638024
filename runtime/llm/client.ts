/**
 * The OpenAI-compatible protocol (chat completions): writes a request and reads its answer as typed parts. Knows no key
 * (the gateway or a header adds it); a field of an unexpected type counts as absent. Forms that servers differ about are
 * the work of `specs/node/provider-quirks/`.
 */
import { errorFromStream } from '#specs/node/model-protocols/model-error.ts'
import { readCount, readFinish, textOf } from '#specs/node/model-protocols/parts.ts'
import type { AdaptableRequest, Adaptation } from '#specs/node/provider-quirks/adaptation.ts'
import { errorWithin } from '#specs/node/provider-quirks/provider-error.ts'
import type {
  CompletionMessage,
  CompletionPart,
  CompletionRequest,
  CompletionToolCall,
} from '#specs/protocol/completion-request.ts'
import {
  type AnswerDecoder,
  type ExchangeOptions,
  exchange,
  type StreamPart,
  type TokenCount,
} from './exchange.ts'
import { isRecord } from './json-schema.ts'
import type { ChatMessage, ToolCallRequest, ToolSpec } from './messages.ts'
import type { ToolCallFragment } from './tool-calls.ts'

export interface ChatRequest {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  /** Omitted from the request when empty. */
  readonly tools: readonly ToolSpec[]
  readonly maxTokens: number
  /** Default true; false for a server that streams badly. */
  readonly stream?: boolean
  /** Adapts the request to the server; absent where the gateway does. */
  readonly adaptation?: Adaptation
  /** Absent: the model chooses. Only with tools. */
  readonly toolChoice?: ToolCallChoice
  /** Requests JSON of this schema, if the server supports it. */
  readonly responseFormat?: ResponseFormat
  /** How much the model reasons; absent: as it does by itself. */
  readonly effort?: CompletionRequest['reasoning_effort']
  /** Additional body fields of the server's API; must not repeat the fields above. */
  readonly extra?: Readonly<Record<string, unknown>>
  /** Name of the field that limits the answer; default `max_tokens`. */
  readonly maxTokensField?: 'max_tokens' | 'max_completion_tokens'
}

export type ToolCallChoice = 'none' | 'required' | { readonly name: string }

export interface ResponseFormat {
  /** 1 to 64 of A-Z a-z 0-9 _ - */
  readonly name: string
  readonly schema: Readonly<Record<string, unknown>>
}

export interface ClientOptions extends ExchangeOptions {
  /** Base URL without `/chat/completions`, such as `http://gateway/v1`. */
  readonly baseUrl: string
  /** Query string after the path, such as `?api-version=1`; default none. */
  readonly query?: string
}

/**
 * The answer to `request` in parts, batched per read. A part `error` is the last; the request is not retried here.
 */
export function streamChat(
  request: ChatRequest,
  options: ClientOptions,
): AsyncGenerator<readonly StreamPart[]> {
  const url = `${options.baseUrl}/chat/completions${options.query ?? ''}`
  const { adaptation } = request
  const plain = toWireRequest(request)
  const { body, streamed } = adaptation?.build(plain) ?? { body: plain, streamed: plain.stream }
  const readRejection = adaptation?.readRejection.bind(adaptation)
  return exchange(
    { url, body, streamed, ...(readRejection === undefined ? {} : { readRejection }) },
    chatDecoder,
    options,
  )
}

/** Every event is a chunk, and a complete answer is one. */
const chatDecoder: AnswerDecoder = { readValue: readChunk }

function toWireRequest(request: ChatRequest): AdaptableRequest & { readonly stream: boolean } {
  const streamed = request.stream !== false
  const { toolChoice, responseFormat, effort } = request
  return {
    model: request.model,
    messages: request.messages.map(toWireMessage),
    ...(request.tools.length > 0 ? { tools: request.tools.map(toWireTool) } : {}),
    ...(toolChoice === undefined ? {} : { tool_choice: toWireChoice(toolChoice) }),
    ...(responseFormat === undefined
      ? {}
      : { response_format: { type: 'json_schema', json_schema: responseFormat } }),
    [request.maxTokensField ?? 'max_tokens']: request.maxTokens,
    ...(effort === undefined ? {} : { reasoning_effort: effort }),
    stream: streamed,
    ...(streamed ? { stream_options: { include_usage: true } } : {}),
    ...request.extra,
  }
}

function toWireChoice(choice: ToolCallChoice): NonNullable<AdaptableRequest['tool_choice']> {
  return typeof choice === 'string' ? choice : { type: 'function', function: choice }
}

/** The message in wire form, its calls valid whatever the model said. */
export function toWireMessage(message: ChatMessage): CompletionMessage {
  switch (message.role) {
    case 'assistant': {
      const { content, toolCalls, reasoning } = message
      if (toolCalls.length === 0) return { role: 'assistant', content }
      const thought = reasoning === undefined ? {} : { reasoning_content: reasoning }
      return { role: 'assistant', content, ...thought, tool_calls: toolCalls.map(toWireCall) }
    }
    case 'tool':
      return { role: 'tool', tool_call_id: message.callId, content: message.content }
    case 'user':
      return { role: 'user', content: withImages(message.content, message.images) }
    default:
      return { role: message.role, content: message.content }
  }
}

function withImages(text: string, images: readonly string[] = []): string | CompletionPart[] {
  if (images.length === 0) return text
  const parts = images.map((url): CompletionPart => ({ type: 'image_url', image_url: { url } }))
  return text.trim() === '' ? parts : [{ type: 'text', text }, ...parts]
}

function toWireTool(tool: ToolSpec): NonNullable<CompletionRequest['tools']>[number] {
  return {
    type: 'function',
    function: { name: tool.name, description: tool.description, parameters: tool.parameters },
  }
}

/** Every turn sends the whole conversation; each call is converted once. */
const wireCalls = new WeakMap<ToolCallRequest, CompletionToolCall>()

function toWireCall(call: ToolCallRequest): CompletionToolCall {
  const known = wireCalls.get(call)
  if (known !== undefined) return known
  const made: CompletionToolCall = {
    id: call.id,
    type: 'function',
    function: {
      name: toWireName(call.name),
      // llama-server answers 500 to a history that it cannot parse.
      arguments: isJsonObject(call.argumentsText) ? call.argumentsText : '{}',
    },
  }
  wireCalls.set(call, made)
  return made
}

/** A name that every server accepts, also when the model used an invalid tool name. */
function toWireName(name: string): string {
  const plain = name
    .trim()
    .replaceAll(/[^A-Za-z0-9_-]/g, '_')
    .slice(0, 64)
  return plain === '' ? 'unknown' : plain
}

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
  } catch {
    return false
  }
}

/** Appends the parts of one decoded chunk to `parts`, in the order reasoning, text, calls, usage, finish. */
function readChunk(chunk: unknown, parts: StreamPart[]): void {
  if (!isRecord(chunk)) return
  const failure = errorWithin(chunk)
  if (failure !== undefined) return void parts.push({ type: 'error', error: errorFromStream(failure) })
  const choice: unknown = Array.isArray(chunk.choices) ? chunk.choices[0] : undefined
  if (isRecord(choice)) {
    const delta = isRecord(choice.delta) ? choice.delta : choice.message
    if (isRecord(delta)) readDelta(delta, parts)
  }
  const usage = [chunk.usage, isRecord(choice) ? choice.usage : undefined].find(isRecord)
  if (usage !== undefined) parts.push({ type: 'usage', usage: readUsage(usage) })
  if (isRecord(choice) && typeof choice.finish_reason === 'string' && choice.finish_reason !== '')
    parts.push(readFinish(choice.finish_reason))
}

function readDelta(delta: Record<string, unknown>, parts: StreamPart[]): void {
  // Some servers send the same reasoning under both names.
  const reasoning = textOf(delta.reasoning_content) || textOf(delta.reasoning)
  if (reasoning !== '') parts.push({ type: 'reasoning', text: reasoning })
  if (Array.isArray(delta.content)) for (const part of delta.content) readContentPart(part, parts)
  const text = textOf(delta.content) || textOf(delta.refusal)
  if (text !== '') parts.push({ type: 'text', text })
  if (!Array.isArray(delta.tool_calls)) return
  for (const call of delta.tool_calls)
    if (isRecord(call) && !isOfServer(call))
      parts.push({ type: 'tool-call-delta', fragment: readFragment(call) })
}

/** Content as a list: text, and the reasoning of Mistral's models, itself a list. */
function readContentPart(part: unknown, parts: StreamPart[]): void {
  if (!isRecord(part)) return
  if (textOf(part.text) !== '') parts.push({ type: 'text', text: textOf(part.text) })
  const thoughts = Array.isArray(part.thinking) ? part.thinking : [part.thinking]
  for (const thought of thoughts) {
    const text = isRecord(thought) ? textOf(thought.text) : textOf(thought)
    if (text !== '') parts.push({ type: 'reasoning', text })
  }
}

/** Whether an entry reports a tool that the server runs, which is not a call for us. */
function isOfServer({ type, function: body }: Record<string, unknown>): boolean {
  return typeof type === 'string' && type !== '' && type !== 'function' && !isRecord(body)
}

function readFragment(call: Record<string, unknown>): ToolCallFragment {
  const body = isRecord(call.function) ? call.function : {}
  const { arguments: args } = body
  return {
    index: typeof call.index === 'number' && Number.isInteger(call.index) ? call.index : null,
    id: typeof call.id === 'string' ? call.id : null,
    name: typeof body.name === 'string' ? body.name : null,
    // Some servers send the arguments as an object.
    argumentsText: typeof args === 'string' ? args : isRecord(args) ? JSON.stringify(args) : '',
  }
}

function readUsage(value: Record<string, unknown>): TokenCount {
  const details = isRecord(value.completion_tokens_details) ? value.completion_tokens_details : {}
  return {
    inputTokens: readCount(value.prompt_tokens),
    outputTokens: readCount(value.completion_tokens),
    reasoningTokens: readCount(details.reasoning_tokens),
  }
}
