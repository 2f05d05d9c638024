/** Gateway paths of the web tools: JSON by a strict schema in and out. */
import { WebFetchAnswer, WebFetchRequest, WebSearchAnswer, WebSearchRequest } from '#specs/protocol/egress.ts'
import type { Web } from '../web/web.ts'
import type { GatewayServices } from './gateway.ts'
import { answerWith, limitOpen } from './json-service.ts'

/** Maximum open requests of one run; matches an agent's parallel calls in one turn. */
const openMaxRequests = 8

/** `/web/fetch` and `/web/search`, by exact path. */
export function serveWeb(web: Web): GatewayServices['paths'] {
  const paths: GatewayServices['paths'] = {
    '/web/fetch': {
      method: 'POST',
      serve: answerWith(WebFetchRequest, WebFetchAnswer, (request, signal) => web.fetch(request, signal)),
    },
    '/web/search': {
      method: 'POST',
      serve: answerWith(WebSearchRequest, WebSearchAnswer, (request, signal) => web.search(request, signal)),
    },
  }
  return limitOpen(paths, openMaxRequests, 'the web')
}
