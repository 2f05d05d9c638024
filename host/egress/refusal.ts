/** How the guest is told that something will not be done: a status, the gateway's JSON, and a header that only the gateway sets. */
import type { ServerHttp2Stream } from 'node:http2'
import { errorBody, type WireError } from '../gateway/gateway-error.ts'

/** Marks an answer as the gateway's own; it is taken off answers of servers. */
export const errorHeader = 'caisson-error'

/** Answers with an error, if nothing was answered yet and the guest is still there. */
export function refuse(stream: ServerHttp2Stream, error: WireError): void {
  if (stream.destroyed || stream.closed || stream.headersSent) return
  const body = `${errorBody(error)}\n`
  stream.respond({
    ':status': error.status,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    [errorHeader]: error.code,
  })
  stream.end(body)
}
