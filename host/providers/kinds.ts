/**
 * Which kind of server a configured or known name is, where it is, and which models it has by their ids. Reads the
 * environment variables that other programs use, too; a key alone chooses nothing.
 */
import {
  type ServerKindName,
  serverKindNames,
  serverKinds,
} from '#specs/node/model-protocols/server-kinds.ts'
import { suggestedModels } from '#specs/node/provider-quirks/model-families.ts'
import type { ProviderSettings } from '../config/schema.ts'
import { longestMatch } from './model-choice.ts'

type Env = Readonly<Record<string, string | undefined>>

/** Kinds that are providers without a section of the configuration, in the order of their variables. */
export const namedKinds = ['openai', 'anthropic', 'google', 'azure', 'xai', 'ollama'] as const
export type NamedKind = (typeof namedKinds)[number]

/** Ids of each kind's own models; others have ids of models with open weights, which any server may have. */
const ownModels: Readonly<Record<NamedKind, readonly string[]>> = {
  openai: ['gpt-3.5*', 'gpt-4*', 'gpt-5*', 'gpt-6*', 'chatgpt-*', 'codex-*', 'o1*', 'o3*', 'o4*'],
  anthropic: ['claude-*'],
  google: ['gemini-*'],
  azure: [],
  xai: ['grok-*'],
  ollama: [],
}

/** The models that are used where nobody names one, the first that the server lists. Looked up at models.dev in 2026-10. */
const preferred: Readonly<Partial<Record<ServerKindName, readonly string[]>>> = {
  openai: ['gpt-5.6', 'gpt-5.5', 'gpt-5.4', 'gpt-5.2', 'gpt-5.1', 'gpt-5'],
  anthropic: ['claude-sonnet-5-5', 'claude-sonnet-5', 'claude-sonnet-4-6', 'claude-sonnet-4-5'],
  google: ['gemini-3.8-flash', 'gemini-3.7-flash', 'gemini-3.5-flash', 'gemini-2.5-pro', 'gemini-2.5-flash'],
  xai: ['grok-4.7', 'grok-4.6', 'grok-4.5', 'grok-4'],
}

/** Servers of other kinds may have any model. */
export function preferredModels(kind: ServerKindName): readonly string[] {
  return preferred[kind] ?? suggestedModels
}

/** Variables that name a model, and so its server. */
export const modelVariables: Readonly<Record<NamedKind, string>> = {
  openai: 'OPENAI_MODEL',
  anthropic: 'ANTHROPIC_MODEL',
  google: 'GEMINI_MODEL',
  azure: 'AZURE_OPENAI_DEPLOYMENT',
  xai: 'XAI_MODEL',
  ollama: 'OLLAMA_MODEL',
}

export function isNamedKind(name: string): name is NamedKind {
  return namedKinds.some((kind) => kind === name)
}

/** @param name of the provider */
export function kindOf(name: string, settings: ProviderSettings | undefined): ServerKindName {
  if (settings?.kind !== undefined) return settings.kind
  const byName = serverKindNames.find((kind) => kind === name)
  return byName !== undefined && (settings?.url === undefined || name === 'nvidia')
    ? byName
    : 'openai-compatible'
}

/** The first of these variables that is set, and its value. */
export function findVariable(
  env: Env,
  names: readonly string[] = [],
): { readonly name: string; readonly value: string } | undefined {
  for (const name of names) {
    const value = env[name]?.trim()
    if (value !== undefined && value !== '') return { name, value }
  }
  return undefined
}

/** The variable with the key of a kind, where it is set. */
export function keyVariable(kind: ServerKindName, env: Env): string | undefined {
  return findVariable(env, serverKinds[kind].variables.apiKey)?.name
}

/** The variable with the address of a kind, where it is set. */
export function addressVariable(kind: NamedKind, env: Env): string | undefined {
  const { baseUrl = [], resourceName = [] } = serverKinds[kind].variables
  const names = [...baseUrl, ...resourceName, ...(kind === 'ollama' ? ['OLLAMA_HOST'] : [])]
  return findVariable(env, names)?.name
}

/** The address of a kind and the setting that it is from; null where it has none. */
export function addressOf(
  kind: ServerKindName,
  env: Env,
): { readonly url: string; readonly setting: string } | null {
  const { baseUrl, variables } = serverKinds[kind]
  const given = findVariable(env, variables.baseUrl)
  if (given !== undefined) return { url: given.value, setting: given.name }
  if (kind === 'azure') {
    const resource = findVariable(env, variables.resourceName)
    const url = resource && `https://${encodeURIComponent(resource.value)}.openai.azure.com`
    return resource === undefined || url === undefined ? null : { url, setting: resource.name }
  }
  const host = kind === 'ollama' ? findVariable(env, ['OLLAMA_HOST']) : undefined
  if (host !== undefined) return { url: ollamaUrl(host.value), setting: host.name }
  return baseUrl === null ? null : { url: baseUrl, setting: `the address of ${kind}` }
}

/** OLLAMA_HOST is `HOST`, `HOST:PORT` or an address; `0.0.0.0` is what the server listens at. */
function ollamaUrl(text: string): string {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`)
  if (url === null) return text
  const isBare = url.port === '' && !text.includes('://')
  if (isBare) url.port = '11434'
  if (url.hostname === '0.0.0.0') url.hostname = '127.0.0.1'
  return url.pathname === '/' ? `${url.origin}/v1` : url.href
}

/** The kind that a variable names a model of, beside the key or the address of its server. */
export function modelOfVariables(
  env: Env,
): { readonly kind: NamedKind; readonly model: string; readonly variable: string } | undefined {
  for (const kind of namedKinds) {
    const variable = modelVariables[kind]
    const model = findVariable(env, [variable])?.value
    if (model !== undefined && isReachable(kind, env)) return { kind, model, variable }
  }
  return undefined
}

/** Whether the environment has a key or an address for the kind. */
export function isReachable(kind: NamedKind, env: Env): boolean {
  return (
    addressVariable(kind, env) !== undefined || (kind !== 'azure' && keyVariable(kind, env) !== undefined)
  )
}

/**
 * The kind that has this model: `KIND/MODEL`, or an id of its own models. Undefined where it has neither key nor address.
 * @param isStrict whether a prefix counts only before one of the kind's own models: other servers have such ids too
 */
export function kindOfModel(
  model: string,
  {
    env,
    storedKeys,
    isStrict,
  }: { readonly env: Env; readonly storedKeys: readonly string[]; readonly isStrict: boolean },
): { readonly name: NamedKind; readonly model: string } | undefined {
  for (const name of namedKinds) {
    if (!isReachable(name, env) && !storedKeys.includes(name)) continue
    const rest = model.startsWith(`${name}/`) ? model.slice(name.length + 1) : ''
    const isOwn = (id: string) => longestMatch(ownModels[name], id) !== undefined
    if (rest !== '' && (!isStrict || isOwn(rest))) return { name, model: rest }
    if (isOwn(model)) return { name, model }
  }
  return undefined
}

/** The environment without what chooses a model or a server. */
export function withoutModelVariables(env: Env): Env {
  const names = ['CAISSON_LLM_URL', 'CAISSON_MODEL', ...Object.values(modelVariables)]
  return { ...env, ...Object.fromEntries(names.map((name) => [name, undefined])) }
}
