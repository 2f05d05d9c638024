/** The table of provider kinds: addresses, required settings, and environment variables. */
import type { Provider } from '../contract/contract.ts'
import { createAnthropicProvider } from './anthropic.ts'
import type { ProviderConfig, ProviderKind } from './config.ts'
import { Connection } from './connection.ts'
import { createGoogleProvider } from './google.ts'
import { createChatProvider } from './openai.ts'

type Setting = 'apiKey' | 'baseUrl' | 'resourceName' | 'deployment' | 'apiVersion'

interface Kind {
  /** Null: the kind has no default server. */
  readonly baseUrl: string | null
  /** Required settings; `a|b`: either. With a custom base no key is required: it may be a private server. */
  readonly needs: readonly string[]
  /** Environment variables by setting; the first one that is set applies. */
  readonly variables: Readonly<Partial<Record<Setting, readonly string[]>>>
  create(config: ProviderConfig, baseUrl: string): Provider
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` })

export const kinds: Readonly<Record<ProviderKind, Kind>> = {
  openai: {
    baseUrl: 'https://api.openai.com/v1',
    needs: ['apiKey'],
    variables: { apiKey: ['OPENAI_API_KEY'], baseUrl: ['OPENAI_BASE_URL'] },
    create: (config, baseUrl) =>
      createChatProvider(new Connection(baseUrl, config, bearer), {
        maxTokensField: 'max_completion_tokens',
      }),
  },
  anthropic: {
    baseUrl: 'https://api.anthropic.com',
    needs: ['apiKey'],
    variables: { apiKey: ['ANTHROPIC_API_KEY'], baseUrl: ['ANTHROPIC_BASE_URL'] },
    create: (config, baseUrl) =>
      createAnthropicProvider(new Connection(baseUrl, config, (key) => ({ 'x-api-key': key }))),
  },
  google: {
    baseUrl: 'https://generativelanguage.googleapis.com',
    needs: ['apiKey'],
    variables: { apiKey: ['GEMINI_API_KEY', 'GOOGLE_API_KEY'], baseUrl: ['GEMINI_BASE_URL'] },
    create: (config, baseUrl) =>
      createGoogleProvider(new Connection(baseUrl, config, (key) => ({ 'x-goog-api-key': key }))),
  },
  azure: {
    baseUrl: null,
    needs: ['apiKey', 'baseUrl|resourceName'],
    variables: {
      apiKey: ['AZURE_OPENAI_API_KEY'],
      baseUrl: ['AZURE_OPENAI_ENDPOINT'],
      resourceName: ['AZURE_OPENAI_RESOURCE_NAME'],
      deployment: ['AZURE_OPENAI_DEPLOYMENT'],
      apiVersion: ['AZURE_OPENAI_API_VERSION', 'OPENAI_API_VERSION'],
    },
    create: (config, baseUrl) => {
      const connection = new Connection(baseUrl, config, (key) => ({ 'api-key': key }))
      // The newer address takes the model in the body, as OpenAI does.
      if (baseUrl.endsWith('/v1'))
        return createChatProvider(connection, { maxTokensField: 'max_completion_tokens' })
      return createChatProvider(connection, {
        path: ({ model }) => `/openai/deployments/${encodeURIComponent(config.deployment ?? model)}`,
        query: `?api-version=${encodeURIComponent(config.apiVersion ?? '2024-10-21')}`,
        maxTokensField: 'max_completion_tokens',
      })
    },
  },
  xai: {
    baseUrl: 'https://api.x.ai/v1',
    needs: ['apiKey'],
    variables: { apiKey: ['XAI_API_KEY'], baseUrl: ['XAI_BASE_URL'] },
    create: (config, baseUrl) => createChatProvider(new Connection(baseUrl, config, bearer)),
  },
  'openai-compatible': {
    baseUrl: null,
    needs: ['baseUrl'],
    variables: { apiKey: ['OPENAI_COMPATIBLE_API_KEY'], baseUrl: ['OPENAI_COMPATIBLE_BASE_URL'] },
    create: (config, baseUrl) => createChatProvider(new Connection(baseUrl, config, bearer)),
  },
  ollama: {
    baseUrl: 'http://127.0.0.1:11434/v1',
    needs: [],
    variables: { apiKey: ['OLLAMA_API_KEY'], baseUrl: ['OLLAMA_BASE_URL'] },
    create: (config, baseUrl) => createChatProvider(new Connection(baseUrl, config, bearer)),
  },
  nvidia: {
    baseUrl: 'https://integrate.api.nvidia.com/v1',
    needs: ['apiKey'],
    variables: { apiKey: ['NVIDIA_API_KEY'] },
    create: (config, baseUrl) =>
      createChatProvider(new Connection(baseUrl, config, bearer), {
        headers: { 'nvcf-poll-seconds': '300' },
      }),
  },
}

/** The address of a configuration; null when it lacks one. */
export function baseUrlOf(kind: ProviderKind, config: ProviderConfig): string | null {
  if (config.baseUrl !== undefined) return config.baseUrl
  if (kind === 'azure' && config.resourceName !== undefined)
    return `https://${config.resourceName}.openai.azure.com`
  return kinds[kind].baseUrl
}

/** Missing settings of a configuration, such as `apiKey` or `baseUrl or resourceName`. */
export function findMissing(kind: ProviderKind, config: ProviderConfig): string[] {
  const has = (setting: string) => Object.hasOwn(config, setting) && config[setting as Setting] !== undefined
  const ownServer = has('baseUrl') && kind !== 'azure'
  return kinds[kind].needs
    .filter((need) => !need.split('|').some(has) && !(need === 'apiKey' && ownServer))
    .map((need) => need.replaceAll('|', ' or '))
}

/**
 * The settings of a kind from environment variables. A key applies only to the kind's own servers, or to the address
 * in the accompanying variable.
 */
export function configFromVariables(
  kind: ProviderKind,
  variables: Readonly<Record<string, string | undefined>>,
): ProviderConfig {
  const config: Record<string, string> = {}
  for (const [setting, names] of Object.entries(kinds[kind].variables)) {
    const value = names
      .map((name) => variables[name])
      .find((text) => text !== undefined && text.trim() !== '')
    if (value !== undefined) config[setting] = value.trim()
  }
  return config
}
