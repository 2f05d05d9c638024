/**
 * What is known of models, by families of ids. Catalogs change monthly: each row says when it was looked up and where,
 * and what a server reports wins over it.
 */

import { imagesMaxCount } from '../../protocol/image.ts'

export interface ModelCapabilities {
  /** Whether it accepts tools, which an agent requires. */
  readonly tools: boolean
  /** Maximum images of a request that it sees, 0 for none; a note replaces each other image. */
  readonly maxImages: number
  /** Whether one turn may contain several calls. */
  readonly parallelCalls: boolean
  /**
   * How its reasoning is controlled: `reasoning_effort` (OpenAI), `chat_template_kwargs.enable_thinking` (Nemotron 3,
   * Qwen 3) or `.thinking` (DeepSeek, Kimi), `/think` and `/no_think` in the system message (Nemotron 1.5 and Nano 2), or
   * `detailed thinking on|off` there (Nemotron 1).
   */
  readonly reasoning: 'effort' | 'enable_thinking' | 'thinking' | 'slash' | 'detailed'
  /** Whether its chat template knows `low_effort` beside `enable_thinking`. */
  readonly lowEffort: boolean
  /** Whether it takes `reasoning_budget`, a limit of tokens for its reasoning. */
  readonly reasoningBudget: boolean
  /** Whether it answers with nothing beside tools unless `force_nonempty_content` is set. */
  readonly emptyAnswers: boolean
  /** Input and output tokens together; null if unknown. */
  readonly contextTokens: number | null
  /** Null if unknown. */
  readonly maxOutputTokens: number | null
}

export interface ModelFamily {
  /** Model ids in lower case; a trailing `*` matches any characters. */
  readonly ids: readonly string[]
  readonly capabilities: Partial<ModelCapabilities>
  /** Where this is from. */
  readonly source: string
  /** Year and month of the look. */
  readonly asOf: string
}

export const unknownModel: ModelCapabilities = {
  tools: true,
  maxImages: 0,
  parallelCalls: true,
  reasoning: 'effort',
  lowEffort: false,
  reasoningBudget: false,
  emptyAnswers: false,
  contextTokens: null,
  maxOutputTokens: null,
}

const sees: Partial<ModelCapabilities> = { maxImages: imagesMaxCount }
const nemotron3: Partial<ModelCapabilities> = {
  reasoning: 'enable_thinking',
  reasoningBudget: true,
  emptyAnswers: true,
}
const vlmDocs = 'docs.nvidia.com/nim/vision-language-models'
const cards = 'model pages of build.nvidia.com and docs.api.nvidia.com'

