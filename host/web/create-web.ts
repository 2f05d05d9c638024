/** The web tools of one run, put together from its egress, the user's secrets and the search of the configuration. */
import type { Result } from '#specs/protocol/error.ts'
import type { SearchConfig } from '../config/schema.ts'
import type { Egress } from '../egress/egress.ts'
import type { KeySource } from '../keys/key-source.ts'
import type { Secret } from '../keys/secret.ts'
import type { Network } from '../net/network.ts'
import type { Secrets } from '../secrets/secrets.ts'
import { fetchPage } from './fetch-page.ts'
import { createSearch } from './search.ts'
import type { Web } from './web.ts'

export interface WebOptions {
  readonly egress: Egress
  readonly secrets: Secrets
  readonly network: Network
  readonly search: SearchConfig | undefined
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
