/**
 * How much a model takes in and gives out in one request: what the task says, else what is known of the model, else what most
 * have; less, once the model's server has said so.
 */
import type { ModelError } from '#runtime/llm/errors.ts'
import type { Model } from '#runtime/llm/model.ts'

export const defaultWindowTokens = 128_000
const smallestWindowTokens = 1_024
/** What a reply may have where the window is large; the client's own default. */
const replyMaxTokens = 16_384

/** The first that fits the id; from the providers' pages. */
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

/** What servers said of their own windows, for as long as the run that asked them. */
const learned = new WeakMap<Model, number>()

export interface WindowOptions {
  /** As the task names it. */
  readonly id: string
  readonly model: Model
  /** What the user's configuration says. */
  readonly contextTokens?: number | undefined
}

export interface ContextWindow {
  /** In and out together. */
  readonly tokens: number
  /** What a request may hold. */
  readonly inputTokens: number
  /** What a reply may have; absent: what the client asks for by itself. */
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
 * Takes in that a request of `requested` tokens was too long; the number that the server names, or else somewhat less than was
 * requested. False when that is no news, and another request would fail alike.
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

/** Numbers behind such words as `maximum context length is`, or before `maximum`. */
function numbersIn(message: string): number[] {
  const text = message.replaceAll(/(?<=\d)[,_](?=\d{3})/g, '')
  const behind =
    /\b(?:maximum|max|limit|available|allowed|supports?|window|n_ctx)\b[^0-9]{0,60}(\d{3,8})(?!\d)/gi
  const before = /(\d{3,8})(?!\d)(?: tokens?)? (?:maximum|max|limit|allowed)/gi
  return [...text.matchAll(behind), ...text.matchAll(before)]
    .map(([, digits]) => Number(digits))
    .filter((tokens) => tokens >= 512)
}
