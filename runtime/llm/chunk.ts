/**
 * Parses a chunk of a chat completion, or a complete one, into typed parts. A field of an unexpected type counts as
 * absent.
 */
import { errorWithin } from '#specs/node/provider-quirks/provider-error.ts'
import { errorFromStream } from './answer-errors.ts'
import { type ModelError, modelError } from './errors.ts'
import { isRecord } from './json-schema.ts'
import type { ToolCallFragment } from './tool-calls.ts'

export interface TokenCount {
  readonly inputTokens: number
  readonly outputTokens: number
  readonly reasoningTokens: number
}

/** A part of a model's answer. `error` is always the last. */
export type StreamPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | { readonly type: 'tool-call-delta'; readonly fragment: ToolCallFragment }
  /** Counts so far: a later one replaces an earlier one. */
  | { readonly type: 'usage'; readonly usage: TokenCount }
  | { readonly type: 'finish'; readonly reason: string }
  /** Opaque provider data to send back unchanged with this answer. */
  | { readonly type: 'state'; readonly state: unknown }
  | { readonly type: 'error'; readonly error: ModelError }

/** Appends the parts of one decoded chunk to `parts`, in the order reasoning, text, calls, usage, finish. */
export function readChunk(chunk: unknown, parts: StreamPart[]): void {
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

/** Synonyms of the four finish reasons in use. */
const finishReasons: Readonly<Record<string, string>> = {
  max_tokens: 'length',
  max_output_tokens: 'length',
  model_length: 'length',
  model_context_window_exceeded: 'length',
  end_turn: 'stop',
  stop_sequence: 'stop',
  eos: 'stop',
  eos_token: 'stop',
  function_call: 'tool_calls',
  tool_call: 'tool_calls',
  tool_use: 'tool_calls',
  safety: 'content_filter',
  refusal: 'content_filter',
  recitation: 'content_filter',
  blocklist: 'content_filter',
  prohibited_content: 'content_filter',
  spii: 'content_filter',
}

/** Normalizes a server's finish reason. */
export function readFinish(word: string): StreamPart {
  const plain = word.toLowerCase()
  if (plain === 'error' || plain === 'abort') {
    const message = `the model's server ended its answer with the reason "${plain}"`
    return { type: 'error', error: modelError('server_error', message) }
  }
  return {
    type: 'finish',
    reason: Object.hasOwn(finishReasons, plain) ? (finishReasons[plain] ?? word) : plain,
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

/** A token count; invalid values are 0. */
export function readCount(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) && value > 0
    ? Math.min(Math.floor(value), 2 ** 40)
    : 0
}

/** A field's text; other types are empty. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
