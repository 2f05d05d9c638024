/**
 * Selects a run's model server from the user's flags, environment and configuration only: NVIDIA's API catalog, a
 * custom server, or the offline model. A key belongs to one origin and is read only from its configured source.
 */
import { type ServerKindName, serverKinds } from '#specs/node/model-protocols/server-kinds.ts'
import { suggestedModels } from '#specs/node/provider-quirks/model-families.ts'
import type { Result } from '#specs/protocol/error.ts'
import { Config, type PriceConfig, type ProviderSettings } from '../config/schema.ts'
import type { KeySource } from '../keys/key-source.ts'
import { describeSource, type KeyPlace, resolveKey } from '../keys/keys.ts'
import type { Secret } from '../keys/secret.ts'
import {
  addressOf,
  addressVariable,
  findVariable,
  keyVariable,
  kindOf,
  kindOfModel,
  modelOfVariables,
  modelVariables,
  namedKinds,
  preferredModels,
  withoutModelVariables,
} from './kinds.ts'
import {
  chooseServer,
  failure,
  longestMatch,
  type ModelPurpose,
  maxImagesOf,
  type ProviderProblem,
  withoutEmbeddings,
} from './model-choice.ts'
import { findPrice } from './model-prices.ts'
import { isNvidiaAddress, readServerAddress } from './server-address.ts'

/** A model server and its settings, before its key is fetched. */
export interface ProviderChoice {
  /** `nvidia`, `offline`, `custom` for CAISSON_LLM_URL, else the configured name. */
  readonly name: string
  /** Model id on the server; the guest cannot choose another. Empty where only `preferred` says which. */
  readonly model: string
  /** Who or what named the model, for people: `the variable CAISSON_MODEL`. Absent: nobody. */
  readonly modelFrom?: string
  /** Where no model was named: the first of these that the server lists is used, else its only one. */
  readonly preferred?: readonly string[]
  /** Without a trailing slash, such as `https://integrate.api.nvidia.com/v1`; null for the offline model. */
  readonly baseUrl: string | null
  /** Absent: OpenAI-compatible. */
  readonly kind?: ServerKindName
  /** Azure. Absent: the model. */
  readonly deployment?: string
  /** Azure. Absent: the default version. */
  readonly apiVersion?: string
  /** Null: used without a key. */
  readonly keySource: KeySource | null
  /** Where its key is, or where to set one, for error messages: `the variable NVIDIA_API_KEY`. Absent: it takes none. */
  readonly keySetting?: string
  /** Maximum new requests per minute, over all runs with this key. Absent: unlimited. */
  readonly requestsPerMinute?: number
  /** Maximum open requests, over all runs with this key. Absent: the gateway's default. */
  readonly maxConcurrent?: number
  /** Price of this model in US dollars per million tokens. Absent: unknown. */
  readonly price?: PriceConfig
  /** Images of a request that this model sees, as configured. Absent: as the table of families says. */
  readonly maxImages?: number
  /** Notices for the user before the first request, one sentence each. */
  readonly notes: readonly string[]
}

/** A model server with its key. */
export interface ModelProvider extends Omit<ProviderChoice, 'keySource'> {
  readonly key: Secret | null
}

export interface ProviderQuestion {
  readonly env: Readonly<Record<string, string | undefined>>
  /** Absent: an empty one. */
  readonly config?: Config
  /** Names of keys in the system's keyring; a provider without another key uses the one of its name. */
  readonly storedKeys?: readonly string[]
  /** From `--model`; overrides `CAISSON_MODEL`, which overrides the configuration's `model`. */
  readonly model?: string
  /** For error messages; default `chat`. */
  readonly purpose?: ModelPurpose
}

export const nvidiaBaseUrl = 'https://integrate.api.nvidia.com/v1'
/** Tools, a reasoning switch and 262,144 tokens of context; the catalog changes, so a 404 or 410 names the setting. */
export const nvidiaDefaultModel = 'nvidia/nemotron-3-super-120b-a12b'
export const offlineModel = 'caisson/offline'
/** Users report a limit of about 40 per minute for NVIDIA's hosted models; it is unpublished and has no headers. */
const nvidiaRequestsPerMinute = 36

/** Where a key is set that is not used. */
const noModelNote = 'No model is set, so the offline model answers; it knows a small set of requests.'

const offlineNote =
  'No model key is set, so the offline model answers; it knows a small set of requests. For a real model, set NVIDIA_API_KEY, or ' +
  'CAISSON_LLM_URL and CAISSON_LLM_KEY, or a provider in the configuration file; docs/real-model.md has all ways.'

