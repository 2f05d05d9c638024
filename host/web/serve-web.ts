/** The paths of the web tools under the name `gateway`: a small JSON body in, by a strict schema, and JSON out. */
import { WebFetchAnswer, WebFetchRequest, WebSearchAnswer, WebSearchRequest } from '#specs/protocol/egress.ts'
import type { GatewayServices, ServeStream } from '../gateway/gateway.ts'
import { gatewayError } from '../gateway/gateway-error.ts'
import { answerWith } from '../gateway/json-service.ts'
import { sendError } from '../gateway/relay.ts'
import type { Web } from './web.ts'

/** Requests of one run that may be open at once: as many as an agent's calls of one turn. */
const openMaxRequests = 8

/** `/web/fetch` and `/web/search`, by exact path. */
export function serveWeb(web: Web): GatewayServices['paths'] {
  let open = 0
  const bounded =
    (serve: ServeStream): ServeStream =>
    async (stream, headers, signal) => {
      if (open >= openMaxRequests) {
        const text = `More than ${openMaxRequests} requests for the web at once. Wait for one of them.`
        return sendError(stream, gatewayError('limit_concurrency', text))
      }
      open += 1
      try {
        await serve(stream, headers, signal)
      } finally {
        open -= 1
      }
    }
  return {
    '/web/fetch': {
      method: 'POST',
      serve: bounded(
        answerWith(WebFetchRequest, WebFetchAnswer, (request, signal) => web.fetch(request, signal)),
      ),
    },
    '/web/search': {
      method: 'POST',
      serve: bounded(
        answerWith(WebSearchRequest, WebSearchAnswer, (request, signal) => web.search(request, signal)),
      ),
    },
  }
}
