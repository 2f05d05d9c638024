/**
 * The web tools of a run: one page, or a search, from the run's egress, the user's secrets and the configured search. Their
 * answers are recorded, and replayed without a network.
 */
import type * as z from 'zod'
import {
  WebFetchAnswer,
  type WebFetchRequest,
  WebSearchAnswer,
  type WebSearchRequest,
} from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { SearchConfig } from '../config/schema.ts'
import type { Egress } from '../egress/egress.ts'
import type { KeySource } from '../keys/key-source.ts'
import type { Secret } from '../keys/secret.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Network } from '../net/network.ts'
import type { Recorder } from '../recording/recorder.ts'
import type { Recording } from '../recording/replay.ts'
import type { Secrets } from '../secrets/secrets.ts'
import { fetchPage } from './fetch-page.ts'
import { createSearch } from './search.ts'

export interface Web {
  /** Follows redirects; every hop is judged, connected and journaled by the run's egress. */
  fetch(request: WebFetchRequest, signal: AbortSignal): Promise<Result<WebFetchAnswer, WireError>>
  /** Asks the search provider of the user's configuration. */
  search(request: WebSearchRequest, signal: AbortSignal): Promise<Result<WebSearchAnswer, WireError>>
}

interface WebOptions {
  readonly egress: Egress
  readonly secrets: Secrets
  readonly network: Network
  readonly search: SearchConfig | undefined
  /** Whether the offline model answers the run: without a provider its searches give demonstration results. */
  readonly isOffline?: boolean
  /** For the user's log: what of the configuration could not be used. */
  readonly warn?: (text: string) => void
  /** For one page, all its hops together; default 30 s. */
  readonly pageTimeoutMs?: number
  /** Reads the key of the search provider, with each search. */
  resolveKey(source: KeySource): Promise<Result<Secret, string>>
}

export function createWeb(options: WebOptions): Web {
  const { egress, secrets, network, search, resolveKey, pageTimeoutMs, warn } = options
  const ask = createSearch({
    isOffline: options.isOffline === true,
    config: search,
    egress,
    resolveKey,
    ...(warn === undefined ? {} : { warn }),
    dispatcher: () => network.dispatcher(),
  })
  const fetchOptions = {
    egress,
    secrets,
    secureContext: () => network.secureContext(),
    ...(pageTimeoutMs === undefined ? {} : { timeoutMs: pageTimeoutMs }),
  }
  return {
    fetch: (request, signal) => fetchPage(request, fetchOptions, signal),
    search: ask,
  }
}

/** The same, each exchange recorded as the guest gets it: with placeholders, and secrets taken out. */
export function recordWeb(web: Web, recorder: Pick<Recorder, 'web'>): Web {
  return {
    async fetch(request, signal) {
      const answer = await web.fetch(request, signal)
      recorder.web('fetch', request, answer)
      return answer
    },
    async search(request, signal) {
      const answer = await web.search(request, signal)
      recorder.web('search', request, answer)
      return answer
    },
  }
}

/** What was recorded; nothing goes to a network. */
export function replayWeb(recording: Pick<Recording, 'web'>): Web {
  return {
    fetch: async (request) => read(WebFetchAnswer, recording.web('fetch', request)),
    search: async (request) => read(WebSearchAnswer, recording.web('search', request)),
  }
}

function read<T>(schema: z.ZodType<T>, answer: Result<unknown, WireError>): Result<T, WireError> {
  if (!answer.ok) return answer
  const value = schema.safeParse(answer.value)
  if (value.success) return { ok: true, value: value.data }
  const text = 'The recording holds an answer of the web that is not of its form; run without option replay.'
  return { ok: false, error: gatewayError('not_recorded', text) }
}