/** Selects without fetching a key or asking; the order is in specs/gateway.md. */
export function chooseProvider(question: ProviderQuestion): Result<ProviderChoice, ProviderProblem> {
  const { env, config = Config.parse({}), storedKeys = [], purpose = 'chat' } = question
  const { model, from } = nameModel(question, config)
  if (model !== undefined && !/^[\x21-\x7e]{1,200}$/.test(model)) {
    const setting = 'of option model, CAISSON_MODEL, OPENAI_MODEL or the configuration'
    return failure('invalid_model', `The model id (${setting}) is not 1 to 200 visible characters.`)
  }
  if (model === offlineModel) return { ok: true, value: { ...offlineChoice(false), modelFrom: from ?? '' } }
  const chosen = chooseNamed(model, { env, config, storedKeys }, purpose)
  return chosen.ok && from !== undefined ? { ok: true, value: { ...chosen.value, modelFrom: from } } : chosen
}

type Place = Required<Pick<ProviderQuestion, 'env' | 'config' | 'storedKeys'>>

/** The model that somebody named, and where. */
function nameModel(
  { env, model }: ProviderQuestion,
  config: Config,
): { readonly model?: string; readonly from?: string } {
  const given = nonEmpty(model)
  if (given !== undefined) return { model: given, from: 'option model' }
  const own = nonEmpty(env.CAISSON_MODEL)
  if (own !== undefined) return { model: own, from: 'the variable CAISSON_MODEL' }
  const other = otherVariables(env)
  if (other !== undefined) return { model: other.model, from: `the variable ${other.variable}` }
  return config.model === undefined ? {} : { model: config.model, from: 'model in the configuration' }
}

/** Variables of other programs that name a model; Caisson's own win. */
function otherVariables(env: ProviderQuestion['env']): ReturnType<typeof modelOfVariables> {
  const isOurs = nonEmpty(env.CAISSON_LLM_URL) !== undefined || nonEmpty(env.NVIDIA_API_KEY) !== undefined
  return isOurs ? undefined : modelOfVariables(env)
}

function chooseNamed(
  model: string | undefined,
  place: Place,
  purpose: ModelPurpose,
): Result<ProviderChoice, ProviderProblem> {
  const { env, config, storedKeys } = place
  const url = nonEmpty(env.CAISSON_LLM_URL)
  if (url !== undefined) return chooseCustom(url, model, { env, config })
  const hasNvidiaKey = nonEmpty(env.NVIDIA_API_KEY) !== undefined || storedKeys.includes('nvidia')
  const own =
    model === undefined || isListed(model, config) || hasServerOfAnyModel(config)
      ? undefined
      : kindOfModel(model, { env, storedKeys, isStrict: hasNvidiaKey })
  const variable = otherVariables(env)
  if (own !== undefined) return chooseConfigured(own, place)
  if (variable !== undefined) return chooseConfigured({ name: variable.kind, model }, place)
  const chosen = chooseServer(model, config, hasNvidiaKey, purpose)
  const unread = describeUnreadKeys(env, config)
  if (!chosen.ok)
    return unread === undefined ? chosen : failure(chosen.error.code, `${chosen.error.message} ${unread}`)
  if (chosen.value.name === 'offline') {
    const isWanted = config.provider === 'offline'
    const choice = offlineChoice(!isWanted, Object.keys(config.providers))
    if (isWanted || unread === undefined) return { ok: true, value: choice }
    const [note] = Object.keys(config.providers).length === 0 ? [noModelNote] : choice.notes
    return { ok: true, value: { ...choice, notes: [note ?? noModelNote, unread] } }
  }
  return chooseConfigured(chosen.value, place)
}

/** Whether the configuration says whose the model is. */
function isListed(model: string, { providers }: Config): boolean {
  return Object.entries(providers).some(
    ([name, { models = [] }]) => longestMatch(models, model) !== undefined || model.startsWith(`${name}/`),
  )
}

/** Whether the default is a server of the user's own, which may have models of any id. */
function hasServerOfAnyModel({ provider, providers }: Config): boolean {
  const names =
    provider === undefined
      ? Object.keys(providers).filter((name) => providers[name]?.models === undefined)
      : [provider]
  return names.some(
    (name) =>
      name === 'offline' || ['openai-compatible', 'azure', 'ollama'].includes(kindOf(name, providers[name])),
  )
}

export interface EmbeddingsProblem {
  /** `setting`: the configuration is wrong; `provider`: a key or something else on this machine. */
  readonly kind: 'setting' | 'provider'
  /** Names the setting and what to do. */
  readonly message: string
}

