/**
 * What stays the same from call to call: providers, MCP servers, skills, defaults. An environment that is made by hand holds
 * what it was given and nothing else; calls without one share registries that are kept here by the digest of their configuration.
 */

import { CaissonError, requireObject } from '#specs/errors.ts'
import { SkillRegistry } from '#specs/node/skills/registry.ts'
import type { ProviderRequest, ReasoningEffort, ToolPermission } from '../contract/contract.ts'
import type { McpConfig } from '../mcp/config.ts'
import { McpRegistry } from '../mcp/registry.ts'
import { isProvider, type ProviderConfig, type ProviderConfigs, providerKinds } from '../providers/config.ts'
import { configFromVariables } from '../providers/kinds.ts'
import { type ProviderStatus, ProviderStore } from '../providers/store.ts'
import type { BuiltInSelection } from '../tools/selection.ts'
import type { WebFetchOptions } from '../tools/web-fetch.ts'
import { hashConfig } from './config-hash.ts'

/** What a class offers, so that an application's own object can stand in its place. */
type PublicOf<T> = { readonly [K in keyof T]: T[K] }
export type LLMProviderStore = PublicOf<ProviderStore>
export type LLMSkillRegistry = PublicOf<SkillRegistry>
export type LLMMcpRegistry = PublicOf<McpRegistry>

export interface LLMDefaults {
  /** Default `default`: the model's own. */
  readonly reasoningEffort?: ReasoningEffort
  /** Default `auto`. */
  readonly toolPermission?: ToolPermission
}

export interface LLMEnvironmentOptions {
  readonly providers?: ProviderConfigs
  /** In place of `providers`. */
  readonly providerStore?: LLMProviderStore
  /** Folders with skills; a later one wins. */
  readonly skillRoots?: readonly string[]
  /** In place of `skillRoots`. */
  readonly skillRegistry?: LLMSkillRegistry
  readonly mcpConfig?: McpConfig | string
  /** In place of `mcpConfig`; it is not shut down with the environment. */
  readonly mcpRegistry?: LLMMcpRegistry
  readonly defaults?: LLMDefaults
  /** Absent: the call's; where that says nothing as well, see the call. */
  readonly builtIns?: BuiltInSelection
  readonly webFetch?: WebFetchOptions
}

export interface LLMEnvironment extends AsyncDisposable {
  readonly providerStore: LLMProviderStore
  readonly skillRegistry: LLMSkillRegistry
  readonly mcpRegistry: LLMMcpRegistry
  readonly defaults: Required<LLMDefaults>
  readonly builtIns?: BuiltInSelection
  readonly webFetch: WebFetchOptions
}

interface Held {
  readonly ownRegistry: LLMMcpRegistry | null
  disposed: boolean
}

/** What is known of the environments that were made here. */
const held = new WeakMap<LLMEnvironment, Held>()

/**
 * An environment of what it is given; no variable of the process is read, and no server started before its tools are needed.
 * @throws {CaissonError} `invalid_options` for two sources of one thing or an MCP configuration that is not valid
 * @throws {LLMConfigurationError} for a provider that cannot be
 */
export function createLLMEnvironment(options: LLMEnvironmentOptions = {}): LLMEnvironment {
  const { providers, providerStore, skillRoots, skillRegistry, mcpConfig, mcpRegistry, defaults } = options
  refuseBoth('providers', providers, 'providerStore', providerStore)
  refuseBoth('skillRoots', skillRoots, 'skillRegistry', skillRegistry)
  refuseBoth('mcpConfig', mcpConfig, 'mcpRegistry', mcpRegistry)
  const ownRegistry = mcpRegistry === undefined ? new McpRegistry(mcpConfig) : null
  const environment: LLMEnvironment = {
    providerStore: providerStore ?? new ProviderStore(providers),
    skillRegistry: skillRegistry ?? new SkillRegistry(skillRoots === undefined ? {} : { roots: skillRoots }),
    mcpRegistry: mcpRegistry ?? ownRegistry ?? new McpRegistry(),
    defaults: {
      reasoningEffort: checkEffort(defaults?.reasoningEffort ?? 'default'),
      toolPermission: checkPermission(defaults?.toolPermission ?? 'auto'),
    },
    ...(options.builtIns === undefined ? {} : { builtIns: options.builtIns }),
    webFetch: options.webFetch ?? {},
    [Symbol.asyncDispose]: () => disposeLLMEnvironment(environment),
  }
  held.set(environment, { ownRegistry, disposed: false })
  return environment
}

/** Ends the MCP servers of an environment, when the environment made their registry itself. Can be called again. */
export async function disposeLLMEnvironment(environment: LLMEnvironment): Promise<void> {
  const own = held.get(environment)
  if (own === undefined) return
  own.disposed = true
  await own.ownRegistry?.shutdown()
}

