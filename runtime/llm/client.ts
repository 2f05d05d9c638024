/**
 * The model client: sends one request, yields its answer as typed parts, and folds them into a turn. Uses the
 * OpenAI-compatible protocol; knows no key (the gateway or a header adds it). Never throws for server errors.
 */
import type { AdaptableRequest, Adaptation } from '#specs/node/provider-quirks/adaptation.ts'
import type { Result } from '#specs/protocol/error.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import { readChunk, type StreamPart, type TokenCount } from './chunk.ts'
import { type ModelError, modelError } from './errors.ts'
import { type AnswerDecoder, type ExchangeOptions, exchange } from './exchange.ts'
import {
  type ChatMessage,
  type ToolCallRequest,
  type ToolSpec,
  toWireMessage,
  toWireTool,
} from './messages.ts'
import { ToolCallCollector, takeNamedCalls } from './tool-calls.ts'

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

/** A model's complete answer. */
export interface Turn {
  readonly text: string
  readonly reasoning: string
  /** Each has a name. */
  readonly toolCalls: readonly ToolCallRequest[]
  readonly usage: Usage
  /** `stop`, `tool_calls`, `length`, `content_filter` or the provider's own reason; `unknown` when it gave none. */
  readonly finishReason: string
  /** Provider data to send back with this answer; absent when there is none. */
  readonly providerState?: unknown
}

/** Maximum calls that the host accepts in one message. */
const toolCallsMaxCount = 128

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

/**
 * Folds the parts into a turn. Reasoning and calls inside its text stay there for `text-calls.ts`. `onPart` receives
 * text and reasoning as they arrive. Fails with the stream's error and discards partial output, which nothing has
 * acted on.
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
  let providerState: unknown
  for await (const parts of batches) {
    for (const part of parts) {
      onPart?.(part)
      if (part.type === 'text') text.push(part.text)
      else if (part.type === 'tool-call-delta') calls.add(part.fragment)
      else if (part.type === 'reasoning') reasoning.push(part.text)
      else if (part.type === 'usage') tokens = greater(tokens, part.usage)
      else if (part.type === 'finish') finishReason = part.reason
      else if (part.type === 'state') providerState = part.state
      else return { ok: false, error: part.error }
    }
    if (calls.count > toolCallsMaxCount) {
      const message = `more than ${toolCallsMaxCount} tool calls in one answer`
      return { ok: false, error: modelError('answer_too_large', message) }
    }
  }
  const said = text.join('')
  const toolCalls = takeNamedCalls(calls.finish(), { text: said, finishReason })
  if (toolCalls === null)
    return { ok: false, error: modelError('nameless_call', 'the answer calls a tool without its name') }
  return {
    ok: true,
    value: {
      text: said.toWellFormed(),
      reasoning: reasoning.join('').toWellFormed(),
      toolCalls,
      usage: { requests: 1, ...tokens },
      finishReason,
      ...(providerState === undefined ? {} : { providerState }),
    },
  }
}

function toWireRequest(request: ChatRequest): AdaptableRequest & { readonly stream: boolean } {
  const streamed = request.stream !== false
  const { toolChoice, responseFormat } = request
  return {
    model: request.model,
    messages: request.messages.map(toWireMessage),
    ...(request.tools.length > 0 ? { tools: request.tools.map(toWireTool) } : {}),
    ...(toolChoice === undefined ? {} : { tool_choice: toWireChoice(toolChoice) }),
    ...(responseFormat === undefined
      ? {}
      : { response_format: { type: 'json_schema', json_schema: responseFormat } }),
    [request.maxTokensField ?? 'max_tokens']: request.maxTokens,
    stream: streamed,
    ...(streamed ? { stream_options: { include_usage: true } } : {}),
    ...request.extra,
  }
}

function toWireChoice(choice: ToolCallChoice): NonNullable<AdaptableRequest['tool_choice']> {
  return typeof choice === 'string' ? choice : { type: 'function', function: choice }
}

function greater(a: TokenCount, b: TokenCount): TokenCount {
  return {
    inputTokens: Math.max(a.inputTokens, b.inputTokens),
    outputTokens: Math.max(a.outputTokens, b.outputTokens),
    reasoningTokens: Math.max(a.reasoningTokens, b.reasoningTokens),
  }
}
