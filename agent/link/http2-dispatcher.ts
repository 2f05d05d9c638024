/**
 * undici's Dispatcher over the guest's HTTP/2 session: `request(url, { dispatcher })` becomes a stream to the host.
 * Back-pressure both ways, one stream per request; no pool, redirects or upgrade. The origin is only a name.
 */
import type { ClientHttp2Stream, IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Dispatcher, errors } from 'undici'
import { type GuestHttp, HttpSessionLostError } from './http.ts'

/** The host reset the stream before the answer was complete. A retry can succeed. */
export class HttpStreamResetError extends Error {
  override name = 'HttpStreamResetError'
  readonly code = 'CAISSON_STREAM_RESET'
  readonly retryable = true
}

const defaultTimeoutMs = 300_000
/** Headers of an HTTP/1 connection, or of HTTP/2 itself. */
const hopByHop = new Set([
  'connection',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
])

export class Http2Dispatcher extends Dispatcher {
  readonly #http: GuestHttp
  readonly #sessionTimeoutMs: number
  readonly #running = new Set<Exchange>()
  #closed = false

  /** @param sessionTimeoutMs how long a request waits for a session; default 30 s */
  constructor(http: GuestHttp, { sessionTimeoutMs = 30_000 }: { sessionTimeoutMs?: number } = {}) {
    super()
    this.#http = http
    this.#sessionTimeoutMs = sessionTimeoutMs
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const exchange = new Exchange(options, handler)
    if (this.#closed) {
      exchange.fail(new errors.ClientClosedError())
      return false
    }
    this.#running.add(exchange)
    void exchange.run(this.#http, this.#sessionTimeoutMs).finally(() => this.#running.delete(exchange))
    return true
  }

  override close(): Promise<void>
  override close(callback: () => void): void
  override close(callback?: () => void): Promise<void> | void {
    this.#closed = true
    if (callback === undefined) return Promise.resolve()
    queueMicrotask(callback)
  }

  override destroy(): Promise<void>
  override destroy(error: Error | null): Promise<void>
  override destroy(callback: () => void): void
  override destroy(error: Error | null, callback: () => void): void
  override destroy(error?: Error | null | (() => void), callback?: () => void): Promise<void> | void {
    this.#closed = true
    const cause = error instanceof Error ? error : new errors.ClientDestroyedError()
    for (const exchange of this.#running) exchange.abort(cause)
    const done = typeof error === 'function' ? error : callback
    if (done === undefined) return Promise.resolve()
    queueMicrotask(done)
  }
}

/** One request and its response; also the controller passed to undici's handlers. */
class Exchange implements Dispatcher.DispatchController {
  readonly #options: Dispatcher.DispatchOptions
  readonly #handler: Dispatcher.DispatchHandler
  readonly #abort = new AbortController()
  #stream: ClientHttp2Stream | null = null
  #session: ClientHttp2Stream['session']
  #paused = false
  #over = false
  #timer: NodeJS.Timeout | null = null
  #settle: () => void = () => {}
  readonly #settled = new Promise<void>((resolve) => {
    this.#settle = resolve
  })
  rawHeaders: IncomingHttpHeaders | null = null
  rawTrailers: IncomingHttpHeaders | null = null

  constructor(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler) {
    this.#options = options
    this.#handler = handler
  }

