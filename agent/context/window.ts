/**
 * Input and output limits of a model's requests: from the task, else from a table of known models, else a default. A
 * server's error can lower them.
 */

import type { Model } from '#runtime/llm/model.ts'
import type { ModelError } from '#specs/node/model-protocols/model-error.ts'

export const defaultWindowTokens = 128_000
const smallestWindowTokens = 1_024
/** Maximum reply tokens when the window is large; also the client's default. */
const replyMaxTokens = 16_384

/** Known windows; the first pattern that matches the id applies. From the providers' pages. */
const windows: readonly (readonly [id: RegExp, tokens: number])[] = [
  [/nemotron-4-340b/, 4_096],
  [/nemotron-3-ultra/, 1_000_000],
  [/nemotron-3-super|nemotron-3\.5-lightning/, 262_144],
  [/nemotron/, 131_072],
  [/gpt-4\.1/, 1_047_576],
  [/gpt-5/, 400_000],
  [/gpt-oss/, 131_072],
  [/gpt-4o|gpt-4-turbo/, 128_000],
  [/gpt-3\.5/, 16_385],
  [/(^|\/)o[134](-|$)/, 200_000],
  [/claude/, 200_000],
  [/gemini/, 1_048_576],
  [/llama-?3\.[1-9]|llama-?4/, 131_072],
  [/llama-?3/, 8_192],
  [/kimi-k2|qwen3-coder/, 262_144],
]

/** Windows that servers reported, kept for the run that received the report. */
const learned = new WeakMap<Model, number>()

export interface WindowOptions {
  /** Model id as in the task. */
  readonly id: string
  readonly model: Model
  /** Values from the user's configuration. */
  readonly contextTokens?: number | undefined
}

export interface ContextWindow {
  /** Input and output tokens together. */
  readonly tokens: number
  /** Maximum tokens of a request. */
  readonly inputTokens: number
  /** Maximum tokens of a reply; absent: the client's default. */
  readonly maxTokens?: number
}

export function windowOf({ id, model, contextTokens }: WindowOptions): ContextWindow {
  const known = windows.find(([pattern]) => pattern.test(id.toLowerCase()))
  const named = contextTokens ?? known?.[1] ?? defaultWindowTokens
  const tokens = Math.min(named, learned.get(model) ?? named)
  const reply = Math.min(replyMaxTokens, Math.floor(tokens / 4))
  return { tokens, inputTokens: tokens - reply, ...(reply < replyMaxTokens ? { maxTokens: reply } : {}) }
}

/**
 * Records that a request of `requested` tokens was too long. The new limit is the number the server named, else
 * slightly less than was requested. Returns false when the limit does not change, so a retry would fail too.
 */
export function learnWindow(options: WindowOptions, error: ModelError, requested: number): boolean {
  const before = windowOf(options).tokens
  const named = numbersIn(error.message).filter((tokens) => tokens < before)
  const guessed = Math.floor(Math.min(before, requested) * 0.75)
  const tokens = Math.max(smallestWindowTokens, named.length > 0 ? Math.min(...named) : guessed)
  if (tokens >= before) return false
  learned.set(options.model, tokens)
  return true
}

/** Numbers after such text as `maximum context length is`, or before `maximum`. */
function numbersIn(message: string): number[] {
  const text = message.replaceAll(/(?<=\d)[,_](?=\d{3})/g, '')
  const behind =
    /\b(?:maximum|max|limit|available|allowed|supports?|window|n_ctx)\b[^0-9]{0,60}(\d{3,8})(?!\d)/gi
  const before = /(\d{3,8})(?!\d)(?: tokens?)? (?:maximum|max|limit|allowed)/gi
  return [...text.matchAll(behind), ...text.matchAll(before)]
    .map(([, digits]) => Number(digits))
    .filter((tokens) => tokens >= 512)
}