/** Selects the server of embeddings, by the configuration only. Undefined if it names no model. */
export function chooseEmbeddings(
  config: Config,
  { env, storedKeys = [] }: Pick<ProviderQuestion, 'env' | 'storedKeys'>,
): Result<ProviderChoice | undefined, EmbeddingsProblem> {
  if (config.embeddings === undefined) return { ok: true, value: undefined }
  const { model } = config.embeddings
  const setting = 'embeddings.model in the configuration'
  const chosen = chooseProvider({ env, config, storedKeys, model, purpose: 'embeddings' })
  if (!chosen.ok)
    return { ok: false, error: { kind: 'provider', message: `${setting}: ${chosen.error.message}` } }
  const { name, kind = 'openai-compatible', baseUrl } = chosen.value
  const hasEmbeddings = serverKinds[kind].protocol === 'chat'
  if (baseUrl !== null && hasEmbeddings) return chosen
  const without =
    baseUrl === null
      ? 'the offline model has no embeddings; use a model of a server'
      : `the embeddings of ${name}, a server of kind ${kind}, cannot be used; use a model of a server with OpenAI's /embeddings`
  return { ok: false, error: { kind: 'setting', message: `${setting}: ${without}, or ${withoutEmbeddings}` } }
}

/** Fetches the key of the selected provider now. @param place where keys are stored */
export async function fetchKey(
  { keySource, ...provider }: ProviderChoice,
  place: KeyPlace,
): Promise<Result<ModelProvider, ProviderProblem>> {
  if (keySource === null) return { ok: true, value: { ...provider, key: null } }
  const key = await resolveKey(keySource, place)
  if (!key.ok) return failure('invalid_key', `No key for the provider ${provider.name}: ${key.error}.`)
  if (!/^[\x21-\x7e]+$/.test(key.value.reveal())) {
    const where = describeSource(keySource)
    return failure('invalid_key', `The key from ${where} holds a space; set it to the bare key.`)
  }
  return { ok: true, value: { ...provider, key: key.value } }
}

/** The offline model as a provider. */
export function offlineProvider(noted: boolean): ModelProvider {
  const { keySource: _, ...provider } = offlineChoice(noted)
  return { ...provider, key: null }
}

/** @param others configured providers that would be used if a model or a default were named */
function offlineChoice(noted: boolean, others: readonly string[] = []): ProviderChoice {
  const note =
    others.length === 0
      ? offlineNote
      : `No model and no default provider is set, so the offline model answers. To use ${others.join(' or ')}, ` +
        'name a model (option model), or set model or provider in the configuration file.'
  const notes = noted ? [note] : []
  return { name: 'offline', model: offlineModel, baseUrl: null, keySource: null, notes }
}

/** What to do about keys and addresses that are set but unused; undefined if there are none. Reveals only that a key exists. */
function describeUnreadKeys(env: ProviderQuestion['env'], config: Config): string | undefined {
  const read = Object.values(config.providers).flatMap(({ key }) =>
    key !== undefined && 'env' in key ? [key.env] : [],
  )
  const isUnread = (name: string | undefined): name is string => name !== undefined && !read.includes(name)
  for (const kind of namedKinds) {
    const key = keyVariable(kind, env)
    if (key !== undefined && !isUnread(key)) continue
    const name = key ?? addressVariable(kind, env)
    if (name === undefined) continue
    return (
      `${name} is set, but ${key === undefined ? 'an address' : 'a key'} alone sends nothing. Name a model (option model: ` +
      `${kind}/MODEL, or the variable ${modelVariables[kind]}), or set provider = "${kind}" in the configuration; caisson ` +
      'models lists its models.'
    )
  }
  if (nonEmpty(env.CAISSON_LLM_KEY) !== undefined && isUnread('CAISSON_LLM_KEY'))
    return 'CAISSON_LLM_KEY is set, but not used without CAISSON_LLM_URL, the URL of its server including /v1.'
  const other = keysOfOthers.find((name) => nonEmpty(env[name]) !== undefined && isUnread(name))
  if (other === undefined) return undefined
  return (
    `${other} is set, but Caisson does not read it. Set CAISSON_LLM_URL, CAISSON_LLM_KEY and CAISSON_MODEL, or add a ` +
    `provider to the configuration file with key = { env = "${other}" }.`
  )
}

/** Keys of servers whose address Caisson does not know. */
const keysOfOthers = ['GROQ_API_KEY', 'MISTRAL_API_KEY', 'OPENROUTER_API_KEY', 'TOGETHER_API_KEY'] as const

