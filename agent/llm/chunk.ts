/**
 * One chunk of a chat completion, or one whole completion, as typed parts. Every field is taken only in the form that
 * it should have; what is missing or of another type counts as absent.
 */
import { errorFromStream, type ModelError } from './errors.ts'
import type { ToolCallFragment } from './tool-calls.ts'

export interface TokenCount {
  readonly inputTokens: number
  readonly outputTokens: number
  readonly reasoningTokens: number
}

/** A piece of a model's answer. `error` is always the last. */
export type StreamPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | { readonly type: 'tool-call-delta'; readonly fragment: ToolCallFragment }
  /** Counts so far: a later one replaces an earlier one, they are never added. */
  | { readonly type: 'usage'; readonly usage: TokenCount }
  | { readonly type: 'finish'; readonly reason: string }
  | { readonly type: 'error'; readonly error: ModelError }

/** The parts of one decoded chunk, in the order text, calls, usage, finish. */
export function partsOfChunk(chunk: unknown): StreamPart[] {
  if (!isRecord(chunk)) return []
  const { choices } = chunk
  const isError = chunk.object === 'error' || (chunk.error !== undefined && chunk.error !== null)
  if (isError && !(Array.isArray(choices) && choices.length > 0)) {
    return [{ type: 'error', error: errorFromStream(chunk.error ?? chunk) }]
  }
  const parts: StreamPart[] = []
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined
  if (isRecord(choice)) {
    const delta = isRecord(choice.delta) ? choice.delta : choice.message
    if (isRecord(delta)) parts.push(...partsOfDelta(delta))
  }
  const usage = readUsage(chunk.usage)
  if (usage !== null) parts.push({ type: 'usage', usage })
  if (isRecord(choice) && typeof choice.finish_reason === 'string' && choice.finish_reason !== '') {
    parts.push({ type: 'finish', reason: choice.finish_reason })
  }
  return parts
}

function partsOfDelta(delta: Record<string, unknown>): StreamPart[] {
  const parts: StreamPart[] = []
  const reasoning = delta.reasoning_content ?? delta.reasoning
  if (typeof reasoning === 'string' && reasoning !== '') parts.push({ type: 'reasoning', text: reasoning })
  if (typeof delta.content === 'string' && delta.content !== '') {
    parts.push({ type: 'text', text: delta.content })
  }
  const calls = Array.isArray(delta.tool_calls) ? delta.tool_calls : []
  for (const call of calls) {
    if (isRecord(call)) parts.push({ type: 'tool-call-delta', fragment: readFragment(call) })
  }
  return parts
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

function readUsage(value: unknown): TokenCount | null {
  if (!isRecord(value)) return null
  const details = isRecord(value.completion_tokens_details) ? value.completion_tokens_details : {}
  return {
    inputTokens: readCount(value.prompt_tokens),
    outputTokens: readCount(value.completion_tokens),
    reasoningTokens: readCount(details.reasoning_tokens),
  }
}

function readCount(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) && value > 0
    ? Math.min(Math.floor(value), 2 ** 40)
    : 0
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
