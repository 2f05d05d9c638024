/**
 * Sends one GET over an open connection: TLS for https, HTTP/1.1, a size-limited body, optional compression. Follows no
 * redirects and stores nothing.
 */
import { type IncomingMessage, request as sendHttp } from 'node:http'
import type { Duplex, Transform } from 'node:stream'
import { pipeline } from 'node:stream'
import { connect as connectTls, type SecureContext, type TLSSocket } from 'node:tls'
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from 'node:zlib'
import type { Result } from '#specs/protocol/error.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'
import { isAddress } from '../net/target.ts'

const headerMaxBytes = 64 * 1024

/** A body, possibly truncated. */
export interface ReadBody {
  readonly bytes: Buffer
  /** Bytes received over the connection. */
  readonly rawBytes: number
  /** Whether the body was truncated. */
  readonly cut: boolean
}

/** Starts TLS on `socket` for the host of `target`. The certificate must match the host and be trusted by `context`. */
export function startTls(
  socket: Duplex,
  { host }: Target,
  context: SecureContext,
  signal: AbortSignal,
): Promise<Result<TLSSocket, WireError>> {
  const { promise, resolve } = Promise.withResolvers<Result<TLSSocket, WireError>>()
  const secured = connectTls({
    socket,
    host,
    ...(isAddress(host) ? {} : { servername: host }),
    secureContext: context,
    ALPNProtocols: ['http/1.1'],
    rejectUnauthorized: true,
  })
  const end = (error: WireError): void => {
    secured.destroy()
    resolve({ ok: false, error })
  }
  const onAbort = (): void => end(interrupted)
  secured.once('secureConnect', () => resolve({ ok: true, value: secured }))
  secured.on('error', (error) => end(describeTlsError(host, error)))
  secured.once('close', () =>
    end(gatewayError('upstream_broken', `${host} closed the connection before TLS was established.`)),
  )
  if (signal.aborted) onAbort()
  else signal.addEventListener('abort', onAbort, { once: true })
  return promise.finally(() => signal.removeEventListener('abort', onAbort))
}

/** Sends the request and resolves with the response headers. The caller must read or destroy the body. */
export function sendGet(
  connection: Duplex,
  target: Target,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Result<IncomingMessage, WireError>> {
  const { promise, resolve } = Promise.withResolvers<Result<IncomingMessage, WireError>>()
  const request = sendHttp({
    createConnection: () => connection,
    method: 'GET',
    path: target.path ?? '/',
    headers: { ...headers },
    setHost: false,
    maxHeaderSize: headerMaxBytes,
    insecureHTTPParser: false,
    signal,
  })
  request.once('response', (response) => resolve({ ok: true, value: response }))
  // Protocol upgrades are not requested.
  request.once('upgrade', (_, socket) => socket.destroy())
  request.on('error', (error) => resolve({ ok: false, error: describeHttpError(target.host, error, signal) }))
  request.once('close', () =>
    resolve({
      ok: false,
      error: gatewayError('upstream_broken', `${target.host} closed the connection without an answer.`),
    }),
  )
  request.end()
  return promise
}

/**
 * The decompressed body, limited to `maxBytes` before and after decompression.
 * @param host for errors
 */
export async function readResponseBody(
  response: IncomingMessage,
  host: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<Result<ReadBody, WireError>> {
  const coding = (response.headers['content-encoding'] ?? 'identity').trim().toLowerCase()
  let rawBytes = 0
  let cut = false
  async function* raw(): AsyncGenerator<Buffer> {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      rawBytes += chunk.length
      cut ||= rawBytes > maxBytes
      yield chunk
      if (cut) return
    }
  }
  const parts: Buffer[] = []
  let bytes = 0
  try {
    const first = coding === 'deflate' ? await firstOf(raw()) : { head: null, all: raw() }
    const decoder = createDecoder(coding, first.head)
    if (decoder === null) {
      const text = `${host} answered with content-encoding ${JSON.stringify(coding.slice(0, 40))}, which was not requested.`
      return { ok: false, error: gatewayError('upstream_broken', text) }
    }
    const body = decoder === 'none' ? first.all : pipeline(first.all, decoder, () => undefined)
    for await (const chunk of body as AsyncIterable<Buffer>) {
      parts.push(chunk)
      bytes += chunk.length
      if (bytes <= maxBytes) continue
      cut = true
      break
    }
  } catch (cause) {
    // Truncated compressed data has no valid end.
    if (!cut) return { ok: false, error: describeHttpError(host, cause, signal) }
  } finally {
    response.destroy()
  }
  return { ok: true, value: { bytes: Buffer.concat(parts).subarray(0, maxBytes), rawBytes, cut } }
}

/** Null for an unrequested coding; `none` if there is none. */
function createDecoder(coding: string, head: Buffer | null): Transform | 'none' | null {
  switch (coding) {
    case 'identity':
    case '':
      return 'none'
    case 'gzip':
    case 'x-gzip':
      return createGunzip()
    case 'br':
      return createBrotliDecompress()
    case 'deflate':
      // Some servers omit the zlib header that the standard requires (RFC 9110 8.4.1.2).
      return ((head?.[0] ?? 0x78) & 0x0f) === 8 ? createInflate() : createInflateRaw()
    default:
      return null
  }
}

/** The first chunk, and an iterable of all chunks including the first. */
async function firstOf(
  chunks: AsyncGenerator<Buffer>,
): Promise<{ head: Buffer | null; all: AsyncGenerator<Buffer> }> {
  const { value, done } = await chunks.next()
  const head = done === true ? null : value
  async function* all(): AsyncGenerator<Buffer> {
    if (head !== null) yield head
    yield* chunks
  }
  return { head, all: all() }
}

const interrupted = gatewayError('upstream_timeout', 'The request was cancelled.')

function describeTlsError(host: string, error: Error): WireError {
  const code = codeOf(error)
  if (/CERT|ALTNAME|SELF_SIGNED|ISSUER|VERIFY/.test(code)) {
    const text = `The certificate of ${host} is not trusted (${code}), so nothing was sent to it. Do not bypass this; tell the user.`
    return gatewayError('upstream_untrusted', text)
  }
  return gatewayError('upstream_broken', `TLS with ${host} failed (${code}).`)
}

function describeHttpError(host: string, cause: unknown, signal: AbortSignal): WireError {
  if (signal.aborted) return interrupted
  return gatewayError('upstream_broken', `The answer of ${host} broke off or is not HTTP (${codeOf(cause)}).`)
}

function codeOf(cause: unknown): string {
  if (!(cause instanceof Error)) return 'unknown'
  return 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.name
}