/** The server named by CAISSON_LLM_URL; it overrides the file. */
function chooseCustom(
  url: string,
  model: string | undefined,
  { env, config }: Pick<Place, 'env' | 'config'>,
): Result<ProviderChoice, ProviderProblem> {
  const address = readServerAddress(url, 'CAISSON_LLM_URL')
  if (!address.ok) return address
  const keySource = nonEmpty(env.CAISSON_LLM_KEY) === undefined ? null : { env: 'CAISSON_LLM_KEY' }
  const named = modelOr(model, suggestedModels)
  return {
    ok: true,
    value: {
      name: 'custom',
      keySource,
      ...named,
      ...termsOf({}, { model: named.model, kind: 'openai-compatible' }, config),
      keySetting: describeSource({ env: 'CAISSON_LLM_KEY' }),
      ...address.value,
    },
  }
}

/**
 * @param preferred of the server's list, where no model is named
 * @param unlisted the model while the list cannot be read
 */
function modelOr(
  model: string | undefined,
  preferred: readonly string[],
  unlisted = '',
): Pick<ProviderChoice, 'model' | 'preferred'> {
  return model === undefined ? { model: unlisted, preferred } : { model }
}

function chooseConfigured(
  { name, model }: { readonly name: string; readonly model: string | undefined },
  { env, config, storedKeys }: Place,
): Result<ProviderChoice, ProviderProblem> {
  const given = Object.hasOwn(config.providers, name) ? config.providers[name] : undefined
  const kind = kindOf(name, given)
  const isOwnServer = given?.url !== undefined
  // Variables of a kind are for the provider of its name at its own address.
  const place = isOwnServer ? null : name === kind ? addressOf(kind, env) : defaultAddress(kind)
  const setting = place?.setting ?? `providers.${name}.url in the configuration`
  const url = given?.url ?? place?.url
  if (url === undefined)
    return failure('invalid_url', `${setting} is missing; set it to the URL of the server, including /v1.`)
  const address = readServerAddress(url, setting)
  if (!address.ok) return address
  const isNvidia = isNvidiaAddress(address.value.baseUrl)
  if (name === 'nvidia' && !isNvidia) {
    const text = `${setting} is not an address of NVIDIA's; give a server of your own another name than nvidia.`
    return failure('invalid_url', text)
  }
  const wanted =
    model ??
    given?.models?.find((id) => !id.includes('*')) ??
    (kind === 'azure' ? (given?.deployment ?? modelOfVariables(env)?.model) : undefined)
  const readsVariables = name === 'nvidia' || (name === kind && !isOwnServer)
  const variable = readsVariables ? keyVariable(kind, env) : undefined
  const keySource =
    variable !== undefined
      ? { env: variable }
      : (given?.key ?? (storedKeys.includes(name) ? { keyring: name } : null))
  const named = modelOr(wanted, preferredModels(kind), name === 'nvidia' ? nvidiaDefaultModel : '')
  if (keySource === null && url === serverKinds[kind].baseUrl && kind !== 'ollama')
    return failure('missing_key', missingKey(name, kind, named.model))
  const clash = keySource === null ? undefined : findClash(name, keySource, address.value.baseUrl, config)
  if (clash !== undefined) return failure('invalid_key', clash)
  const terms = termsOf(
    { ...(isNvidia ? { requestsPerMinute: nvidiaRequestsPerMinute } : {}), ...given },
    { model: named.model, kind },
    config,
  )
  return {
    ok: true,
    value: {
      name,
      ...named,
      ...kindOptions(kind, place?.setting, given, env),
      keySource,
      keySetting:
        keySource === null ? keyPlace(name, readsVariables ? kind : null) : describeSource(keySource),
      ...terms,
      ...address.value,
    },
  }
}

function defaultAddress(kind: ServerKindName): ReturnType<typeof addressOf> {
  return addressOf(kind, {})
}

/** A server of OPENAI_BASE_URL speaks OpenAI's form, and is another. */
function kindOptions(
  kind: ServerKindName,
  setting: string | undefined,
  given: ProviderSettings | undefined,
  env: ProviderQuestion['env'],
): Pick<ProviderChoice, 'kind' | 'deployment' | 'apiVersion'> {
  if (kind === 'openai-compatible' || setting === 'OPENAI_BASE_URL') return {}
  if (kind !== 'azure') return { kind }
  const { variables } = serverKinds.azure
  const deployment = given?.deployment ?? findVariable(env, variables.deployment)?.value
  const apiVersion = given?.apiVersion ?? findVariable(env, variables.apiVersion)?.value
  return {
    kind,
    ...(deployment === undefined ? {} : { deployment }),
    ...(apiVersion === undefined ? {} : { apiVersion }),
  }
}

