/**
 * HTTP from the guest: one HTTP/2 client session over `caisson.http` per host session. A request whose session ends
 * fails at once with {@link HttpSessionLostError}; a new request waits for the next session up to a deadline. The
 * guest has no other network.
 */
import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  IncomingHttpHeaders,
  OutgoingHttpHeaders,
} from 'node:http2'
import { type Duplex, Readable } from 'node:stream'

const streamWindowBytes = 1024 * 1024
const sessionWindowBytes = 4 * 1024 * 1024
const waitForSessionMs = 30_000

/** The session is missing or ended before the answer was complete. A retry can succeed. */
export class HttpSessionLostError extends Error {
  override name = 'HttpSessionLostError'
  readonly code = 'CAISSON_SESSION_LOST'
  readonly retryable = true
}

/** The host reset the stream before the answer was complete. A retry can succeed. */
export class HttpStreamResetError extends Error {
  override name = 'HttpStreamResetError'
  readonly code = 'CAISSON_STREAM_RESET'
  readonly retryable = true
}

/** The host sent no response headers in time. */
class HeadersTimeoutError extends Error {
  override name = 'HeadersTimeoutError'
}

export interface OpenStreamOptions {
  signal?: AbortSignal
  /** How long to wait for a session; Infinity: as long as it takes. Default 30 s. */
  sessionTimeoutMs?: number
  /** Whether the request has no body. Default false: the caller writes and ends the stream. */
  endStream?: boolean
}

export interface PostOptions {
  readonly headers?: OutgoingHttpHeaders
  readonly body: string | Uint8Array
  readonly signal: AbortSignal
  /** How long to wait for the response headers, in milliseconds; 0, the default: indefinitely. */
  readonly headersTimeout?: number
  /** How long to wait for a session; Infinity: as long as it takes. Default 30 s. */
  readonly sessionTimeoutMs?: number
}

/** An answer of the host. */
export interface HttpAnswer {
  readonly statusCode: number
  readonly headers: IncomingHttpHeaders
  /** Fails when the answer ends before it is complete. */
  readonly body: Readable
}

export class GuestHttp {
  #session: ClientHttp2Session | null = null
  #socket: Duplex | null = null
  #lost = 'no session has been opened yet'
  #closed = false
  readonly #waiting = new Set<() => void>()

  /** Whether requests can be sent now. */
  get connected(): boolean {
    return this.#session !== null
  }

  /** Takes the stream of a new session; HTTP/2 starts when the event loop is free. */
  connect(socket: Duplex): void {
    this.#socket = socket
    // Loading HTTP/2 is a fifth of the agent's start; the first report to the host need not wait for it.
    setImmediate(() => {
      if (this.#socket === socket && !socket.destroyed) this.#start(socket)
    })
  }

  #start(socket: Duplex): void {
    const session = process.getBuiltinModule('node:http2').connect('http://gateway', {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: streamWindowBytes },
      maxSessionMemory: 32,
    })
    this.#session = session
    session.on('error', () => {})
    session.on('close', () => {
      if (this.#session === session) this.#session = null
      socket.destroy()
    })
    session.once('connect', () => session.setLocalWindowSize(sessionWindowBytes))
    this.#wakeAll()
  }

  /** Ends the session; its open requests fail. */
  disconnect(message: string): void {
    this.#lost = message
    const session = this.#session
    this.#session = null
    if (session === null) this.#socket?.destroy()
    this.#socket = null
    session?.destroy(new HttpSessionLostError(message))
  }

  close(): void {
    this.#closed = true
    this.disconnect('the agent closed its link')
    this.#wakeAll()
  }

  /**
   * Opens a stream, waiting for a session if there is none. Rejects with {@link HttpSessionLostError} at the deadline,
   * with the signal's reason when it aborts. The stream fails the same way when its session ends before it does.
   */
  async openStream(
    headers: OutgoingHttpHeaders,
    options: OpenStreamOptions = {},
  ): Promise<ClientHttp2Stream> {
    const session = await this.#waitForSession(options)
    options.signal?.throwIfAborted()
    // Node's default authority contains a port; the host compares names exactly.
    const stream = session.request(
      { ':authority': 'gateway', ...headers },
      {
        endStream: options.endStream ?? false,
        ...(options.signal === undefined ? {} : { signal: options.signal }),
      },
    )
    // Without a listener, a session that ends before the caller listens would end the process.
    stream.on('error', () => {})
    return stream
  }

