/** Typed client of the HTTP service, for Node and browsers: needs `fetch` alone. Made from the routes of `specs/service/`. */
import { EventSourceParserStream } from 'eventsource-parser/stream'
import type * as z from 'zod'
import { JournalEvent } from '#specs/protocol/event.ts'
import { type Problem, Problem as ProblemSchema } from '#specs/service/resources.ts'
import type { CallOf, ReplyOf, Route, UploadBody } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import { DeltaItem } from '#specs/service/run-resources.ts'

export interface ClientOptions {
  /** Such as `http://127.0.0.1:3789`. */
  readonly baseUrl: string
  /** Content of the service's token file, an API key or a JWT; or a function that gives it for each request, as JWTs expire. */
  readonly token?: string | (() => string | Promise<string>)
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch
}

/** A call of a route: what its schemas take. */
export type ServiceCall<N extends RouteName> = CallOf<(typeof routes)[N]> & { signal?: AbortSignal }
/** The JSON of its answer; text for routes of another type, a stream for an archive, a blob for an image; undefined for none. */
export type ServiceReply<N extends RouteName> = (typeof routes)[N]['reply'] extends {
  type: 'text/x-diff' | 'text/html' | 'text/plain; version=0.0.4'
}
  ? string
  : (typeof routes)[N]['reply'] extends { type: 'application/x-tar' }
    ? ReadableStream<Uint8Array>
    : (typeof routes)[N]['reply'] extends { type: 'image/*' }
      ? Blob
      : ReplyOf<(typeof routes)[N]>

export interface EventsOptions {
  /** `seq` of the first event. Default 1. */
  readonly from?: number
  readonly signal?: AbortSignal
  /** Called when the stream is open, and when it broke off and is tried again. */
  readonly onConnection?: (state: 'open' | 'broken') => void
}

/** An event or a delta of a run. */
export type ServiceEvent = JournalEvent | z.infer<typeof DeltaItem>

/** The service refused a request, or its answer is not one of the service. */
export class ServiceError extends Error {
  override readonly name = 'ServiceError'
  readonly status: number
  readonly problem: Problem
  /** Time that the service asks to wait before the request is sent again, ms. Absent: it does not say. */
  readonly retryAfterMs?: number

  constructor(problem: Problem, retryAfterMs?: number) {
    const { detail, remedy } = problem
    super(remedy === undefined ? detail : `${detail}${detail.endsWith('.') ? '' : ';'} ${remedy}`)
    this.status = problem.status
    this.problem = problem
    if (retryAfterMs !== undefined) this.retryAfterMs = retryAfterMs
  }

  get code(): string {
    return this.problem.code
  }
}

/** The service has this long to begin an answer, or to say at `/healthz` that it is at work. */
const answerMs = 10_000

/** A stream of the service has a comment every 15 s. One that is silent for longer than this has no service behind it. */
const silentMs = 45_000

/** First wait before a stream that broke off is opened again; doubled up to the longest. */
const retryFirstMs = 200
const retryLongestMs = 10_000

export class ServiceClient {
  readonly #options: ClientOptions
  readonly #fetch: typeof fetch

  constructor(options: ClientOptions) {
    this.#options = options
    // A browser refuses its own as the method of another object.
    this.#fetch = options.fetch ?? ((...given) => fetch(...given))
  }

