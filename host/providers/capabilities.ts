/**
 * What a model can do, as far as it matters for a request: a table for known ids, defaults for all others, and what its
 * server has since said. Catalogs change monthly: nothing is promised here, and whatever a server says wins.
 */
import { outputMaxTokens } from './chat-request.ts'

export interface ModelCapabilities {
  /** Whether it takes tools; an agent cannot work without. */
  readonly tools: boolean
  /** Whether one of its turns may hold several calls. */
  readonly parallelCalls: boolean
  /**
   * How its thinking is switched: `reasoning_effort` as OpenAI has it, `chat_template_kwargs.enable_thinking` (Nemotron 3,
   * Qwen 3), `/think` and `/no_think` in the system message (Nemotron 1.5 and Nano 2), or `detailed thinking on|off`
   * there (Nemotron 1).
   */
  readonly reasoning: 'effort' | 'enable_thinking' | 'slash' | 'detailed'
  /** Tokens in and out together; null when nobody said. */
  readonly contextTokens: number | null
  readonly maxOutputTokens: number
}

const unknown: ModelCapabilities = {
  tools: true,
  parallelCalls: true,
  reasoning: 'effort',
  contextTokens: null,
  maxOutputTokens: outputMaxTokens,
}

/**
 * By id, `*` for any characters at the end; the first that fits counts. From NVIDIA's model pages and public lists of
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

/** Models to name to a person whose model is gone: ids of NVIDIA's catalog that take tools, the default first. */
export const suggestedModels: readonly string[] = known
  .filter(([id]) => /^nvidia\/nemotron-3[^*]*$/.test(id))
  .map(([id]) => id)

/** @param said what the server has said of the model, which wins over the table */
export function abilitiesOf(model: string, said: Partial<ModelCapabilities> = {}): ModelCapabilities {
  const id = model.toLowerCase()
  const found = known.find(([pattern]) =>
    pattern.endsWith('*') ? id.startsWith(pattern.slice(0, -1)) : id === pattern,
  )
  return { ...unknown, ...found?.[1], ...said }
}
