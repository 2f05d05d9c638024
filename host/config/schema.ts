/**
 * The user's configuration file, section by section (design: one file, read from the user's own folder, never from a
 * workspace). Unknown names are refused, so that a misspelled rule is not silently no rule.
 */

import * as z from 'zod'
import { serverKindNames } from '#specs/node/model-protocols/server-kinds.ts'
import { EgressRule } from '#specs/protocol/egress.ts'
import { HookPoint } from '#specs/protocol/hook.ts'
import { imagesMaxCount } from '#specs/protocol/image.ts'
import { Effort } from '#specs/protocol/plan.ts'
import { FallbackModels, StepModels } from '#specs/protocol/run-models.ts'
import { meantToolName } from '#specs/protocol/tool-names.ts'
import { webhookEvents } from '#specs/service/webhook-resources.ts'
import { refuseUnreadable } from '../egress/rules.ts'
import { KeySource, Name } from '../keys/key-source.ts'
import { McpServersConfig } from '../mcp/config.ts'
import { readSecretHost } from '../secrets/secret-host.ts'

/** A model id, or a beginning of one with `*` behind it. */
const ModelPattern = z
  .string()
  .regex(/^(?:[^\s*]{1,200}\*?|\*)$/, 'expected a model ID, or a prefix followed by *')

/** Names with a fixed meaning wherever a provider is named. */
const reserved: ReadonlySet<string> = new Set(['caisson', 'custom', 'offline'])

export const ProviderSettings = z.strictObject({
  /** Absent: the name where it is a kind and no `url` is given, else openai-compatible. */
  kind: z.enum(serverKindNames).optional(),
  /** Up to and with `/v1`; absent for a kind whose address is known. */
  url: z.string().optional(),
  /** Azure. Absent: the model. */
  deployment: z.string().min(1).max(200).optional(),
  /** Azure. Absent: 2024-10-21. */
  apiVersion: z
    .string()
    .regex(/^[\w.-]{1,40}$/, 'expected a version, such as 2024-10-21')
    .optional(),
  key: KeySource.optional(),
  /** Model ids that are asked of it, `*` for any characters at the end; absent: only when it is the default. */
  models: z.array(ModelPattern).max(256).optional(),
  /** A sliding minute, over all runs of this user with this key. */
  requestsPerMinute: z.int().min(1).max(100_000).optional(),
  maxConcurrent: z.int().min(1).max(256).optional(),
})
export type ProviderSettings = z.infer<typeof ProviderSettings>

/** US dollars for a million tokens. */
const Price = {
  input: z.number().min(0),
  output: z.number().min(0),
  /** Of input that the provider read from its cache. Absent: that of other input. */
  cachedInput: z.number().min(0).optional(),
  /** Of input that the provider did not read from its cache, but writes to it. Absent: `input`. */
  cacheWrite: z.number().min(0).optional(),
}
export const PriceConfig = z.strictObject({
  ...Price,
  /** For requests with more input than `tokens`. Absent: the same. */
  above: z.strictObject({ ...Price, tokens: z.int().min(1) }).optional(),
})
export type PriceConfig = z.infer<typeof PriceConfig>

/** What the user knows of a model. */
const ModelConfig = z.strictObject({
  /** What it takes in and gives out in one request, in tokens. */
  contextTokens: z.int().min(1_024).max(100_000_000).optional(),
  /** Images of a request that it sees, 0 for none; what its server refuses wins. */
  maxImages: z.int().min(0).max(imagesMaxCount).optional(),
})

const SecretConfig = z.strictObject({
  from: KeySource,
  /** Hosts whose requests may carry it: names, or `*.example.com` for all below. */
  hosts: z
    .array(z.string().refine((host) => readSecretHost(host) !== null, 'expected a host, such as example.com'))
    .min(1)
    .max(64),
})

