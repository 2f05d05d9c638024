/** How the guest is told that something will not be done: a status, the gateway's JSON, and a header that only the gateway sets. */
import type { ServerHttp2Stream } from 'node:http2'
import { gatewayErrorHeader } from '#specs/protocol/proxy.ts'
import { errorBody, type WireError } from '../net/gateway-error.ts'

const lastWordMs = 2_000

/** Answers with an error, if nothing was answered yet and the guest is still there. */
export function refuse(stream: ServerHttp2Stream, error: WireError): void {
  if (stream.destroyed || stream.closed || stream.headersSent) return
  const body = `${errorBody(error)}\n`
  stream.respond({
    ':status': error.status,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    [gatewayErrorHeader]: error.code,
  })
  stream.end(body)
}

/**
 * Answers a CONNECT with 200. What ends the tunnel against the guest's will is told in a trailer: HTTP/2 has no other
 * place for it once bytes pass, and both ends are ours.
 */
export class OpenTunnel {
  readonly #stream: ServerHttp2Stream
  #reason: string | null = null

  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream
    stream.on('wantTrailers', () => {
      if (!stream.destroyed)
        stream.sendTrailers(this.#reason === null ? {} : { [gatewayErrorHeader]: this.#reason })
    })
    stream.respond({ ':status': 200 }, { waitForTrailers: true })
  }

  /** Ends it with a reason; at once where the guest does not take even that. */
  refuse(reason: string): void {
    const stream = this.#stream
    if (stream.destroyed) return
    this.#reason = reason.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 500)
    stream.end()
    const late = setTimeout(() => stream.destroy(new Error(reason)), lastWordMs)
    stream.once('close', () => clearTimeout(late))
    // Nothing of what the guest still sends is wanted.
    stream.resume()
  }
}
