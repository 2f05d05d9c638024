/** Selects the configured server for a model id: by its lists, a prefix, or the default. Pure. */
import { serverKindNames } from '#specs/node/model-protocols/server-kinds.ts'
import { capabilitiesOf } from '#specs/node/provider-quirks/capabilities.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { Config } from '../config/schema.ts'

/** Why no model server can be used. The message names the setting and what to do. */
export interface ProviderProblem {
  readonly code:
    | 'invalid_url'
    | 'insecure_url'
    | 'invalid_key'
    | 'missing_key'
    | 'invalid_model'
    | 'missing_model'
    | 'unknown_provider'
    | 'ambiguous_provider'
  readonly message: string
}

export function failure(
  code: ProviderProblem['code'],
  message: string,
): { readonly ok: false; readonly error: ProviderProblem } {
  return { ok: false, error: { code, message } }
}

/** What a model is used for; each has its own setting. */
export type ModelPurpose = 'chat' | 'embeddings'

export interface ServerChoice {
  /** A provider's name, or `offline`. */
  readonly name: string
  /** Id on the server. Absent: the server's default. */
  readonly model: string | undefined
}

/**
 * The longest matching pattern decides. `NAME/` before the id counts as the pattern `NAME/*` of the provider NAME and
 * is removed. Without a match, the default is used.
 * @param model none: the default's
 * @param hasNvidiaKey whether NVIDIA's API catalog works without configuration
 * @param purpose for the error message
 */
export function chooseServer(
  model: string | undefined,
  config: Config,
  hasNvidiaKey: boolean,
  purpose: ModelPurpose = 'chat',
): Result<ServerChoice, ProviderProblem> {
  if (model === undefined) return chooseDefault(undefined, config, hasNvidiaKey, purpose)
  const fits = Object.entries(config.providers).flatMap(([name, { models = [] }]) => {
    const pattern = longestMatch(models, model)
    return pattern === undefined ? [] : [{ name, length: pattern.length, model }]
  })
  const prefixed = Object.keys(config.providers)
    .filter((name) => model.startsWith(`${name}/`) && isPrefix(name, model))
    .map((name) => ({ name, length: name.length + '/*'.length, model: model.slice(name.length + 1) }))
  const longest = Math.max(0, ...[...fits, ...prefixed].map(({ length }) => length))
  const best = fits.filter(({ length }) => length === longest)
  if (best.length > 1) {
    const names = best.map(({ name }) => `providers.${name}.models`).join(' and ')
    return failure(
      'ambiguous_provider',
      `${names} in the configuration fit the model "${model}" equally well. Take it off one, or say which is meant: ${named(`${best[0]?.name}/${model}`, purpose)}.`,
    )
  }
  const [chosen] = [...best, ...prefixed.filter(({ length }) => length === longest)]
  if (chosen !== undefined) return { ok: true, value: { name: chosen.name, model: chosen.model } }
  return chooseDefault(model, config, hasNvidiaKey, purpose)
}

/** A kind whose address is known needs no section. */
function isKind(name: string): boolean {
  return name !== 'openai-compatible' && serverKindNames.some((kind) => kind === name)
}

function withoutPrefix(name: string, model: string | undefined): string | undefined {
  return model?.startsWith(`${name}/`) && isPrefix(name, model) ? model.slice(name.length + 1) : model
}

/** NVIDIA's ids start with `nvidia/` themselves: only a prefix before owner and name counts. */
function isPrefix(name: string, model: string): boolean {
  const rest = model.slice(name.length + 1)
  return rest !== '' && (name !== 'nvidia' || rest.includes('/'))
}

