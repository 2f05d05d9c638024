/** Required settings of provider kinds, their settings from the environment, and what speaks to each. */
import { azurePath, azureQuery, serverKinds } from '#specs/node/model-protocols/server-kinds.ts'
import type { Provider } from '../contract/contract.ts'
import { createAnthropicProvider } from './anthropic.ts'
import type { ProviderConfig, ProviderKind } from './config.ts'
import { Connection } from './connection.ts'
import { createGoogleProvider } from './google.ts'
import { createChatProvider } from './openai.ts'

type Setting = 'apiKey' | 'baseUrl' | 'resourceName' | 'deployment' | 'apiVersion'

/** `a|b`: either. With a custom base no key is required: it may be a private server. */
const requiredSettings: Readonly<Record<ProviderKind, readonly string[]>> = {
  openai: ['apiKey'],
  anthropic: ['apiKey'],
  google: ['apiKey'],
  azure: ['apiKey', 'baseUrl|resourceName'],
  xai: ['apiKey'],
  'openai-compatible': ['baseUrl'],
  ollama: [],
  nvidia: ['apiKey'],
}

/** The provider of a kind at this address. */
export function createProvider(kind: ProviderKind, config: ProviderConfig, baseUrl: string): Provider {
  const { protocol, keyHeader, maxTokensField, headers } = serverKinds[kind]
  const connection = new Connection(baseUrl, config, keyHeader)
  if (protocol === 'anthropic') return createAnthropicProvider(connection)
  if (protocol === 'google') return createGoogleProvider(connection)
  const { deployment, apiVersion } = config
  return createChatProvider(connection, {
    path: ({ model }) => azurePath({ kind, baseUrl, deployment }, model),
    query: azureQuery({ kind, baseUrl, apiVersion }),
    maxTokensField,
    headers,
    hasWebSearch: kind === 'openai',
  })
}

/** The address of a configuration; null when it lacks one. */
export function baseUrlOf(kind: ProviderKind, config: ProviderConfig): string | null {
  if (config.baseUrl !== undefined) return config.baseUrl
  if (kind === 'azure' && config.resourceName !== undefined)
    return `https://${config.resourceName}.openai.azure.com`
  return serverKinds[kind].baseUrl
}

/** Missing settings of a configuration, such as `apiKey` or `baseUrl or resourceName`. */
export function findMissing(kind: ProviderKind, config: ProviderConfig): string[] {
  const has = (setting: string) => Object.hasOwn(config, setting) && config[setting as Setting] !== undefined
  const ownServer = has('baseUrl') && kind !== 'azure'
  return requiredSettings[kind]
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
  for (const [setting, names] of Object.entries(serverKinds[kind].variables)) {
    const value = names
      .map((name) => variables[name])
      .find((text) => text !== undefined && text.trim() !== '')
    if (value !== undefined) config[setting] = value.trim()
  }
  return config
}
