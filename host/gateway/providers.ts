/**
 * Which model server a run uses, from the user's environment and flags alone: NVIDIA's API catalog, one server of
 * the user's choice, or the offline model. A key belongs to one origin; it is never looked for anywhere else.
 */
import { isIP } from 'node:net'
import type { Result } from '#specs/protocol/error.ts'
import { Secret } from './secret.ts'

/** Where requests for a model go. */
export interface Provider {
  readonly name: 'nvidia' | 'custom' | 'offline'
  /** Model id as the provider knows it; the guest cannot choose another. */
  readonly model: string
  /** Without a trailing slash, such as `https://integrate.api.nvidia.com/v1`; null for the offline model. */
  readonly baseUrl: string | null
  readonly key: Secret | null
  /** What a person should know before the first request, one sentence each. */
  readonly notes: readonly string[]
}

/** Why no provider could be chosen; the message names the setting and what to do. */
export interface ProviderError {
  readonly code: 'invalid_url' | 'insecure_url' | 'invalid_key' | 'invalid_model' | 'missing_model'
  readonly message: string
}

export const nvidiaBaseUrl = 'https://integrate.api.nvidia.com/v1'
/** Tools, a reasoning switch and 262,144 tokens of context; the catalog changes, so a 404 or 410 names the setting. */
export const nvidiaDefaultModel = 'nvidia/nemotron-3-super-120b-a12b'
export const offlineModel = 'caisson/offline'

const offlineNote =
  'No model key is set: the offline model answers. It knows a small set of requests; set NVIDIA_API_KEY, or ' +
  'CAISSON_LLM_URL and CAISSON_LLM_KEY, for a real model.'

/**
 * Chooses in this order: the model `caisson/offline` asked for by name, `CAISSON_LLM_URL`, `NVIDIA_API_KEY`, offline.
 * @param options.model from `--model`; wins over `CAISSON_MODEL`
 */
export function resolveProvider(options: {
  env: Readonly<Record<string, string | undefined>>
  model?: string
}): Result<Provider, ProviderError> {
  const { env } = options
  const model = nonEmpty(options.model) ?? nonEmpty(env.CAISSON_MODEL)
  if (model !== undefined && !isModelId(model)) {
    return failure(
      'invalid_model',
      'The model id (--model or CAISSON_MODEL) is not 1 to 200 visible characters.',
    )
  }
  const url = nonEmpty(env.CAISSON_LLM_URL)
  const nvidiaKey = nonEmpty(env.NVIDIA_API_KEY)
  if (model === offlineModel) return success(offlineProvider(false))
  if (url !== undefined) return resolveCustom(url, nonEmpty(env.CAISSON_LLM_KEY), model)
  if (nvidiaKey !== undefined) return resolveNvidia(nvidiaKey, model)
  if (model !== undefined) {
    return failure(
      'missing_model',
      `The model "${model}" was asked for, but no model server is set. Set NVIDIA_API_KEY, or CAISSON_LLM_URL and ` +
        `CAISSON_LLM_KEY; or leave the model out to use the offline model.`,
    )
  }
  return success(offlineProvider(true))
}

/** The offline model as a provider. */
export function offlineProvider(noted: boolean): Provider {
  return { name: 'offline', model: offlineModel, baseUrl: null, key: null, notes: noted ? [offlineNote] : [] }
}

function resolveNvidia(keyText: string, model: string | undefined): Result<Provider, ProviderError> {
  if (!isHeaderSafe(keyText)) return failure('invalid_key', keyMessage('NVIDIA_API_KEY'))
  return success({
    name: 'nvidia',
    model: model ?? nvidiaDefaultModel,
    baseUrl: nvidiaBaseUrl,
    key: new Secret(keyText),
    notes: [],
  })
}

function resolveCustom(
  urlText: string,
  keyText: string | undefined,
  model: string | undefined,
): Result<Provider, ProviderError> {
  const url = URL.canParse(urlText) ? new URL(urlText) : null
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    return failure(
      'invalid_url',
      'CAISSON_LLM_URL is not an http or https address, such as http://127.0.0.1:8080/v1.',
    )
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    return failure(
      'invalid_url',
      'CAISSON_LLM_URL must not hold a user, a query or a fragment; put the key into CAISSON_LLM_KEY.',
    )
  }
  const reach = url.protocol === 'http:' ? reachOfHost(url.hostname) : 'encrypted'
  if (reach === 'public') {
    return failure(
      'insecure_url',
      `CAISSON_LLM_URL uses plain http to ${url.hostname}, which is neither this machine nor a private address: the ` +
        'conversation and the key could be read on the way. Use https.',
    )
  }
  if (keyText !== undefined && !isHeaderSafe(keyText))
    return failure('invalid_key', keyMessage('CAISSON_LLM_KEY'))
  if (model === undefined) {
    return failure(
      'missing_model',
      'CAISSON_LLM_URL is set but no model is named. Set CAISSON_MODEL or pass --model.',
    )
  }
  const note = `The model server ${url.host} is reached by plain http in a private network: what is sent can be read there.`
  return success({
    name: 'custom',
    model,
    baseUrl: url.href.replace(/\/+$/, ''),
    key: keyText === undefined ? null : new Secret(keyText),
    notes: reach === 'private' ? [note] : [],
  })
}

/** Who could read plain http to this host; names other than localhost count as public, for they may resolve to anything. */
function reachOfHost(hostname: string): 'loopback' | 'private' | 'public' {
  const host = hostname.replace(/^\[|\]$/g, '').toLowerCase()
  if (host === 'localhost' || host.endsWith('.localhost')) return 'loopback'
  const family = isIP(host)
  if (family === 4) {
    if (host.startsWith('127.')) return 'loopback'
    return /^(10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.)/.test(host) ? 'private' : 'public'
  }
  if (family === 6) {
    if (host === '::1') return 'loopback'
    return /^f[cd]/.test(host) ? 'private' : 'public'
  }
  return 'public'
}

function keyMessage(name: string): string {
  return `${name} holds a character that cannot stand in an HTTP header, such as a line break; set it to the bare key.`
}

function isHeaderSafe(text: string): boolean {
  return /^[\x21-\x7e]{1,4096}$/.test(text)
}

function isModelId(text: string): boolean {
  return /^[\x21-\x7e]{1,200}$/.test(text)
}

function nonEmpty(text: string | undefined): string | undefined {
  const trimmed = text?.trim()
  return trimmed === '' ? undefined : trimmed
}

function success(value: Provider): Result<Provider, ProviderError> {
  return { ok: true, value }
}

function failure(code: ProviderError['code'], message: string): Result<Provider, ProviderError> {
  return { ok: false, error: { code, message } }
}
