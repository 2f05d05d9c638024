/** What all protocols of models have in common: the parts of an answer, and how a decoder gives them. */
import { type ModelError, modelError } from './model-error.ts'

export interface TokenCount {
  readonly inputTokens: number
  readonly outputTokens: number
  readonly reasoningTokens: number
  /** Of the input: read from the provider's cache. Absent: not reported. */
  readonly cachedTokens?: number | undefined
  /** Of the input: written to the provider's cache. Absent: not reported. */
  readonly cacheWriteTokens?: number | undefined
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

/** One entry of `delta.tool_calls`; null for a missing field. */
export interface ToolCallFragment {
  readonly index: number | null
  readonly id: string | null
  readonly name: string | null
  readonly argumentsText: string
}

/** Interprets a protocol's values. One per answer, since it may hold state. */
export interface AnswerDecoder {
  /**
   * Appends the parts of one event's JSON, or of a complete answer's, to `parts`. Accepts any value; never throws.
   */
  readValue(value: unknown, parts: StreamPart[]): void
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

/** A token count; invalid values are 0, and so are those that no request has. */
export function readCount(value: unknown): number {
  return typeof value === 'number' && value > 0 && value <= 1e12 ? Math.floor(value) : 0
}

/** A field's text; other types are empty. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