  /** Sends a request; resolves with the head of its answer. Fails as `openStream` does, and when the host resets it. */
  async post(
    url: string,
    { headers, body, signal, headersTimeout = 0, ...wait }: PostOptions,
  ): Promise<HttpAnswer> {
    const { host, pathname, search } = new URL(url)
    const head = { ':method': 'POST', ':authority': host, ':path': `${pathname}${search}` }
    const length = { 'content-length': Buffer.byteLength(body) }
    const stream = await this.openStream({ ...head, ...length, ...headers }, { signal, ...wait })
    // A destroyed stream no longer knows its session.
    const { session } = stream
    const failureOf = (error: unknown): unknown => {
      if (signal.aborted) return signal.reason
      if (error instanceof HttpSessionLostError || error instanceof HeadersTimeoutError) return error
      if (session === undefined || session.destroyed || session.closed)
        return new HttpSessionLostError('the session with the host ended before the answer was complete')
      const why = error instanceof Error ? `: ${error.message}` : ''
      const reset = `the host reset the stream (code ${stream.rstCode ?? 0}) before the answer was complete`
      return new HttpStreamResetError(`${reset}${why}`)
    }
    stream.end(body)
    const answer = Promise.withResolvers<IncomingHttpHeaders>()
    stream.once('response', answer.resolve)
    stream.once('error', answer.reject).once('close', answer.reject)
    // It may have ended before anyone listened.
    if (stream.destroyed) answer.reject(stream.errored)
    const late = new HeadersTimeoutError(`no answer of the host for ${headersTimeout} ms`)
    const timer = headersTimeout === 0 ? undefined : setTimeout(() => stream.destroy(late), headersTimeout)
    try {
      const { ':status': status, ...rest } = await answer.promise
      return {
        statusCode: Number(status),
        headers: rest,
        body: readWhole(stream, failureOf),
      }
    } catch (error) {
      throw failureOf(error)
    } finally {
      clearTimeout(timer)
    }
  }

  async #waitForSession({
    signal,
    sessionTimeoutMs = waitForSessionMs,
  }: OpenStreamOptions): Promise<ClientHttp2Session> {
    const deadline = performance.now() + sessionTimeoutMs
    for (;;) {
      signal?.throwIfAborted()
      if (this.#session !== null && !this.#session.closed && !this.#session.destroyed) return this.#session
      const leftMs = deadline - performance.now()
      if (this.#closed || leftMs <= 0) {
        throw new HttpSessionLostError(`no session with the host for HTTP: ${this.#lost}`)
      }
      await this.#nextChange(leftMs, signal)
    }
  }

  #nextChange(timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer)
        this.#waiting.delete(done)
        signal?.removeEventListener('abort', done)
        resolve()
      }
      const timer = Number.isFinite(timeoutMs) ? setTimeout(done, Math.ceil(timeoutMs)) : undefined
      this.#waiting.add(done)
      signal?.addEventListener('abort', done, { once: true })
    })
  }

  #wakeAll(): void {
    for (const done of [...this.#waiting]) done()
  }
}

/** The stream's data; fails when the stream ends before it is complete, which Node reports like a normal end. */
function readWhole(stream: ClientHttp2Stream, failureOf: (error: unknown) => unknown): Readable {
  let isWhole = false
  stream.once('end', () => {
    isWhole = !stream.aborted && (stream.rstCode ?? 0) === 0
  })
  const read = async function* (): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of stream) yield chunk
    } catch (error) {
      if (!isWhole) throw failureOf(error)
    }
    if (!isWhole) throw failureOf(null)
  }
  return Readable.from(read(), { objectMode: false })
}
