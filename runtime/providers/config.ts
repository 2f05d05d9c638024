/**
 * The configuration of a provider, validated before anything is sent. Refuses addresses other than a plain http or
 * https base, and unknown fields: a misspelled one is not ignored.
 */

import type { Dispatcher } from 'undici'
import * as z from 'zod'
import { serverKindNames } from '#specs/node/model-protocols/server-kinds.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import type { Provider } from '../contract/contract.ts'
import { LLMConfigurationError } from './errors.ts'

/** The protocols and services known by name. */
export const providerKinds = serverKindNames
export type ProviderKind = (typeof providerKinds)[number]

export interface ProviderConfig {
  /** Default: the provider's name, if it is a kind. Set it for additional providers with other names. */
  readonly kind?: ProviderKind
  readonly apiKey?: string
  /** Replaces the kind's servers; http or https, without query. The key is sent only to its origin. */
  readonly baseUrl?: string
  /** Additional headers of every request; as secret as the key. */
  readonly headers?: Readonly<Record<string, string>>
  /** Additional fields of every request body, in the server's API. */
  readonly body?: Readonly<Record<string, unknown>>
  /** Azure: `https://NAME.openai.azure.com`, instead of `baseUrl`. */
  readonly resourceName?: string
  /** Azure; default: the request's model. */
  readonly deployment?: string
  /** Azure; default 2024-10-21. */
  readonly apiVersion?: string
  /** Maximum tokens of an answer when the request sets none; default 16,384. */
  readonly maxTokens?: number
  /** Maximum requests per turn, including the first. Each kind of failure has its own limit below this one. */
  readonly maxAttempts?: number
  /** Timeout until an answer begins; default 10 minutes. */
  readonly firstEventTimeoutMs?: number
  /** Timeout between parts of an answer; default 3 minutes, for Anthropic 10, since its models think silently. */
  readonly idleTimeoutMs?: number
  /** An undici dispatcher, for proxies and certificates; default the global one. */
  readonly dispatcher?: Dispatcher
}

/** Providers by name: a configuration, or a provider object. */
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
 * The kind and configuration of the provider `name`. Undefined fields count as absent.
 * @throws {LLMConfigurationError} naming the field, never its value
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

/** The address without trailing slashes. */
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