  /**
   * Calls a route by its name. @throws {ServiceError} when the service refuses, or `no_answer` when its process does not
   * answer for 10 seconds, as one that is stopped
   */
  async call<N extends RouteName>(name: N, given: ServiceCall<N>): Promise<ServiceReply<N>> {
    const route: Route = routes[name]
    const { params, query, body, idempotencyKey, signal } = given as {
      params?: Record<string, string>
      query?: Record<string, unknown>
      body?: unknown
      idempotencyKey?: string
      signal?: AbortSignal
    }
    const response = await this.#send(route.method, addressOf(route.path, params, query), {
      ...(body === undefined ? {} : bodyOf(route, body)),
      headers: {
        ...(body === undefined ? {} : { 'content-type': route.upload ?? 'application/json' }),
        ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
      },
      ...(signal === undefined ? {} : { signal }),
    })
    if (!response.ok) throw await errorOf(response)
    if (route.reply.type === 'application/x-tar') return response.body as ServiceReply<N>
    if (route.reply.type === 'image/*') return (await response.blob()) as ServiceReply<N>
    const text = await response.text()
    if (route.reply.schema === undefined) return (text === '' ? undefined : text) as ServiceReply<N>
    const parsed = route.reply.schema.safeParse(parseJson(text))
    if (parsed.success) return parsed.data as ServiceReply<N>
    throw unexpected(response.status, `its answer does not fit: ${parsed.error.issues[0]?.message ?? ''}`)
  }

  /**
   * All events of a run from a number on, then events and deltas as they happen, until the run has ended. Opens the
   * stream again where it broke off or was silent for 45 seconds, without a gap.
   * @throws {ServiceError} when the service refuses; a service that is not there is tried again until `signal` aborts
   */
  async *events(
    run: string,
    { from = 1, signal, onConnection }: EventsOptions = {},
  ): AsyncGenerator<ServiceEvent, void, undefined> {
    let next = from
    let waitMs = retryFirstMs
    while (!isAborted(signal)) {
      try {
        for await (const item of this.#stream(run, next, signal)) {
          if (item === 'open') {
            onConnection?.('open')
            continue
          }
          if (item === 'end') return
          waitMs = retryFirstMs
          if (item.source !== 'delta') next = item.seq + 1
          yield item
        }
      } catch (error) {
        if (isAborted(signal)) return
        if (error instanceof ServiceError && ![429, 503].includes(error.status)) throw error
      }
      onConnection?.('broken')
      await wait(waitMs, signal)
      waitMs = Math.min(2 * waitMs, retryLongestMs)
    }
  }

  async *#stream(
    run: string,
    from: number,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<ServiceEvent | 'open' | 'end', void, undefined> {
    const response = await this.#send('GET', addressOf(routes.listEvents.path, { run }, { from }), {
      headers: { accept: 'text/event-stream' },
      ...(signal === undefined ? {} : { signal }),
    })
    if (!response.ok || response.body === null) throw await errorOf(response)
    yield 'open'
    let heardAt = 0
    const heard = new TransformStream<string, string>({
      transform(text, controller) {
        heardAt = performance.now()
        controller.enqueue(text)
      },
    })
    const messages = response.body
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(heard)
      .pipeThrough(new EventSourceParserStream())
    const reader = messages.getReader()
    // Only while it reads: a caller who is slow hears nothing meanwhile.
    const read = async () => {
      heardAt = performance.now()
      const watch = setInterval(() => {
        if (performance.now() - heardAt > silentMs) void reader.cancel()
      }, silentMs / 9)
      try {
        return await reader.read()
      } finally {
        clearInterval(watch)
      }
    }
    try {
      for (;;) {
        const { done, value } = await read()
        if (done) return
        if (value.event === 'end') {
          yield 'end'
          return
        }
        const schema = value.event === 'delta' ? DeltaItem : JournalEvent
        const parsed = schema.safeParse(parseJson(value.data))
        if (!parsed.success) throw unexpected(response.status, 'it sent an event of another form')
        yield parsed.data
      }
    } finally {
      await reader.cancel().catch(() => undefined)
    }
  }

  async #send(method: string, address: string, init: RequestInit): Promise<Response> {
    const { baseUrl } = this.#options
    const authorization = await this.#authorization()
    const silence = new AbortController()
    const watch = setInterval(() => void this.#checkHealth(silence), answerMs / 2)
    try {
      return await this.#fetch(new URL(address, baseUrl), {
        ...init,
        method,
        headers: { ...init.headers, ...authorization },
        // A redirect would carry the token to another server.
        redirect: 'error',
        signal: AbortSignal.any([silence.signal, ...(init.signal ? [init.signal] : [])]),
      })
    } finally {
      clearInterval(watch)
    }
  }

  async #authorization(): Promise<Record<string, string>> {
    const { baseUrl, token } = this.#options
    if (token === undefined) return {}
    try {
      return { authorization: `Bearer ${typeof token === 'string' ? token : await token()}` }
    } catch (cause) {
      throw noToken(baseUrl, cause)
    }
  }

  /** A long request is no silence: the service still answers others. */
  async #checkHealth(silence: AbortController): Promise<void> {
    const { baseUrl } = this.#options
    const late = AbortSignal.timeout(answerMs / 2)
    try {
      const answer = await this.#fetch(new URL('/healthz', baseUrl), { redirect: 'error', signal: late })
      await answer.text()
    } catch {
      // Where nobody listens any more, the request itself fails.
      if (late.aborted) silence.abort(noAnswer(baseUrl))
    }
  }
}

/** `duplex` is what `fetch` wants of a stream. */
function bodyOf({ upload }: Route, body: unknown): RequestInit {
  if (upload === undefined) return { body: JSON.stringify(body) }
  return {
    body: body as UploadBody,
    ...(body instanceof ReadableStream ? { duplex: 'half' } : {}),
  } as RequestInit
}

/** The path with its parameters, and the query. */
function addressOf(
  path: string,
  params: Readonly<Record<string, string>> = {},
  query: Readonly<Record<string, unknown>> = {},
): string {
  const filled = path.replaceAll(/\{([a-z]+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ''))
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query))
    if (value !== undefined)
      search.set(name, typeof value === 'object' ? JSON.stringify(value) : String(value))
  return search.size === 0 ? filled : `${filled}?${search}`
}

async function errorOf(response: Response): Promise<ServiceError> {
  const text = await response.text().catch(() => '')
  const parsed = ProblemSchema.safeParse(parseJson(text))
  return parsed.success
    ? new ServiceError(parsed.data, retryAfterOf(response))
    : unexpected(response.status, `it answered ${response.status} without a problem of the service`)
}

function retryAfterOf({ headers }: Response): number | undefined {
  const seconds = headers.get('retry-after') ?? ''
  return /^\d{1,6}$/.test(seconds) ? Number(seconds) * 1_000 : undefined
}

/** A request is not repeated without a token, so a stream ends with this. */
function noToken(baseUrl: string, cause: unknown): ServiceError {
  const error = new ServiceError({
    ...{ type: 'about:blank', title: 'no token', status: 401, code: 'no_token' },
    detail: `there is no token for ${baseUrl}: ${cause instanceof Error ? cause.message : String(cause)}`,
    remedy: 'correct what the option token does',
  })
  error.cause = cause
  return error
}

function noAnswer(baseUrl: string): ServiceError {
  return new ServiceError({
    type: 'about:blank',
    title: 'no answer',
    status: 503,
    code: 'no_answer',
    detail: `the service at ${baseUrl} accepts connections, but did not answer for ${answerMs / 1_000} seconds`,
    remedy:
      'see whether its process is stopped or overloaded, and continue or restart it; it can still carry out this request, ' +
      'so send a request that starts a run again with the same idempotencyKey',
  })
}

function unexpected(status: number, detail: string): ServiceError {
  return new ServiceError({
    type: 'about:blank',
    title: 'not a Caisson service',
    status,
    code: 'unexpected_answer',
    detail,
  })
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true
}

async function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal?.addEventListener(
      'abort',
      () => {
        clearTimeout(timer)
        resolve()
      },
      { once: true },
    )
  })
}
