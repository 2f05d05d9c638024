/**
 * What a provider is configured by, field by field, checked before anything is sent. Refuses addresses that are no plain
 * http or https base, and fields that are not known: a misspelt one is not ignored.
 */

import type { Dispatcher } from 'undici'
import * as z from 'zod'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import type { Provider } from '../contract/contract.ts'
import { LLMConfigurationError } from './errors.ts'

/** The protocols and services that are known by name. */
export const providerKinds = [
  'openai',
  'anthropic',
  'google',
  'azure',
  'xai',
  'openai-compatible',
  'ollama',
  'nvidia',
] as const
export type ProviderKind = (typeof providerKinds)[number]

export interface ProviderConfig {
  /** Default: the provider's name, where that is a kind. Given for further ones under names of their own. */
  readonly kind?: ProviderKind
  readonly apiKey?: string
  /** Where the kind's servers are not meant; http or https, without query. The key goes to its origin alone. */
  readonly baseUrl?: string
  /** Further headers of every request; as secret as the key. */
  readonly headers?: Readonly<Record<string, string>>
  /** Further fields of every request's body, in the words of the server. */
  readonly body?: Readonly<Record<string, unknown>>
  /** Azure: `https://NAME.openai.azure.com`, in place of `baseUrl`. */
  readonly resourceName?: string
  /** Azure; default: the request's model. */
  readonly deployment?: string
  /** Azure; default 2024-10-21. */
  readonly apiVersion?: string
  /** Tokens of an answer where the request names no bound; default 16,384. */
  readonly maxTokens?: number
  /** Requests for one turn, the first included. Each kind of failure has a bound of its own below this one. */
  readonly maxAttempts?: number
  /** Longest wait for an answer to begin; default 10 minutes. */
  readonly firstEventTimeoutMs?: number
  /** Longest silence within an answer; default 3 minutes, of Anthropic's 10, whose models think in silence. */
  readonly idleTimeoutMs?: number
  /** undici's, for proxies and certificates; default the global one. */
  readonly dispatcher?: Dispatcher
}

/** Providers by name: a configuration, or an object that is one. */
export type ProviderConfigs = Readonly<Record<string, ProviderConfig | Provider>>

const positive = z.number().int().positive()
const Config = z.strictObject({
  kind: z.enum(providerKinds).optional(),
  apiKey: z.string().optional(),
  baseUrl: z.string().optional(),
  headers: z.record(z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/), z.string()).optional(),
  body: z.record(z.string(), z.unknown()).optional(),
  resourceName: z
    .string()
    .regex(/^[A-Za-z0-9-]{1,63}$/)
    .optional(),
  deployment: z.string().min(1).optional(),
  apiVersion: z.string().min(1).optional(),
  maxTokens: positive.optional(),
  maxAttempts: positive.optional(),
  firstEventTimeoutMs: positive.optional(),
  idleTimeoutMs: positive.optional(),
  dispatcher: z.custom<Dispatcher>((value) => typeof value === 'object' && value !== null).optional(),
})

export function isProvider(value: ProviderConfig | Provider): value is Provider {
  return 'stream' in value && typeof value.stream === 'function'
}

/**
 * The kind and the configuration of the provider `name`. Fields that are undefined count as absent.
 * @throws {LLMConfigurationError} which names the field, never its value
 */
export function checkConfig(name: string, config: ProviderConfig): { kind: ProviderKind } & ProviderConfig {
  const parsed = Config.safeParse(config, plainMessagesWithoutValues)
  if (!parsed.success)
    throw new LLMConfigurationError(
      `the configuration of the provider ${name} is not valid: ${describeIssues(parsed.error, { root: 'it' })}`,
    )
  const kind = parsed.data.kind ?? providerKinds.find((known) => known === name)
  if (kind === undefined)
    throw new LLMConfigurationError(
      `the provider ${name} needs a kind, one of ${providerKinds.join(', ')}, for its name is none`,
    )
  const { baseUrl } = config
  return { ...config, kind, ...(baseUrl === undefined ? {} : { baseUrl: checkBaseUrl(name, baseUrl) }) }
}

/** The address without its last slashes. */
function checkBaseUrl(name: string, text: string): string {
  const url = URL.parse(text)
  const fault =
    url === null
      ? 'is no URL'
      : url.protocol !== 'http:' && url.protocol !== 'https:'
        ? 'is neither http nor https'
        : url.username !== '' || url.password !== ''
          ? 'holds a name or password'
          : url.search !== '' || url.hash !== ''
            ? 'has a query or fragment'
            : null
  if (url === null || fault !== null)
    throw new LLMConfigurationError(
      `the baseUrl of the provider ${name} ${fault}; expected such as https://models.example/v1`,
    )
  return url.href.replace(/\/+$/, '')
}
