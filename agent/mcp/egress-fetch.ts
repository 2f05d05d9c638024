/**
 * Sends requests to MCP servers through the host, unencrypted up to it. There the host applies its policy, inserts
 * secrets and starts TLS. A refusal fails with the host's message; redirects are returned, never followed.
 */
import type { ClientHttp2Stream } from 'node:http2'
import type { FetchLike } from '@modelcontextprotocol/client'
import { connectionFields } from '#specs/protocol/proxy.ts'
import { type AnswerHeaders, openEgressStream, type StreamOpener } from '../proxy/egress-stream.ts'
import { Gate } from '../proxy/gate.ts'

/** Maximum number of requests of all servers of a run; programs have their own limit. */
const gateOptions = { maxOpen: 16, waitMs: 10_000, resetBurst: 64, resetsPerSecond: 4 }
const bodyMaxBytes = 16 * 1024 * 1024
const withoutBody = new Set([101, 204, 205, 304])

/** @param http the path to the host */
export function createEgressFetch(http: StreamOpener): FetchLike {
  const gate = new Gate(gateOptions)
  return async (address, init = {}) => {
    const url = new URL(address)
    const body = bodyOf(init.body)
    const { signal } = init
    signal?.throwIfAborted()
    const headers = {
      ...plainHeaders(new Headers(init.headers)),
      ...(url.protocol === 'https:' ? { 'caisson-upgrade': 'https' } : {}),
      ...(body === null ? {} : { 'content-length': String(body.length) }),
      ':method': init.method ?? 'GET',
      ':scheme': 'http',
      ':authority': url.host,
      ':path': `${url.pathname}${url.search}`,
    }
    const send = () =>
      openEgressStream({ http, gate }, headers, {
        signal: signal ?? new AbortController().signal,
        ...(body === null ? {} : { send: (stream: ClientHttp2Stream) => void stream.end(body) }),
      })
    let opened = await send()
    signal?.throwIfAborted()
    // The server did nothing with the request: it refused the token.
    if (opened.kind === 'refused' && opened.code === 'token_renewed') opened = await send()
    signal?.throwIfAborted()
    if (opened.kind === 'refused') throw new Error(`the host did not let it through: ${opened.reason}`)
    return toResponse(opened.stream, opened.headers, url, signal ?? undefined)
  }
}

function toResponse(
  stream: ClientHttp2Stream,
  answer: AnswerHeaders,
  url: URL,
  signal: AbortSignal | undefined,
): Response {
  const status = answer[':status'] ?? 502
  const headers = new Headers()
  for (const [name, value] of Object.entries(answer))
    if (!name.startsWith(':') && value !== undefined) headers.set(name, String(value))
  const abort = (): void => void stream.destroy(new Error('the request was given up'))
  signal?.addEventListener('abort', abort, { once: true })
  stream.once('close', () => signal?.removeEventListener('abort', abort))
  const hasBody = !withoutBody.has(status)
  if (!hasBody) stream.resume()
  const body = hasBody ? toBody(stream) : null
  const response = new Response(body, { status: Math.min(599, Math.max(200, status)), headers })
  return Object.defineProperties(response, { url: { value: url.href } })
}

/**
 * Converts a stream to a body. Node's own conversion throws an unhandled error when a body is abandoned as its stream
 * ends.
 */
function toBody(stream: ClientHttp2Stream): ReadableStream<Uint8Array<ArrayBuffer>> {
  const pieces = stream.iterator({ destroyOnReturn: true })
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await pieces.next()
      if (done === true) controller.close()
      else controller.enqueue(new Uint8Array(value as Buffer))
    },
    async cancel() {
      stream.destroy()
      await pieces.return?.()
    },
  })
}

function bodyOf(body: unknown): Buffer | null {
  if (body === undefined || body === null) return null
  if (typeof body !== 'string') throw new TypeError('expected a body of text')
  const bytes = Buffer.from(body)
  if (bytes.length > bodyMaxBytes) throw new RangeError(`a request of more than ${bodyMaxBytes} bytes`)
  return bytes
}

/** Hop-by-hop headers are not forwarded. */
function plainHeaders(headers: Headers): Record<string, string> {
  return Object.fromEntries(
    [...headers].filter(([name]) => !connectionFields.has(name) && name !== 'content-length'),
  )
}