function chooseDefault(
  model: string | undefined,
  config: Config,
  hasNvidiaKey: boolean,
  purpose: ModelPurpose,
): Result<ServerChoice, ProviderProblem> {
  const { provider, providers } = config
  if (provider === 'offline') {
    if (model === undefined) return { ok: true, value: { name: provider, model } }
    const text = `The configuration's provider is "offline", and no provider lists the model "${model}". Say whose it is: ${named(`NAME/${model}`, purpose)}.`
    return failure('missing_model', text)
  }
  if (provider !== undefined && (Object.hasOwn(providers, provider) || isKind(provider))) {
    return { ok: true, value: { name: provider, model: withoutPrefix(provider, model) } }
  }
  if (provider !== undefined) {
    const text = `provider in the configuration names "${provider}", which is not below providers; add [providers.${provider}] with its url.`
    return failure('unknown_provider', text)
  }
  // Without a list of models it can only be meant as the default.
  const unlisted = Object.keys(providers).filter((name) => providers[name]?.models === undefined)
  const [only] = unlisted
  if (unlisted.length > 1) {
    const names = unlisted.join(', ')
    return failure(
      'ambiguous_provider',
      `Several providers of the configuration could be the default (${names}). Set provider = "${only}" or another, or give each its list of models.`,
    )
  }
  if (only !== undefined && (only !== 'nvidia' || hasNvidiaKey || providers.nvidia?.key !== undefined)) {
    return { ok: true, value: { name: only, model } }
  }
  if (hasNvidiaKey || providers.nvidia?.key !== undefined)
    return { ok: true, value: { name: 'nvidia', model } }
  if (model === undefined) return { ok: true, value: { name: 'offline', model } }
  return failure(
    'missing_model',
    purpose === 'chat' ? noServer(model, Object.keys(providers)) : noServerForVectors(model),
  )
}

function noServer(model: string, [one, ...others]: readonly string[]): string {
  if (one !== undefined)
    return (
      `No provider of the configuration lists the model "${model}". Add it to the models of one ` +
      `(${[one, ...others].join(', ')}), or put its name before the id: ${one}/${model}.`
    )
  return (
    `No model server is set for the model "${model}". Set NVIDIA_API_KEY, or CAISSON_LLM_URL and ` +
    'CAISSON_LLM_KEY, or list it below a provider of the configuration; or omit the model to use the offline model.'
  )
}

function noServerForVectors(model: string): string {
  return (
    `no server is set that makes vectors with "${model}". Add [providers.NAME] with its url and models = ["${model}"], ` +
    `or set NVIDIA_API_KEY if it is NVIDIA's; or ${withoutEmbeddings}.`
  )
}

/** What to do without an embedding model. */
export const withoutEmbeddings = 'remove [embeddings], and search_code uses words only'

/** How a person names a model. */
function named(model: string, purpose: ModelPurpose): string {
  return purpose === 'chat' ? `option model: ${model}` : `model = "${model}" below [embeddings]`
}

/** The longest pattern that matches the id: the id itself, or a prefix followed by `*`. */
export function longestMatch(patterns: readonly string[], id: string): string | undefined {
  return patterns
    .filter((pattern) => pattern === id || (pattern.endsWith('*') && id.startsWith(pattern.slice(0, -1))))
    .toSorted((a, b) => b.length - a.length || (a === id ? -1 : 1))[0]
}

/** The configured context window of a model in tokens. @param model id on the server */
export function contextTokensOf(config: Pick<Config, 'models'>, model: string): number | undefined {
  return knownOf(config, model)?.contextTokens
}

/** The configured number of images of a request that a model sees. @param model id on the server */
export function maxImagesOf(config: Pick<Config, 'models'>, model: string): number | undefined {
  return knownOf(config, model)?.maxImages
}

function knownOf({ models }: Pick<Config, 'models'>, model: string): Config['models'][string] | undefined {
  const pattern = longestMatch(Object.keys(models), model)
  return pattern === undefined ? undefined : models[pattern]
}

/** The window that each of the models has; undefined where nobody knows one of them. */
export function smallestContext(
  config: Config,
  models: readonly { readonly model: string }[],
): number | undefined {
  const [own, ...others] = models.map(({ model }) => contextTokensOf(config, model))
  if (others.length === 0) return own
  const known = models.map(
    ({ model }) => contextTokensOf(config, model) ?? capabilitiesOf(model).contextTokens,
  )
  return known.every((tokens) => tokens !== null) ? Math.min(...known) : own
}
