/** What the web tools ask of the host: one page, or a search. gateway/serve-tools.ts serves it to the guest. */
import type {
  WebFetchAnswer,
  WebFetchRequest,
  WebSearchAnswer,
  WebSearchRequest,
} from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { WireError } from '../net/gateway-error.ts'

export interface Web {
  /** Follows redirects; every hop is judged, connected and journaled by the run's egress. */
  fetch(request: WebFetchRequest, signal: AbortSignal): Promise<Result<WebFetchAnswer, WireError>>
  /** Asks the search provider of the user's configuration. */
  search(request: WebSearchRequest, signal: AbortSignal): Promise<Result<WebSearchAnswer, WireError>>
}