function missingKey(name: string, kind: ServerKindName, model: string): string {
  if (name === 'nvidia') return missingNvidiaKey(model)
  return (
    `${model === '' ? '' : `The model "${model}" is asked of ${name}, but `}there is no key of ${name}. ` +
    `Set ${keyPlace(name, name === kind ? kind : null)}, or store one with: caisson key set ${name}.`
  )
}

/** Where to set the key of a provider that has none. @param kind whose variables it reads; null: none */
function keyPlace(name: string, kind: ServerKindName | null): string {
  const [variable] = (kind === null ? undefined : serverKinds[kind].variables.apiKey) ?? []
  return variable ?? `providers.${name}.key in the configuration`
}

function missingNvidiaKey(model: string): string {
  return (
    `${model === '' ? 'The provider is NVIDIA' : `The model "${model}" is NVIDIA's`}, but there is no key. Set NVIDIA_API_KEY, or store one with: caisson key set ` +
    'nvidia; or name the provider of the model in the configuration.'
  )
}

function termsOf(
  {
    requestsPerMinute,
    maxConcurrent,
  }: { readonly requestsPerMinute?: number | undefined; readonly maxConcurrent?: number | undefined },
  { model, kind }: { readonly model: string; readonly kind: ServerKindName },
  config: Config,
): Pick<ModelProvider, 'requestsPerMinute' | 'maxConcurrent' | 'price' | 'maxImages'> {
  return {
    ...(requestsPerMinute === undefined ? {} : { requestsPerMinute }),
    ...(maxConcurrent === undefined ? {} : { maxConcurrent }),
    ...modelTerms(kind, model, config),
  }
}

/** A key belongs to one origin: one source for two origins is an error. */
function findClash(name: string, source: KeySource, baseUrl: string, config: Config): string | undefined {
  const where = describeSource(source)
  if ('env' in source && source.env === 'NVIDIA_API_KEY' && !isNvidiaAddress(baseUrl)) {
    return `providers.${name}.key in the configuration: ${where} is for NVIDIA's addresses alone; give ${name} a key of its own.`
  }
  const { origin } = new URL(baseUrl)
  const other = Object.entries(config.providers).find(
    ([otherName, { key, ...settings }]) =>
      otherName !== name &&
      key !== undefined &&
      JSON.stringify(key) === JSON.stringify(source) &&
      isOtherOrigin(settings.url ?? serverKinds[kindOf(otherName, settings)].baseUrl, origin),
  )
  if (other === undefined) return
  return `providers.${name} and providers.${other[0]} in the configuration take their key from ${where}, but are different servers; a key belongs to one.`
}

function isOtherOrigin(url: string | null, origin: string): boolean {
  return url !== null && URL.canParse(url) && new URL(url).origin !== origin
}

/** The provider of this name as if it were the default, whatever lists and variables say. @param model absent: open */
export function chooseAsDefault(
  name: string,
  { env, config = Config.parse({}), storedKeys = [], model }: ProviderQuestion,
): Result<ProviderChoice, ProviderProblem> {
  const unlisted = Object.entries(config.providers).map(([key, { models: _, ...settings }]) => [
    key,
    settings,
  ])
  const { model: _model, ...rest } = config
  return chooseProvider({
    env: withoutModelVariables(env),
    config: { ...rest, provider: name, providers: Object.fromEntries(unlisted) },
    storedKeys,
    ...(model === undefined ? {} : { model }),
  })
}

/** The same server with this model, and the terms of that. */
export function withModel(choice: ProviderChoice, model: string, config: Config): ProviderChoice {
  const { preferred: _, price: _price, maxImages: _maxImages, ...rest } = choice
  return { ...rest, model, ...modelTerms(choice.kind ?? 'openai-compatible', model, config) }
}

function modelTerms(
  kind: ServerKindName,
  model: string,
  config: Config,
): Pick<ModelProvider, 'price' | 'maxImages'> {
  const price = findPrice(kind, model, config.prices)
  const maxImages = maxImagesOf(config, model)
  return { ...(price === undefined ? {} : { price }), ...(maxImages === undefined ? {} : { maxImages }) }
}

function nonEmpty(text: string | undefined): string | undefined {
  const trimmed = text?.trim()
  return trimmed === undefined || trimmed === '' ? undefined : trimmed
}
