/**
 * The search of the web tools: one request to the provider of the user's configuration, by its documented HTTP form. The
 * provider is reached as the user named it, past the egress policy, like the model's server; the guest chooses the words
 * of the query and nothing else of the request.
 */
import { type Dispatcher, request as send } from 'undici'
import type { WebSearchAnswer, WebSearchRequest } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { SearchConfig } from '../config/schema.ts'
import type { Egress } from '../egress/egress.ts'
import { parseJson } from '../files/json.ts'
import type { KeySource } from '../keys/key-source.ts'
import type { Secret } from '../keys/secret.ts'
import { type GatewayErrorCode, gatewayError, type WireError } from '../net/gateway-error.ts'
import { createRedaction } from '../secrets/redaction.ts'
import { searchDemonstration } from './demo-search.ts'
import { readProvider, type SearchProvider } from './search-providers.ts'

interface SearchOptions {
  readonly config: SearchConfig | undefined
  /** Without a provider: give demonstration results instead of a refusal. Default false. */
  readonly isOffline?: boolean
  readonly egress: Pick<Egress, 'record'>
  /** Reads the provider's key, with each search. */
  resolveKey(source: KeySource): Promise<Result<Secret, string>>
  /** For the user's log: why the key cannot be read. The guest learns only that it failed. */
  readonly warn?: (text: string) => void
  /** undici's, for one search: runs make few of them, and no connection is to outlive its own. */
  dispatcher(): Dispatcher
  /** Default 20 s. */
  readonly timeoutMs?: number
  /** Searches of one run, which may cost money each; default 500. */
  readonly maxSearches?: number
}

const answerMaxBytes = 4 * 1024 * 1024
const defaultCount = 8
const notConfigured =
  'No search provider is configured on the host. Do without a search: fetch known addresses, or say in your answer that ' +
  'the user can set one up in config.toml, for example: [search] provider = "searxng", url = "https://search.example.org"; ' +
  'or provider = "brave" or "tavily" with key = { keyring = "NAME" }.'

/** The search of one run. */
export function createSearch(
  options: SearchOptions,
): (request: WebSearchRequest, signal: AbortSignal) => Promise<Result<WebSearchAnswer, WireError>> {
  const maxSearches = options.maxSearches ?? 500
  let searches = 0
  return async (request, signal) => {
    if (options.config === undefined && options.isOffline === true)
      return { ok: true, value: searchDemonstration(request) }
    if (options.config === undefined) return failure('not_configured', notConfigured)
    const provider = readProvider(options.config)
    if (!provider.ok) return failure('not_configured', provider.error)
    if (searches >= maxSearches) {
      return failure(
        'limit_requests',
        `The run has made its ${maxSearches} searches. Work with what was found.`,
      )
    }
    searches += 1
    return await search(provider.value, request, options, signal)
  }
}

async function search(
  provider: SearchProvider,
  { query, count = defaultCount }: WebSearchRequest,
  options: SearchOptions,
  outer: AbortSignal,
): Promise<Result<WebSearchAnswer, WireError>> {
  const key = provider.key === null ? null : await options.resolveKey(provider.key)
  if (key !== null && !key.ok) {
    options.warn?.(`the key of the search provider cannot be read: ${key.error}`)
    const remedy = "the user finds out why with `caisson config check` or in the run's log"
    return failure(
      'not_configured',
      `The key of the search provider ${provider.name} cannot be read on the host; ${remedy}.`,
    )
  }
  const secret = key?.value.reveal() ?? null
  const redaction = createRedaction(secret === null ? [] : [secret])
  const asked = provider.build(query, count, secret ?? '')
  const late = AbortSignal.timeout(options.timeoutMs ?? 20_000)
  const signal = AbortSignal.any([outer, late])
  const started = performance.now()
  let bytesIn = 0
  const answer = await ask()
  options.egress.record({
    kind: 'search',
    target: `${asked.method} ${provider.url}`.slice(0, limits.lineMaxChars),
    rule: `the search provider of the configuration: ${provider.name}`,
    bytesOut: asked.url.length + (asked.body?.length ?? 0),
    bytesIn,
    durationMs: Math.round(performance.now() - started),
    ...(answer.ok ? {} : { error: answer.error.message.slice(0, limits.lineMaxChars) }),
  })
  return answer

  async function ask(): Promise<Result<WebSearchAnswer, WireError>> {
    const dispatcher = options.dispatcher()
    try {
      const response = await send(asked.url, {
        dispatcher,
        method: asked.method,
        headers: { ...asked.headers, accept: 'application/json', 'user-agent': 'caisson/0.1 (+web-search)' },
        ...(asked.body === undefined ? {} : { body: asked.body }),
        signal,
      })
      response.body.on('error', () => undefined)
      const parts: Buffer[] = []
      for await (const chunk of response.body as AsyncIterable<Buffer>) {
        bytesIn += chunk.length
        if (bytesIn > answerMaxBytes) {
          return failure(
            'response_too_large',
            `The answer of ${provider.name} is larger than ${answerMaxBytes} bytes.`,
          )
        }
        parts.push(chunk)
      }
      const text = redaction.text(Buffer.concat(parts).toString('utf8'))
      if (response.statusCode !== 200) return refusal(provider, response.statusCode, text)
      const results = provider.read(parseJson(text))
      if (results !== null) return { ok: true, value: { results: results.slice(0, count) } }
      return failure('upstream_broken', `The answer of ${provider.name} is not of its documented form.`)
    } catch (cause) {
      if (late.aborted) return failure('upstream_timeout', `${provider.name} did not answer in time.`)
      if (outer.aborted) return failure('closed', 'The search was cancelled.')
      const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown'
      return failure('upstream_unreachable', `${provider.name} cannot be reached (${code}).`)
    } finally {
      await dispatcher.destroy().catch(() => undefined)
    }
  }
}

/** Describes a status, and says when only the user can fix the cause. */
function refusal(provider: SearchProvider, status: number, text: string): { ok: false; error: WireError } {
  const words = provider.readError(parseJson(text))?.replaceAll(/\s+/g, ' ').slice(0, 300)
  const said = words === undefined ? '' : ` It says: ${words}`
  const remedy = provider.remedies[status]
  if (remedy !== undefined)
    return failure('not_configured', `${provider.name} refused the search (${status}): ${remedy}.${said}`)
  if (status === 429)
    return failure(
      'limit_concurrency',
      `${provider.name} is asked too often (429); wait before the next search.${said}`,
    )
  return failure('upstream_broken', `${provider.name} answered with status ${status}.${said}`)
}

function failure(code: GatewayErrorCode, message: string): { ok: false; error: WireError } {
  return { ok: false, error: gatewayError(code, message) }
}
