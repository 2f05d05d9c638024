/**
 * A model's capabilities: a table of known ids, defaults for others, and what its server has reported. Catalogs change
 * monthly, so the server's report always wins.
 */
import type { OptionalField } from './rejection.ts'

/** What one server reported about one model, mostly by rejecting requests. Absent: nothing. */
export interface ServerReport {
  /** Optional fields that it rejected. */
  readonly refusedFields?: readonly OptionalField[] | undefined
  readonly contextTokens?: number | undefined
  readonly maxOutputTokens?: number | undefined
  /** It accepts only one call per turn. */
  readonly singleCalls?: boolean | undefined
  /** It requires the model's reasoning with the calls that it led to. */
  readonly needsReasoning?: boolean | undefined
  /** It refused tools; a later answer overrides this. */
  readonly refusedTools?: boolean | undefined
  /** It reported that the model does not exist, for this key or at all. */
  readonly isGone?: boolean | undefined
}

export interface ModelCapabilities {
  /** Whether it accepts tools, which an agent requires. */
  readonly tools: boolean
  /** Whether one turn may contain several calls. */
  readonly parallelCalls: boolean
  /**
   * How its reasoning is controlled: `reasoning_effort` (OpenAI), `chat_template_kwargs.enable_thinking` (Nemotron 3,
   * Qwen 3), `/think` and `/no_think` in the system message (Nemotron 1.5 and Nano 2), or `detailed thinking on|off`
   * there (Nemotron 1).
   */
  readonly reasoning: 'effort' | 'enable_thinking' | 'slash' | 'detailed'
  /** Input and output tokens together; null if unknown. */
  readonly contextTokens: number | null
  /** Null if unknown. */
  readonly maxOutputTokens: number | null
}

const unknown: ModelCapabilities = {
  tools: true,
  parallelCalls: true,
  reasoning: 'effort',
  contextTokens: null,
  maxOutputTokens: null,
}

/**
 * By id; a trailing `*` matches any characters; the first match counts. From NVIDIA's model pages and public lists of
 * models as of 2026.
 */
const known: readonly (readonly [string, Partial<ModelCapabilities>])[] = [
  ['nvidia/nemotron-3-super-120b-a12b', { contextTokens: 262_144, reasoning: 'enable_thinking' }],
  ['nvidia/nemotron-3-ultra-550b-a55b', { contextTokens: 1_000_000, reasoning: 'enable_thinking' }],
  ['nvidia/nemotron-3.5-lightning-30b-a3b', { contextTokens: 262_144, reasoning: 'enable_thinking' }],
  ['nvidia/nemotron-3-nano-30b-a3b', { contextTokens: 131_072, reasoning: 'enable_thinking' }],
  ['nvidia/nemotron-nano-3-30b-a3b', { contextTokens: 131_072, reasoning: 'enable_thinking' }],
  ['nvidia/nemotron-3*', { reasoning: 'enable_thinking' }],
  ['nvidia/nvidia-nemotron-nano-9b-v2', { contextTokens: 131_072, reasoning: 'slash' }],
  ['nvidia/llama-3.3-nemotron-super-49b-v1.5', { contextTokens: 131_072, reasoning: 'slash' }],
  ['nvidia/llama-3.3-nemotron-super-49b-v1', { contextTokens: 131_072, reasoning: 'detailed' }],
  ['nvidia/llama-3.1-nemotron-*', { contextTokens: 131_072, reasoning: 'detailed' }],
  ['nvidia/nemotron-4-340b-instruct', { contextTokens: 4_096, tools: false }],
  // Their chat template fails on a turn with two calls.
  ['meta/llama-3.*', { contextTokens: 131_072, parallelCalls: false }],
  ['qwen/qwen3*', { reasoning: 'enable_thinking' }],
]

/** Suggestions when a model is gone: ids of NVIDIA's catalog that accept tools, the default first. */
export const suggestedModels: readonly string[] = known
  .filter(([id]) => /^nvidia\/nemotron-3[^*]*$/.test(id))
  .map(([id]) => id)

/** @param report overrides the table */
export function capabilitiesOf(model: string, report: ServerReport = {}): ModelCapabilities {
  const { contextTokens, maxOutputTokens, singleCalls } = report
  const id = model.toLowerCase()
  const found = known.find(([pattern]) =>
    pattern.endsWith('*') ? id.startsWith(pattern.slice(0, -1)) : id === pattern,
  )
  return {
    ...unknown,
    ...found?.[1],
    ...(contextTokens === undefined ? {} : { contextTokens }),
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
    ...(singleCalls === true ? { parallelCalls: false } : {}),
  }
}

/** Both reports; the later one replaces the fields that it has. */
export function mergeReports(before: ServerReport = {}, later: ServerReport): ServerReport {
  const fields = [...new Set([...(before.refusedFields ?? []), ...(later.refusedFields ?? [])])]
  return { ...before, ...later, ...(fields.length === 0 ? {} : { refusedFields: fields }) }
}
