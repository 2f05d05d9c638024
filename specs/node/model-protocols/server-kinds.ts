/** The kinds of model servers: protocol, address, header of the key, and the environment variables of each. */
import { messagesHeaders, messagesPath } from './anthropic-request.ts'
import { geminiPath } from './google-request.ts'

export type ServerKindName =
  | 'openai'
  | 'anthropic'
  | 'google'
  | 'azure'
  | 'xai'
  | 'openai-compatible'
  | 'ollama'
  | 'nvidia'

export const serverKindNames = [
  'openai',
  'anthropic',
  'google',
  'azure',
  'xai',
  'openai-compatible',
  'ollama',
  'nvidia',
] as const satisfies readonly ServerKindName[]

type Setting = 'apiKey' | 'baseUrl' | 'resourceName' | 'deployment' | 'apiVersion'

export interface ServerKind {
  readonly protocol: 'chat' | 'anthropic' | 'google'
  /** Null: the kind has no default server. */
  readonly baseUrl: string | null
  /** Environment variables by setting; the first one that is set applies. */
  readonly variables: Readonly<Partial<Record<Setting, readonly string[]>>>
  /** Name of the limit of an answer's length, in chat completions. */
  readonly maxTokensField: 'max_tokens' | 'max_completion_tokens'
  /** Headers of every request. */
  readonly headers: Readonly<Record<string, string>>
  /** The header with the key. */
  keyHeader(key: string): Readonly<Record<string, string>>
}

const chat = {
  protocol: 'chat',
  maxTokensField: 'max_tokens',
  headers: {},
  keyHeader: (key: string) => ({ authorization: `Bearer ${key}` }),
} as const

export const serverKinds: Readonly<Record<ServerKindName, ServerKind>> = {
  openai: {
    ...chat,
    baseUrl: 'https://api.openai.com/v1',
    variables: { apiKey: ['OPENAI_API_KEY'], baseUrl: ['OPENAI_BASE_URL'] },
    maxTokensField: 'max_completion_tokens',
  },
  anthropic: {
    ...chat,
    protocol: 'anthropic',
    baseUrl: 'https://api.anthropic.com',
    variables: { apiKey: ['ANTHROPIC_API_KEY'], baseUrl: ['ANTHROPIC_BASE_URL'] },
    headers: messagesHeaders,
    keyHeader: (key) => ({ 'x-api-key': key }),
  },
  google: {
    ...chat,
    protocol: 'google',
    baseUrl: 'https://generativelanguage.googleapis.com',
    variables: { apiKey: ['GEMINI_API_KEY', 'GOOGLE_API_KEY'], baseUrl: ['GEMINI_BASE_URL'] },
    keyHeader: (key) => ({ 'x-goog-api-key': key }),
  },
  azure: {
    ...chat,
    baseUrl: null,
    variables: {
      apiKey: ['AZURE_OPENAI_API_KEY'],
      baseUrl: ['AZURE_OPENAI_ENDPOINT'],
      resourceName: ['AZURE_OPENAI_RESOURCE_NAME'],
      deployment: ['AZURE_OPENAI_DEPLOYMENT'],
      apiVersion: ['AZURE_OPENAI_API_VERSION', 'OPENAI_API_VERSION'],
    },
    maxTokensField: 'max_completion_tokens',
    keyHeader: (key) => ({ 'api-key': key }),
  },
  xai: {
    ...chat,
    baseUrl: 'https://api.x.ai/v1',
    variables: { apiKey: ['XAI_API_KEY'], baseUrl: ['XAI_BASE_URL'] },
  },
  'openai-compatible': {
    ...chat,
    baseUrl: null,
    variables: { apiKey: ['OPENAI_COMPATIBLE_API_KEY'], baseUrl: ['OPENAI_COMPATIBLE_BASE_URL'] },
  },
  ollama: {
    ...chat,
    baseUrl: 'http://127.0.0.1:11434/v1',
    variables: { apiKey: ['OLLAMA_API_KEY'], baseUrl: ['OLLAMA_BASE_URL'] },
  },
  nvidia: {
    ...chat,
    baseUrl: 'https://integrate.api.nvidia.com/v1',
    variables: { apiKey: ['NVIDIA_API_KEY'] },
    // Holds a queued request open instead of answering 202 with an id, in seconds.
    headers: { 'nvcf-poll-seconds': '300' },
  },
}

/** A server, and how its models are addressed. */
export interface ServerPlace {
  readonly kind: ServerKindName
  /** Without a trailing slash. */
  readonly baseUrl: string
  /** Azure. Absent: the model. */
  readonly deployment?: string | undefined
  /** Azure. Absent: 2024-10-21. */
  readonly apiVersion?: string | undefined
}

/** Where a model's requests go. @param operation of chat completions; other protocols have one */
export function operationUrl(
  place: ServerPlace,
  model: string,
  operation: '/chat/completions' | '/embeddings',
): string {
  const { kind, baseUrl } = place
  const { protocol } = serverKinds[kind]
  if (protocol === 'anthropic') return `${withoutVersion(baseUrl)}${messagesPath}`
  if (protocol === 'google') return `${withoutVersion(baseUrl)}${geminiPath(model)}`
  return `${baseUrl}${azurePath(place, model)}${operation}${azureQuery(place)}`
}

/** Where a server lists its models. */
export function modelsUrl(place: ServerPlace): string {
  const { kind, baseUrl } = place
  const { protocol } = serverKinds[kind]
  if (protocol === 'anthropic') return `${withoutVersion(baseUrl)}/v1/models?limit=1000`
  if (protocol === 'google') return `${withoutVersion(baseUrl)}/v1beta/models?pageSize=1000`
  return `${baseUrl}${isOldAzure(place) ? '/openai' : ''}/models${azureQuery(place)}`
}

/** The path of a deployment; empty elsewhere. The newer address of Azure takes the model in the body, as OpenAI does. */
export function azurePath(place: Omit<ServerPlace, 'apiVersion'>, model: string): string {
  return isOldAzure(place) ? `/openai/deployments/${encodeURIComponent(place.deployment ?? model)}` : ''
}

export function azureQuery(place: Omit<ServerPlace, 'deployment'>): string {
  return isOldAzure(place) ? `?api-version=${encodeURIComponent(place.apiVersion ?? '2024-10-21')}` : ''
}

function isOldAzure({ kind, baseUrl }: ServerPlace): boolean {
  return kind === 'azure' && !baseUrl.endsWith('/v1')
}

/** Addresses of these are often written with the version that their paths begin with. */
function withoutVersion(baseUrl: string): string {
  return baseUrl.replace(/\/v1(?:beta)?$/, '')
}