export const SearchConfig = z.discriminatedUnion('provider', [
  /** A SearXNG server with its JSON form switched on. */
  z.strictObject({ provider: z.literal('searxng'), url: z.string().min(1) }),
  z.strictObject({ provider: z.literal('brave'), key: KeySource, url: z.string().optional() }),
  z.strictObject({ provider: z.literal('tavily'), key: KeySource, url: z.string().optional() }),
])
export type SearchConfig = z.infer<typeof SearchConfig>

/** Its provider is found by the model's id, as for chat. */
const EmbeddingsConfig = z.strictObject({
  model: z.string().regex(/^[\x21-\x7e]{1,200}$/, 'expected a model id'),
})

/** One that no call ever bears would leave open what it is to guard. */
const HookedTools = z
  .string()
  .min(1)
  .max(500)
  .superRefine((name, context) => {
    const meant = meantToolName(name)
    if (meant !== undefined) context.addIssue({ code: 'custom', message: `the tool is called ${meant}` })
  })

/** A command that is asked at a point of every run; see `specs/hooks.md`. */
export const HookConfig = z
  .strictObject({
    /** For the journal and for people; absent: the command's. */
    name: z.string().min(1).max(100).optional(),
    point: HookPoint,
    /** Program and arguments; no shell. */
    command: z.array(z.string().min(1)).min(1).max(64),
    /** Of the points of tools: names, `*` for any run of characters; absent: all. */
    tools: z.array(HookedTools).min(1).max(64).optional(),
    timeoutMs: z.int().min(100).max(3_600_000).optional(),
    /** What counts when it fails or takes too long; absent: `deny` before, `allow` after. */
    onFailure: z.enum(['deny', 'allow']).optional(),
  })
  .refine(({ point, tools }) => tools === undefined || point.endsWith('-tool'), {
    path: ['tools'],
    message: 'only applies to before-tool and after-tool',
  })
export type HookConfig = z.infer<typeof HookConfig>

/** Where people hear of questions, and programs of the ends of runs; its messages are signed by the secret. */
const WebhookConfig = z
  .strictObject({
    url: z.url({ protocol: /^https?$/, error: 'expected an address that starts with https://' }).max(2_048),
    /** `whsec_` and base64. */
    secret: KeySource,
    /** Whether it may be an address of this machine or its network, and then also plain http. Absent: it may not. */
    local: z.boolean().optional(),
    /** What it hears of. Absent: questions that wait. */
    events: z.array(z.enum(webhookEvents)).min(1).optional(),
  })
  .refine(({ url, local }) => local === true || url.startsWith('https:'), {
    path: ['url'],
    message: 'expected an address that starts with https://, or local = true',
  })
const webhooksMax = 16