/** The first family that fits counts. Ids of NVIDIA's catalog that accept tools come first, the default before all. */
export const modelFamilies: readonly ModelFamily[] = [
  {
    ids: ['nvidia/nemotron-3-super-120b-a12b', 'nvidia/nemotron-3-super*'],
    capabilities: { ...nemotron3, contextTokens: 262_144, lowEffort: true },
    source: `${cards}; lmstudio.ai/nvidia/nemotron-3-super`,
    asOf: '2026-11',
  },
  {
    ids: ['nvidia/nemotron-3.5-super-vl*'],
    capabilities: { ...nemotron3, ...sees, contextTokens: 262_144, lowEffort: true },
    source: 'docs.venice.ai: 262,144 of its 1 M tokens of context',
    asOf: '2026-11',
  },
  {
    ids: ['nvidia/nemotron-3.5-lightning-30b-a3b', 'nvidia/nemotron-3.5-lightning*'],
    capabilities: { ...nemotron3, contextTokens: 262_144 },
    source: 'models.dev, nvidia',
    asOf: '2026-08',
  },
  {
    ids: ['nvidia/nemotron-3-ultra-550b-a55b', 'nvidia/nemotron-3-ultra*'],
    capabilities: { ...nemotron3, contextTokens: 1_000_000, maxOutputTokens: 65_536 },
    source: 'models.dev, nvidia; its free endpoint is deprecated',
    asOf: '2026-10',
  },
  {
    ids: ['nvidia/nemotron-3-nano-omni*'],
    capabilities: { ...nemotron3, ...sees, maxOutputTokens: 65_536 },
    source: cards,
    asOf: '2026-11',
  },
  {
    ids: ['nvidia/nemotron-3-nano-30b-a3b', 'nvidia/nemotron-nano-3-30b-a3b'],
    capabilities: { ...nemotron3, contextTokens: 131_072 },
    source: cards,
    asOf: '2026-11',
  },
  { ids: ['nvidia/nemotron-3*'], capabilities: nemotron3, source: cards, asOf: '2026-11' },
  {
    ids: ['nvidia/nvidia-nemotron-nano-9b-v2'],
    capabilities: { contextTokens: 131_072, reasoning: 'slash', emptyAnswers: true },
    source: cards,
    asOf: '2026-11',
  },
  {
    ids: ['nvidia/llama-3.3-nemotron-super-49b-v1.5'],
    capabilities: { contextTokens: 131_072, reasoning: 'slash', emptyAnswers: true },
    source: `${cards}; gone from NVIDIA's API since 2026-08-26`,
    asOf: '2026-11',
  },
  {
    ids: ['nvidia/llama-3.3-nemotron-super-49b-v1', 'nvidia/llama-3.1-nemotron-*'],
    capabilities: { contextTokens: 131_072, reasoning: 'detailed', emptyAnswers: true },
    source: cards,
    asOf: '2026-11',
  },
  {
    ids: ['nvidia/nemotron-4-340b-instruct'],
    capabilities: { contextTokens: 4_096, tools: false },
    source: cards,
    asOf: '2026-11',
  },
  {
    ids: ['meta/llama-3.2-11b-vision*', 'meta/llama-3.2-90b-vision*'],
    capabilities: { contextTokens: 131_072, parallelCalls: false, maxImages: 1 },
    source: `chat template fails on a turn with two calls; ${vlmDocs}, support matrix: one image`,
    asOf: '2026-11',
  },
  {
    ids: ['meta/llama-4-*', 'nvidia/cosmos-reason*', 'nvidia/nemotron-nano-12b-v2-vl*'],
    capabilities: sees,
    source: vlmDocs,
    asOf: '2026-11',
  },
  {
    ids: ['meta/llama-3.*'],
    capabilities: { contextTokens: 131_072, parallelCalls: false },
    source: 'its chat template fails on a turn with two calls',
    asOf: '2026-11',
  },
  {
    ids: ['qwen/qwen3-vl*', 'qwen/qwen3.5*', 'qwen/qwen3.6*'],
    capabilities: { ...sees, reasoning: 'enable_thinking' },
    source: `chat template of Qwen 3; card of Qwen3-VL-235B-A22B-Instruct; ${vlmDocs}`,
    asOf: '2026-11',
  },
  {
    ids: ['qwen/qwen2.5-vl*', 'qwen2.5vl*', 'qwen2.5-vl*', 'qwen3-vl*'],
    capabilities: sees,
    source: 'cards of Qwen2.5-VL-3B-Instruct and Qwen3-VL-235B-A22B-Instruct',
    asOf: '2026-11',
  },
  {
    ids: ['llama3.2-vision*'],
    capabilities: { maxImages: 1 },
    source: `ollama.com/blog/llama3.2-vision; ${vlmDocs}, support matrix: one image`,
    asOf: '2026-11',
  },
  {
    ids: ['gpt-4o', 'gpt-4o-2*', 'gpt-4o-mini', 'gpt-4o-mini-2*', 'gpt-4.1*', 'gpt-5*'].flatMap((id) => [
      id,
      `openai/${id}`,
    ]),
    capabilities: sees,
    source: 'developers.openai.com/api/docs/models; learn.microsoft.com, Azure OpenAI models',
    asOf: '2026-11',
  },
  {
    ids: ['claude-3*', 'claude-opus-*', 'claude-sonnet-*', 'claude-haiku-*'].flatMap((id) => [
      id,
      `anthropic/${id}`,
    ]),
    capabilities: sees,
    source: 'docs.anthropic.com/en/docs/vision: all of Claude 3 and 4',
    asOf: '2026-11',
  },
  {
    ids: ['gemini-*', 'google/gemini-*'],
    capabilities: sees,
    source: 'docs.cloud.google.com/vertex-ai, image understanding; GIF is not in its list',
    asOf: '2026-11',
  },
  {
    ids: ['qwen/qwen3*'],
    capabilities: { reasoning: 'enable_thinking' },
    source: 'chat template of Qwen 3',
    asOf: '2026-11',
  },
  {
    ids: ['moonshotai/kimi-k2.5*', 'moonshotai/kimi-k2.6*'],
    capabilities: { ...sees, reasoning: 'thinking' },
    source: `NVIDIA/NemoClaw, nemotron-inference-fix.js; ${vlmDocs}`,
    asOf: '2026-11',
  },
  {
    ids: ['deepseek-ai/deepseek-v*', 'moonshotai/kimi-k2*'],
    capabilities: { reasoning: 'thinking' },
    source: 'NVIDIA/NemoClaw, nemotron-inference-fix.js',
    asOf: '2026-11',
  },
]

export function familyOf(model: string): ModelFamily | undefined {
  const id = model.toLowerCase()
  return modelFamilies.find(({ ids }) =>
    ids.some((pattern) => (pattern.endsWith('*') ? id.startsWith(pattern.slice(0, -1)) : id === pattern)),
  )
}

/** Suggestions when a model is gone: ids of NVIDIA's catalog that accept tools, the default first. */
export const suggestedModels: readonly string[] = modelFamilies
  .map(({ ids: [id = ''] }) => id)
  .filter((id) => /^nvidia\/nemotron-3[^*]*$/.test(id))