  get aborted(): boolean {
    return this.#abort.signal.aborted
  }
  get reason(): Error | null {
    return this.aborted ? (this.#abort.signal.reason as Error) : null
  }
  get paused(): boolean {
    return this.#paused
  }
  pause(): void {
    this.#paused = true
    this.#stream?.pause()
  }
  resume(): void {
    this.#paused = false
    this.#stream?.resume()
  }
  abort(reason: Error): void {
    if (this.aborted || this.#over) return
    this.#abort.abort(reason)
    this.fail(reason)
  }

  /** Ends the exchange with `error`; only the first end counts. */
  fail(error: Error): void {
    if (this.#over) return
    this.#finish()
    // Destroy with an error: otherwise Node ends the stream as if the body were complete.
    this.#stream?.destroy(error)
    destroyBody(this.#options.body, error)
    this.#handler.onResponseError?.(this, error)
  }

  async run(http: GuestHttp, sessionTimeoutMs: number): Promise<void> {
    try {
      this.#handler.onRequestStart?.(this, {})
      if (this.#over) return
      const body = toReadable(this.#options.body)
      const stream = await http.openStream(toHeaders(this.#options, body), {
        signal: this.#abort.signal,
        sessionTimeoutMs,
        endStream: body === null,
      })
      if (this.#over) {
        stream.destroy()
        return
      }
      this.#receive(stream)
      if (body !== null) this.#send(body.stream, stream)
    } catch (error) {
      this.fail(error instanceof Error ? error : new Error(String(error)))
    }
    await this.#settled
  }

  #send(body: Readable, stream: ClientHttp2Stream): void {
    // A failing body must reset the stream, not end it as complete.
    body.on('error', (error) => this.fail(error))
    pipeline(body, stream).then(
      () => this.#guard(() => this.#handler.onRequestSent?.()),
      (error: Error) => {
        if (!body.readableEnded) this.fail(this.#streamError(stream, error))
      },
    )
  }

  #receive(stream: ClientHttp2Stream): void {
    this.#stream = stream
    // A destroyed stream no longer knows its session.
    this.#session = stream.session
    this.#expect(this.#options.headersTimeout, () => new errors.HeadersTimeoutError())
    stream.on('response', (headers) => this.#onResponse(stream, headers))
    stream.on('trailers', (trailers) => {
      this.rawTrailers = trailers
    })
    stream.on('error', (error) => this.fail(this.#streamError(stream, error)))
    stream.on('aborted', () => this.fail(this.#streamError(stream, null)))
    stream.on('close', () => this.fail(this.#streamError(stream, null)))
  }

  #onResponse(stream: ClientHttp2Stream, headers: IncomingHttpHeaders): void {
    const { ':status': status, ...rest } = headers as IncomingHttpHeaders & { ':status'?: number }
    this.rawHeaders = rest
    const expectData = (): void =>
      this.#expect(this.#options.bodyTimeout, () => new errors.BodyTimeoutError())
    expectData()
    this.#guard(() => this.#handler.onResponseStart?.(this, Number(status), rest))
    stream.on('data', (chunk: Buffer) => {
      expectData()
      this.#guard(() => this.#handler.onResponseData?.(this, chunk))
    })
    stream.on('end', () => this.#onEnd(stream))
    if (this.#paused) stream.pause()
  }

  #onEnd(stream: ClientHttp2Stream): void {
    if (stream.aborted || (stream.rstCode ?? 0) !== 0) this.fail(this.#streamError(stream, null))
    else if (!this.#over) {
      this.#finish()
      this.#handler.onResponseEnd?.(this, this.rawTrailers ?? {})
    }
  }

  /** A handler that throws ends its own exchange, as in undici. */
  #guard(call: () => void): void {
    if (this.#over) return
    try {
      call()
    } catch (error) {
      this.fail(error as Error)
    }
  }

  /** Starts the timeout for the next data; while the reader is paused, no timeout runs against the host. */
  #expect(timeoutMs: number | null | undefined, makeError: () => Error): void {
    if (this.#timer !== null) clearTimeout(this.#timer)
    const ms = timeoutMs ?? defaultTimeoutMs
    if (ms === 0 || this.#over) return
    this.#timer = setTimeout(() => {
      if (this.#paused) this.#expect(timeoutMs, makeError)
      else this.fail(makeError())
    }, ms)
  }

  #finish(): void {
    this.#over = true
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#settle()
  }

  #streamError(stream: ClientHttp2Stream, error: Error | null): Error {
    if (error instanceof HttpSessionLostError) return error
    if (this.#session === undefined || this.#session.destroyed || this.#session.closed) {
      return new HttpSessionLostError('the session with the host ended before the answer was complete')
    }
    const reset = `the host reset the stream (code ${stream.rstCode ?? 0}) before the answer was complete`
    return new HttpStreamResetError(error === null ? reset : `${reset}: ${error.message}`)
  }
}

type Body = { stream: Readable; length: number | null } | null

function toReadable(body: Dispatcher.DispatchOptions['body']): Body {
  if (body === null || body === undefined) return null
  if (body instanceof Readable) return { stream: body, length: null }
  if (typeof body === 'string' || body instanceof Uint8Array) {
    const bytes = Buffer.from(body as string)
    return { stream: Readable.from([bytes], { objectMode: false }), length: bytes.length }
  }
  if (
    typeof body === 'object' &&
    (Symbol.asyncIterator in body || Symbol.iterator in body) &&
    !('append' in body)
  ) {
    return { stream: Readable.from(body as AsyncIterable<Buffer>, { objectMode: false }), length: null }
  }
  throw new errors.InvalidArgumentError('body must be a string, bytes, a Readable or an iterable of bytes')
}

function destroyBody(body: Dispatcher.DispatchOptions['body'], error: Error): void {
  if (body instanceof Readable && !body.destroyed) body.on('error', () => {}).destroy(error)
}

function toHeaders(options: Dispatcher.DispatchOptions, body: Body): OutgoingHttpHeaders {
  const origin = new URL(String(options.origin ?? 'http://gateway'))
  const query =
    options.query === undefined ? '' : `?${new URLSearchParams(options.query as Record<string, string>)}`
  const headers: OutgoingHttpHeaders = {
    ':method': options.method,
    ':scheme': origin.protocol.slice(0, -1),
    ':authority': origin.host,
    ':path': `${options.path}${query}`,
  }
  for (const [name, value] of headerEntries(options.headers)) {
    const lower = name.toLowerCase()
    if (value !== undefined && value !== null && !hopByHop.has(lower)) headers[lower] = value
  }
  if (body?.length != null) headers['content-length'] ??= body.length
  return headers
}

function headerEntries(
  headers: Dispatcher.DispatchOptions['headers'],
): [string, string | string[] | undefined][] {
  if (headers === null || headers === undefined) return []
  if (Array.isArray(headers)) {
    const flat = headers as string[]
    return Array.from({ length: flat.length >> 1 }, (_, index) => [
      flat[2 * index] ?? '',
      flat[2 * index + 1],
    ])
  }
  if (Symbol.iterator in headers) return [...(headers as Iterable<[string, string | string[] | undefined]>)]
  return Object.entries(headers as Record<string, string | string[] | undefined>)
}
