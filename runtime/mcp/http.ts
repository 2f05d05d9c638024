/**
 * MCP over HTTP: the SDK's transports with a size limit on each answer or stream event. A server that exceeds it is
 * disconnected. Redirects are followed within its origin alone.
 */
import type { FetchLike, Transport } from '@modelcontextprotocol/client'
import type { McpServerConfig } from './config.ts'

export const answerMaxBytes = 16 * 1024 * 1024

const lineFeed = 10

/** @param fetchOne makes one request, without following redirects when asked; default this process's `fetch` */
export async function openHttpTransport(
  { transport, url = '', headers }: McpServerConfig,
  fetchOne: FetchLike = fetch,
): Promise<Transport> {
  const fetchBounded: FetchLike = async (address, init) => {
    const response = await fetchOne(address, init)
    return boundResponse(response, () => void opened.close().catch(() => undefined))
  }
  const options = {
    fetch: fetchBounded,
    ...(headers === undefined ? {} : { requestInit: { headers: { ...headers } } }),
  }
  const { SSEClientTransport, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client')
  const Opened = transport === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport
  const opened = new Opened(new URL(url), options)
  return opened
}

/** The same response with a body that fails beyond the limit. */
function boundResponse(response: Response, onTooMuch: () => void): Response {
  const { body, status, statusText, headers } = response
  if (body === null) return response
  const isStream = headers.get('content-type')?.includes('text/event-stream') === true
  const meter = new Meter(isStream)
  const bounded = body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform: (piece, controller) => {
        if (meter.take(piece) <= answerMaxBytes) return controller.enqueue(piece)
        controller.error(new Error(`the MCP server said more than ${answerMaxBytes} bytes at once`))
        onTooMuch()
      },
    }),
  )
  const answer = new Response(bounded, { status, statusText, headers })
  // Properties that a constructed response lacks.
  return Object.defineProperties(answer, { url: { value: response.url } })
}

/** Counts the bytes of an answer, or of an event, which an empty line ends. */
class Meter {
  readonly #isStream: boolean
  #bytes = 0
  #lineBytes = 0

  constructor(isStream: boolean) {
    this.#isStream = isStream
  }

  take(piece: Uint8Array): number {
    let from = 0
    for (let end = piece.indexOf(lineFeed); this.#isStream && end >= 0; end = piece.indexOf(lineFeed, from)) {
      this.#lineBytes += end - from
      // No field name has one letter: this is the other half of the line end.
      this.#bytes = this.#lineBytes <= 1 ? 0 : this.#bytes + this.#lineBytes + 1
      this.#lineBytes = 0
      from = end + 1
    }
    this.#lineBytes += piece.length - from
    return this.#bytes + this.#lineBytes
  }
}
