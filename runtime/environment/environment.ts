/**
 * What stays the same between calls: providers, MCP servers, skills, defaults. An explicit environment holds only
 * what it was given. Calls without one share cached registries, keyed by the digest of their configuration.
 */

import { createHash } from 'node:crypto'
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

/** The public interface of a class, so that an application can supply its own object. */
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
  /** Replaces `providers`. */
  readonly providerStore?: LLMProviderStore
  /** Folders with skills; later ones take precedence. */
  readonly skillRoots?: readonly string[]
  /** Replaces `skillRoots`. */
  readonly skillRegistry?: LLMSkillRegistry
  readonly mcpConfig?: McpConfig | string
  /** Replaces `mcpConfig`; not shut down with the environment. */
  readonly mcpRegistry?: LLMMcpRegistry
  readonly defaults?: LLMDefaults
  /** Absent: the call's value; see the call for its default. */
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

/** Internal data of the environments created here. */
const held = new WeakMap<LLMEnvironment, Held>()

/**
 * Creates an environment from its options. Reads no environment variable, and starts no server before its tools are
 * needed.
 * @throws {CaissonError} `invalid_options` for two sources of one thing or an invalid MCP configuration
 * @throws {LLMConfigurationError} for an invalid provider
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

/** Stops the MCP servers of an environment if it created their registry. Idempotent. */
export async function disposeLLMEnvironment(environment: LLMEnvironment): Promise<void> {
  const own = held.get(environment)
  if (own === undefined) return
  own.disposed = true
  await own.ownRegistry?.shutdown()
}

/** @throws {CaissonError} `not_possible_now` after disposal */
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

/** Options that a call without an environment may pass instead. */
export interface ConvenienceOptions {
  readonly provider: string
  readonly providers?: ProviderConfigs
  readonly skillRoots?: readonly string[]
  readonly mcpConfig?: McpConfig | string
}

/** Registries shared by calls without an environment, by configuration digest; evicts the oldest unused one. */
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

/** Stops the MCP servers started for calls without an environment, and clears the cache. */
export async function disposeLLMRuntimeCaches(): Promise<void> {
  await Promise.all([providerCache.clear(), skillCache.clear(), mcpCache.clear()])
}

/** The environment of a call that passes none. */
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

/** The environment of a call. @throws {CaissonError} `invalid_options` where it brings an environment's parts besides */
export function environmentOf(
  call: ConvenienceOptions & { readonly environment?: LLMEnvironment },
): LLMEnvironment {
  const { environment, providers, skillRoots, mcpConfig } = call
  if (environment === undefined) return cachedEnvironment(call)
  if (providers !== undefined || skillRoots !== undefined || mcpConfig !== undefined)
    throw new CaissonError(
      'invalid_options',
      'providers, skillRoots and mcpConfig belong to the environment; a call with an environment takes none of them',
    )
  return checkEnvironment(environment)
}

/**
 * The provider's configuration from the call or, when that has neither key nor address, from environment variables. A
 * key from one source is never sent to an address from the other.
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

/** Status of an environment's providers, or of what environment variables configure. Shows no key. */
export function getProviderStatus(environment?: LLMEnvironment): ProviderStatus[] {
  if (environment !== undefined) return checkEnvironment(environment).providerStore.list()
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

/** Objects other than plain data (clients, dispatchers, adapters) equal only themselves. */
const identities = new WeakMap<object, number>()
let identityCount = 0

/** sha256 of the value with sorted keys; undefined counts as absent. */
function hashConfig(value: unknown): string {
  return createHash('sha256').update(toCanonical(value)).digest('hex')
}

function toCanonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(toCanonical).join(',')}]`
  if (typeof value === 'function' || (typeof value === 'object' && value !== null && !isPlain(value)))
    return `#${identityOf(value)}`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const entries = Object.entries(value).filter(([, child]) => child !== undefined)
  const sorted = entries.toSorted(([a], [b]) => (a < b ? -1 : 1))
  return `{${sorted.map(([key, child]) => `${JSON.stringify(key)}:${toCanonical(child)}`).join(',')}}`
}

/** Whether the value is plain data without methods. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return false
  return Object.values(value).every((child) => typeof child !== 'function')
}

function identityOf(value: object): number {
  const known = identities.get(value)
  if (known !== undefined) return known
  identities.set(value, ++identityCount)
  return identityCount
}
