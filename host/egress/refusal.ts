/** Reports a refusal to the guest: a status, the gateway's JSON, and a header that only the gateway sets. */
import type { ServerHttp2Stream } from 'node:http2'
import { gatewayErrorHeader } from '#specs/protocol/proxy.ts'
import { errorBody, type WireError } from '../net/gateway-error.ts'

const lastWordMs = 2_000

/** Sends an error, unless a response was sent or the guest is gone. */
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
 * Answers a CONNECT with 200. If the host ends the tunnel, a trailer has the reason: HTTP/2 has no other place for it
 * after the first bytes, and both ends are Caisson's.
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

  /** Ends the tunnel with a reason; immediately if the guest does not read it. */
  refuse(reason: string): void {
    const stream = this.#stream
    if (stream.destroyed) return
    this.#reason = reason.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 500)
    stream.end()
    const late = setTimeout(() => stream.destroy(new Error(reason)), lastWordMs)
    stream.once('close', () => clearTimeout(late))
    // Discards what the guest still sends.
    stream.resume()
  }
}