export const Config = z.strictObject({
  /** Model id when neither `--model` nor CAISSON_MODEL names one. */
  model: z.string().min(1).optional(),
  /** Models that are asked in this order where the run's own cannot answer; their servers are found as for `model`. */
  fallback: FallbackModels.default([]),
  /** What steps and sub-agents of a run may use besides its model: ids, or names with their ids. Absent: nothing. */
  stepModels: StepModels.optional(),
  /** How much models reason; absent: as they do by themselves. */
  effort: Effort.optional(),
  /** The provider when no model list decides; `offline` for the built-in stand-in. */
  provider: Name.optional(),
  providers: z
    .record(
      Name.refine((name) => !reserved.has(name), 'this name is reserved; choose another'),
      ProviderSettings,
    )
    .default({}),
  /** By model id as the provider knows it; the longest that fits holds. */
  prices: z.record(ModelPattern, PriceConfig).default({}),
  /** By model id as the provider knows it; the longest that fits holds. */
  models: z.record(ModelPattern, ModelConfig).default({}),
  limits: z
    .strictObject({
      maxRequests: z.int().min(1).optional(),
      maxTokens: z.int().min(1).optional(),
      maxCostUsd: z.number().positive().optional(),
      maxDepth: z.int().min(1).max(5).optional(),
    })
    .default({}),
  /** Of each run, unless its options say otherwise. */
  vm: z
    .strictObject({
      /** Time to wait for answers before the run goes to sleep, in ms; 0 for never. Absent: an hour. */
      sleepAfterMs: z
        .int()
        .min(0)
        .max(2 ** 31 - 1)
        .optional(),
    })
    .default({}),
  /** What is kept of all runs together; where it is reached no run begins. */
  kept: z
    .strictObject({
      /** Absent: 2,000. */
      maxRuns: z.int().min(1).optional(),
      /** On disk; absent: 100. */
      maxGiB: z.number().positive().optional(),
      /** The disks of ended runs, from which they can be forked; beyond a bound the oldest are removed. */
      moments: z
        .strictObject({
          /** Absent: 20. 0: none is kept. */
          maxRuns: z.int().min(0).optional(),
          /** On disk; absent: 4. */
          maxGiB: z.number().positive().optional(),
          /** Absent: 7. */
          maxDays: z.number().positive().optional(),
        })
        .default({}),
      /** Ended runs of a fleet, whose rows and files are removed beyond a bound, the first to end first. Absent: all are kept. */
      fleet: z
        .strictObject({
          maxRuns: z.int().min(0).optional(),
          /** Since their end. */
          maxDays: z.number().positive().optional(),
        })
        .default({}),
    })
    .prefault({}),
  /** How this host itself reaches the internet. */
  network: z
    .strictObject({
      /** `http://HOST:PORT` of a corporate proxy; absent: HTTPS_PROXY and NO_PROXY of the environment. */
      proxy: z.string().optional(),
      /** A PEM file of further certificate authorities. */
      ca: z.string().optional(),
    })
    .default({}),
  egress: z
    .strictObject({
      /** What no rule matches: refused, or put before the person. */
      default: z.enum(['deny', 'ask']).default('deny'),
      rules: z.array(EgressRule.superRefine(refuseUnreadable)).max(1_000).default([]),
    })
    .default({ default: 'deny', rules: [] }),
  secrets: z
    .record(z.string().regex(/^[A-Z][A-Z0-9_]{0,63}$/, 'expected A-Z 0-9 _'), SecretConfig)
    .default({}),
  search: SearchConfig.optional(),
  /** Provider of embeddings, for search by meaning. Absent: none. */
  embeddings: EmbeddingsConfig.optional(),
  /** How `caisson serve` tells people of questions that wait; see `specs/notifications.md`. */
  notify: z
    .strictObject({
      /** Time that a question waits before, in ms. Absent: 30,000. */
      afterMs: z.int().min(0).max(86_400_000).optional(),
      /** Time that a link to a question is valid, in ms. Absent: 24 hours. */
      linkMs: z
        .int()
        .min(1_000)
        .max(30 * 86_400_000)
        .optional(),
      /** Whether push services of browsers may be on this machine or its network. Absent: they may not. */
      localPush: z.boolean().optional(),
      /** Whether questions show on the desktop of the user, too. Absent: they do not. */
      desktop: z.boolean().optional(),
      /** By name. */
      webhooks: z
        .record(Name, WebhookConfig)
        .refine((webhooks) => Object.keys(webhooks).length <= webhooksMax, `expected at most ${webhooksMax}`)
        .default({}),
    })
    .prefault({}),
  /** By name; see `specs/mcp.md`. */
  mcpServers: McpServersConfig,
  /** Asked in this order. */
  hooks: z.array(HookConfig).max(64).default([]),
  skills: z
    .strictObject({
      /** Folders with skills, absolute or from `~/`; a later one wins. Absent: `skills` beside this file. */
      roots: z
        .array(z.string().regex(/^(?:\/|~\/)/, 'expected an absolute path, or one from ~/'))
        .max(16)
        .optional(),
    })
    .default({}),
  memory: z
    .strictObject({
      /** Whether agents read and propose notes at all. */
      enabled: z.boolean().default(true),
    })
    .default({ enabled: true }),
})
export type Config = z.infer<typeof Config>
/** The same before the defaults: what the file, or a program, has to say. */
export type ConfigInput = z.input<typeof Config>