/** @throws {CaissonError} `not_possible_now` once it has been disposed */
export function checkEnvironment(environment: LLMEnvironment): LLMEnvironment {
  requireObject('environment', environment)
  requireObject('the defaults of the environment', environment.defaults)
  if (held.get(environment)?.disposed === true)
    throw new CaissonError(
      'not_possible_now',
      'the environment has been disposed; make another with createLLMEnvironment',
    )
  return environment
}

/** What a call without an environment may say of what would stand in one. */
export interface ConvenienceOptions {
  readonly provider: string
  readonly providers?: ProviderConfigs
  readonly skillRoots?: readonly string[]
  readonly mcpConfig?: McpConfig | string
}

/** Registries that calls without an environment share, by the digest of their configuration; the oldest unused one goes. */
class RegistryCache<T> {
  readonly #entries = new Map<string, T>()
  readonly #maxCount: number
  readonly #end: (value: T) => Promise<void>

  constructor(maxCount: number, end: (value: T) => Promise<void>) {
    this.#maxCount = maxCount
    this.#end = end
  }

  get(config: unknown, make: () => T): T {
    const key = hashConfig(config)
    const value = this.#entries.get(key) ?? make()
    this.#entries.delete(key)
    this.#entries.set(key, value)
    const [oldest] = this.#entries
    if (this.#entries.size > this.#maxCount && oldest !== undefined) {
      this.#entries.delete(oldest[0])
      this.#end(oldest[1]).catch(() => undefined)
    }
    return value
  }

  async clear(): Promise<void> {
    const values = [...this.#entries.values()]
    this.#entries.clear()
    await Promise.all(values.map(this.#end))
  }
}

const nothing = async () => undefined
const providerCache = new RegistryCache<ProviderStore>(64, nothing)
const skillCache = new RegistryCache<SkillRegistry>(64, nothing)
const mcpCache = new RegistryCache<McpRegistry>(16, (registry) => registry.shutdown())

/** Ends the MCP servers that calls without an environment started, and forgets what was read for them. */
export async function disposeLLMRuntimeCaches(): Promise<void> {
  await Promise.all([providerCache.clear(), skillCache.clear(), mcpCache.clear()])
}

/** The environment of a call that brings none. */
export function cachedEnvironment(options: ConvenienceOptions): LLMEnvironment {
  const { provider: name, skillRoots = [], mcpConfig = {} } = options
  const config = configOf(name, options.providers)
  return {
    providerStore: providerCache.get(
      [name, config],
      () => new ProviderStore(config === null ? {} : { [name]: config }),
    ),
    skillRegistry: skillCache.get(skillRoots, () => new SkillRegistry({ roots: skillRoots })),
    mcpRegistry: mcpCache.get(mcpConfig, () => new McpRegistry(mcpConfig)),
    defaults: { reasoningEffort: 'default', toolPermission: 'auto' },
    webFetch: {},
    [Symbol.asyncDispose]: nothing,
  }
}

/**
 * The provider's configuration out of the call or, where that says neither key nor address, the variables of the process: a
 * key of one never goes to an address of the other.
 */
function configOf(name: string, providers: ProviderConfigs | undefined): ProviderConfigs[string] | null {
  const given = providers !== undefined && Object.hasOwn(providers, name) ? providers[name] : undefined
  if (given !== undefined && (isProvider(given) || saysWhere(given))) return given
  const kind = given?.kind ?? providerKinds.find((known) => known === name)
  if (kind === undefined) return given ?? null
  return { ...configFromVariables(kind, process.env), ...given }
}

function saysWhere({ apiKey, baseUrl, resourceName }: ProviderConfig): boolean {
  return apiKey !== undefined || baseUrl !== undefined || resourceName !== undefined
}

/** Of an environment's providers, or of what a call without one would find in the process's variables. Shows no key. */
export function getProviderStatus(environment?: LLMEnvironment): ProviderStatus[] {
  if (environment !== undefined) return environment.providerStore.list()
  const configs = providerKinds.map((kind) => [kind, configFromVariables(kind, process.env)] as const)
  return new ProviderStore(Object.fromEntries(configs)).list()
}

export function checkEffort(effort: ReasoningEffort): ProviderRequest['reasoningEffort'] {
  return oneOf('reasoningEffort', effort, ['default', 'none', 'low', 'medium', 'high'])
}

export function checkPermission(permission: ToolPermission): ToolPermission {
  return oneOf('toolPermission', permission, ['auto', 'ask', 'read'])
}

function oneOf<T extends string>(field: string, value: T, words: readonly T[]): T {
  if (!words.includes(value))
    throw new CaissonError(
      'invalid_options',
      `expected ${field} to be one of ${words.join(', ')}, got ${JSON.stringify(value)}`,
    )
  return value
}

function refuseBoth(one: string, first: unknown, other: string, second: unknown): void {
  if (first !== undefined && second !== undefined)
    throw new CaissonError('invalid_options', `an environment takes ${one} or ${other}, not both`)
}
