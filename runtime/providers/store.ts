/**
 * The providers of one environment, by name. Stores share nothing. A configuration is validated when added; missing
 * settings are reported on use and in the status, which shows no key.
 */
import { errorMessage, requireObject, requireText } from '#specs/errors.ts'
import { serverKinds } from '#specs/node/model-protocols/server-kinds.ts'
import type { Provider } from '../contract/contract.ts'
import {
  checkConfig,
  isProvider,
  type ProviderConfig,
  type ProviderConfigs,
  type ProviderKind,
  providerKinds,
} from './config.ts'
import { LLMConfigurationError } from './errors.ts'
import { baseUrlOf, createProvider, findMissing } from './kinds.ts'

export interface ProviderStatus {
  readonly provider: string
  /** `custom` for an application's object. */
  readonly kind: ProviderKind | 'custom'
  readonly configured: boolean
  /** Missing settings; empty when it is configured. */
  readonly missing: readonly string[]
  /** Where its requests go; null when unknown. */
  readonly baseUrl: string | null
}

export interface OpenProvider {
  readonly provider: Provider
  /** Maximum requests per turn; absent: the failure table's values. */
  readonly maxAttempts?: number
}

interface Entry {
  readonly status: ProviderStatus
  readonly open: OpenProvider | null
}

export class ProviderStore {
  readonly #entries = new Map<string, Entry>()

  /** @throws {LLMConfigurationError} for an invalid configuration */
  constructor(configs: ProviderConfigs = {}) {
    requireObject('the providers', configs)
    for (const [name, config] of Object.entries(configs)) this.configure(name, config)
  }

  /** Adds or replaces a provider. @throws {LLMConfigurationError} */
  configure(name: string, config: ProviderConfig | Provider): void {
    requireText('the name of the provider', name)
    requireObject('the configuration of the provider', config)
    this.#entries.set(name, isProvider(config) ? customEntry(name, config) : makeEntry(name, config))
  }

  remove(name: string): boolean {
    return this.#entries.delete(name)
  }

  /** @throws {LLMConfigurationError} naming what is missing */
  get(name: string): OpenProvider {
    const { status, open } = this.#entry(name)
    if (open !== null) return open
    throw new LLMConfigurationError(
      `the provider ${name} is not configured: it lacks ${status.missing.join(' and ')}; give it under providers.${name}${orVariables(status)}`,
    )
  }

  /** @throws {LLMConfigurationError} for a name that is neither configured nor a kind */
  status(name: string): ProviderStatus {
    return this.#entry(name).status
  }

  /** Status of every kind and of all configured names, sorted by name. */
  list(): ProviderStatus[] {
    const names = new Set([...providerKinds, ...this.#entries.keys()])
    return [...names].sort().map((name) => this.status(name))
  }

  #entry(name: string): Entry {
    requireText('the name of the provider', name)
    const known = this.#entries.get(name)
    if (known !== undefined) return known
    if (providerKinds.some((kind) => kind === name)) return emptyEntry(name)
    const names = [...new Set([...providerKinds, ...this.#entries.keys()])].sort().join(', ')
    throw new LLMConfigurationError(
      `there is no provider ${JSON.stringify(name.slice(0, 100))}; known are ${names}`,
    )
  }
}

/** Settings that a call without an environment may supply. */
function orVariables({ kind, missing }: ProviderStatus): string {
  if (kind === 'custom') return ''
  const settings = missing.flatMap((words) => words.split(' or '))
  const names = Object.entries(serverKinds[kind].variables)
    .filter(([setting]) => settings.includes(setting))
    .flatMap(([, variables]) => variables)
  return names.length === 0 ? '' : ` or, in a call without an environment, as ${names.join(' or ')}`
}

function customEntry(provider: string, open: Provider): Entry {
  const status = { provider, kind: 'custom', configured: true, missing: [], baseUrl: null } as const
  return { status, open: { provider: open } }
}

function makeEntry(name: string, given: ProviderConfig): Entry {
  const { kind, ...config } = checkConfig(name, given)
  const missing = findMissing(kind, config)
  const baseUrl = baseUrlOf(kind, config)
  const configured = missing.length === 0 && baseUrl !== null
  const status = { provider: name, kind, configured, missing, baseUrl }
  if (!configured) return { status, open: null }
  const { maxAttempts } = config
  try {
    const provider = createProvider(kind, config, baseUrl)
    return { status, open: { provider, ...(maxAttempts === undefined ? {} : { maxAttempts }) } }
  } catch (cause) {
    const words = errorMessage(cause)
    throw new LLMConfigurationError(`the configuration of the provider ${name} cannot be used: ${words}`)
  }
}

/** A kind without configuration; ready if it requires none. */
function emptyEntry(name: string): Entry {
  return makeEntry(name, {})
}
