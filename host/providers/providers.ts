/**
 * Selects a run's model server from the user's flags, environment and configuration only: NVIDIA's API catalog, a
 * custom server, or the offline model. A key belongs to one origin and is read only from its configured source.
 */
import type { Result } from '#specs/protocol/error.ts'
import { Config } from '../config/schema.ts'
import type { KeySource } from '../keys/key-source.ts'
import { describeSource, type KeyPlace, resolveKey } from '../keys/keys.ts'
import type { Secret } from '../keys/secret.ts'
import {
  chooseServer,
  failure,
  longestMatch,
  type ModelPurpose,
  type ProviderProblem,
  withoutEmbeddings,
} from './model-choice.ts'
import { isNvidiaAddress, readServerAddress } from './server-address.ts'

/** A model server and its settings, before its key is fetched. */
export interface ProviderChoice {
  /** `nvidia`, `offline`, `custom` for CAISSON_LLM_URL, else the configured name. */
  readonly name: string
  /** Model id on the server; the guest cannot choose another. */
  readonly model: string
  /** Without a trailing slash, such as `https://integrate.api.nvidia.com/v1`; null for the offline model. */
  readonly baseUrl: string | null
  /** Null: used without a key. */
  readonly keySource: KeySource | null
  /** Where to set its key, for error messages: `the variable NVIDIA_API_KEY`. Absent: not set. */
  readonly keySetting?: string
  /** Maximum new requests per minute, over all runs with this key. Absent: unlimited. */
  readonly requestsPerMinute?: number
  /** Maximum open requests, over all runs with this key. Absent: the gateway's default. */
  readonly maxConcurrent?: number
  /** Price of this model in US dollars per million tokens. Absent: unknown. */
  readonly price?: { readonly input: number; readonly output: number }
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

/** Variables that other programs read keys from; Caisson sends no key to a server that the user did not name. */
const keysOfOthers = [
  'OPENAI_API_KEY',
  'ANTHROPIC_API_KEY',
  'AZURE_OPENAI_API_KEY',
  'GEMINI_API_KEY',
  'GOOGLE_API_KEY',
  'GROQ_API_KEY',
  'MISTRAL_API_KEY',
  'OPENROUTER_API_KEY',
  'TOGETHER_API_KEY',
  'XAI_API_KEY',
  'CAISSON_LLM_KEY',
] as const

const offlineNote =
  'No model key is set, so the offline model answers; it knows a small set of requests. For a real model, set NVIDIA_API_KEY, or ' +
  'CAISSON_LLM_URL and CAISSON_LLM_KEY, or a provider in the configuration file.'

/** Selects without fetching a key or asking; the order is in specs/gateway.md. */
export function chooseProvider(question: ProviderQuestion): Result<ProviderChoice, ProviderProblem> {
  const { env, config = Config.parse({}), storedKeys = [], purpose = 'chat' } = question
  const model = nonEmpty(question.model) ?? nonEmpty(env.CAISSON_MODEL) ?? openAiModel(env) ?? config.model
  if (model !== undefined && !/^[\x21-\x7e]{1,200}$/.test(model)) {
    const setting = 'of option model, CAISSON_MODEL, OPENAI_MODEL or the configuration'
    return failure('invalid_model', `The model id (${setting}) is not 1 to 200 visible characters.`)
  }
  if (model === offlineModel) return { ok: true, value: offlineChoice(false) }
  const url = nonEmpty(env.CAISSON_LLM_URL)
  if (url !== undefined) return chooseCustom(url, model, { env, config, variables: ownVariables })
  if (openAiModel(env) !== undefined)
    return chooseCustom(nonEmpty(env.OPENAI_BASE_URL) ?? openAiBaseUrl, model, {
      ...{ env, config, variables: openAiVariables },
    })
  const hasNvidiaKey = nonEmpty(env.NVIDIA_API_KEY) !== undefined || storedKeys.includes('nvidia')
  const chosen = chooseServer(model, config, hasNvidiaKey, purpose)
  const unread = describeUnreadKeys(env, config)
  if (!chosen.ok)
    return unread === undefined ? chosen : failure(chosen.error.code, `${chosen.error.message} ${unread}`)
  if (chosen.value.name === 'offline') {
    const isWanted = config.provider === 'offline'
    const choice = offlineChoice(!isWanted, Object.keys(config.providers))
    const notes = isWanted || unread === undefined ? choice.notes : [...choice.notes, unread]
    return { ok: true, value: { ...choice, notes } }
  }
  return chooseConfigured(chosen.value, { env, config, storedKeys })
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
  if (chosen.value.baseUrl !== null) return chosen
  const message = `${setting}: the offline model has no embeddings; use a model of a server, or ${withoutEmbeddings}`
  return { ok: false, error: { kind: 'setting', message } }
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

/** What to do about keys that are set but unused; undefined if there are none. Reveals only that a key exists. */
function describeUnreadKeys(env: ProviderQuestion['env'], config: Config): string | undefined {
  const read = Object.values(config.providers).flatMap(({ key }) =>
    key !== undefined && 'env' in key ? [key.env] : [],
  )
  const unread = keysOfOthers.filter((name) => nonEmpty(env[name]) !== undefined && !read.includes(name))
  const [first] = unread
  if (first === undefined) return undefined
  if (first === 'CAISSON_LLM_KEY')
    return 'CAISSON_LLM_KEY is set, but not used without CAISSON_LLM_URL, the URL of its server including /v1.'
  const server = first === 'OPENAI_API_KEY' ? ' (https://api.openai.com/v1 for OpenAI)' : ''
  return (
    `${unread.join(' and ')} ${unread.length === 1 ? 'is' : 'are'} set, but Caisson does not read ${unread.length === 1 ? 'it' : 'them'}. ` +
    `Set CAISSON_LLM_URL${server}, CAISSON_LLM_KEY and CAISSON_MODEL, or add a provider to the configuration file with ` +
    `key = { env = "${first}" }.${first === 'OPENAI_API_KEY' ? ' Or set OPENAI_MODEL too.' : ''}`
  )
}

/**
 * OPENAI_MODEL where it chooses a server: it needs a key or an address beside it, and Caisson's own variables win. A key
 * alone, which other programs read too, sends nothing anywhere.
 */
function openAiModel(env: ProviderQuestion['env']): string | undefined {
  const isOurs = nonEmpty(env.CAISSON_LLM_URL) !== undefined || nonEmpty(env.NVIDIA_API_KEY) !== undefined
  const hasServer = nonEmpty(env.OPENAI_API_KEY) !== undefined || nonEmpty(env.OPENAI_BASE_URL) !== undefined
  return isOurs || !hasServer ? undefined : nonEmpty(env.OPENAI_MODEL)
}

const openAiBaseUrl = 'https://api.openai.com/v1'
const ownVariables = { url: 'CAISSON_LLM_URL', key: 'CAISSON_LLM_KEY' }
const openAiVariables = { url: 'OPENAI_BASE_URL', key: 'OPENAI_API_KEY' }

/** The server named by the environment; it overrides the file. */
function chooseCustom(
  url: string,
  model: string | undefined,
  {
    env,
    config,
    variables,
  }: { env: ProviderQuestion['env']; config: Config; variables: typeof ownVariables },
): Result<ProviderChoice, ProviderProblem> {
  const address = readServerAddress(url, variables.url)
  if (!address.ok) return address
  if (model === undefined) {
    const text =
      'CAISSON_LLM_URL is set but no model is named. Set CAISSON_MODEL, or name one (option model).'
    return failure('missing_model', text)
  }
  const keySource = nonEmpty(env[variables.key]) === undefined ? null : { env: variables.key }
  return {
    ok: true,
    value: { name: 'custom', model, keySource, ...termsOf({}, keySource, model, config), ...address.value },
  }
}

function chooseConfigured(
  { name, model }: { readonly name: string; readonly model: string | undefined },
  { env, config, storedKeys }: Required<Pick<ProviderQuestion, 'env' | 'config' | 'storedKeys'>>,
): Result<ProviderChoice, ProviderProblem> {
  const given = Object.hasOwn(config.providers, name) ? config.providers[name] : undefined
  const setting = `providers.${name}.url in the configuration`
  const url = given?.url ?? (name === 'nvidia' ? nvidiaBaseUrl : undefined)
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
    (name === 'nvidia' ? nvidiaDefaultModel : undefined)
  if (wanted === undefined) {
    const text = `The provider ${name} is chosen but no model is named. Set model in the configuration or CAISSON_MODEL, or name one (option model).`
    return failure('missing_model', text)
  }
  const variable =
    name === 'nvidia' && nonEmpty(env.NVIDIA_API_KEY) !== undefined ? { env: 'NVIDIA_API_KEY' } : undefined
  const keySource = variable ?? given?.key ?? (storedKeys.includes(name) ? { keyring: name } : null)
  if (name === 'nvidia' && keySource === null) return failure('missing_key', missingNvidiaKey(wanted))
  const clash = keySource === null ? undefined : findClash(name, keySource, address.value.baseUrl, config)
  if (clash !== undefined) return failure('invalid_key', clash)
  const terms = termsOf(
    { ...(isNvidia ? { requestsPerMinute: nvidiaRequestsPerMinute } : {}), ...given },
    keySource,
    wanted,
    config,
  )
  return { ok: true, value: { name, model: wanted, keySource, ...terms, ...address.value } }
}

function missingNvidiaKey(model: string): string {
  return (
    `The model "${model}" is NVIDIA's, but there is no key. Set NVIDIA_API_KEY, or store one with: caisson key set ` +
    'nvidia; or name the provider of the model in the configuration.'
  )
}

function termsOf(
  {
    requestsPerMinute,
    maxConcurrent,
  }: { readonly requestsPerMinute?: number | undefined; readonly maxConcurrent?: number | undefined },
  keySource: KeySource | null,
  model: string,
  config: Config,
): Pick<ModelProvider, 'requestsPerMinute' | 'maxConcurrent' | 'price' | 'keySetting'> {
  const price = configuredPrice(config, model)
  return {
    ...(requestsPerMinute === undefined ? {} : { requestsPerMinute }),
    ...(maxConcurrent === undefined ? {} : { maxConcurrent }),
    ...(price === undefined ? {} : { price }),
    ...(keySource === null ? {} : { keySetting: describeSource(keySource) }),
  }
}

/** In US dollars per million tokens. */
export function configuredPrice(
  { prices }: Pick<Config, 'prices'>,
  model: string,
): Config['prices'][string] | undefined {
  const pattern = longestMatch(Object.keys(prices), model)
  return pattern === undefined ? undefined : prices[pattern]
}

/** A key belongs to one origin: one source for two origins is an error. */
function findClash(name: string, source: KeySource, baseUrl: string, config: Config): string | undefined {
  const where = describeSource(source)
  if ('env' in source && source.env === 'NVIDIA_API_KEY' && !isNvidiaAddress(baseUrl)) {
    return `providers.${name}.key in the configuration: ${where} is for NVIDIA's addresses alone; give ${name} a key of its own.`
  }
  const { origin } = new URL(baseUrl)
  const other = Object.entries(config.providers).find(
    ([otherName, { url = nvidiaBaseUrl, key }]) =>
      otherName !== name &&
      key !== undefined &&
      JSON.stringify(key) === JSON.stringify(source) &&
      URL.canParse(url) &&
      new URL(url).origin !== origin,
  )
  if (other === undefined) return
  return `providers.${name} and providers.${other[0]} in the configuration take their key from ${where}, but are different servers; a key belongs to one.`
}

function nonEmpty(text: string | undefined): string | undefined {
  const trimmed = text?.trim()
  return trimmed === undefined || trimmed === '' ? undefined : trimmed
}
