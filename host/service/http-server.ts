/**
 * The HTTP side of the service: every route of the table with its checks, in one order: origin, token, parameters, body.
 * A request that is refused changes nothing.
 */
import { Readable } from 'node:stream'
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import type { Problem } from '#specs/service/resources.ts'
import type { Route } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import type { Access } from './access.ts'
import { type Caller, type Callers, seesAll } from './callers.ts'
import { EventStream, type RunEvents } from './events.ts'
import type { Answer, Call, Handlers } from './handler.ts'
import { requireLinked } from './links.ts'
import { type Ownership, requireScope } from './ownership.ts'
import { addPage } from './page.ts'
import { readPage } from './page-files.ts'
import { answerPreflight, exposedHeaders } from './preflight.ts'
import { bodyMaxBytes, problemForOthers, problemOfAny, Refusal } from './problems.ts'
import type { Quotas } from './quotas.ts'
import { referencePolicy } from './reference-page.ts'
import { checkGiven, type Given, perform, requireRun } from './route-calls.ts'
import type { RunWaits } from './run-waits.ts'
import { sendStream, streamEvents, takePlace } from './streams.ts'

/** For the whole request to arrive; a slower client is cut off. */
const requestTimeoutMs = 30_000
/** The same for a body of bytes. */
const uploadTimeoutMs = 600_000
const headerTimeoutMs = 10_000
/** For a client that still sends to read its answer. */
const lingerMs = 1_000
/** How often connections are looked at for these times; Node's own 30 s would add to each. */
const timeoutCheckMs = 5_000
const connectionTimes = { headersTimeout: headerTimeoutMs, connectionsCheckingInterval: timeoutCheckMs }
const idempotencyKeyMaxChars = 200

export interface HttpOptions {
  readonly access: Access
  readonly callers: Callers
  readonly quotas: Quotas
  readonly ownership: Ownership
  /** The id of a run of a path, which may have the key of its caller. @throws {CaissonError} `run_not_found` */
  readonly runIdOf: (caller: Caller, name: string) => Promise<string>
  readonly handlers: Handlers
  readonly events: RunEvents
  readonly waits: RunWaits
  readonly tls?: { readonly cert: string | Buffer; readonly key: string | Buffer }
  /** Whether requests need no token; Host and Origin are checked anyway. */
  readonly isOpen?: boolean
  /** Whether a request came over the Unix socket. */
  readonly isLocal: (request: FastifyRequest) => boolean
  /** Writes one line for each request that is over, and each internal error. */
  readonly log: (line: Readonly<Record<string, unknown>>) => void
  /** Counts a request that is over. @param route undefined: there is none with its path */
  readonly onAnswered: (route: RouteName | undefined, status: number) => void
}

export function createHttpServer(options: HttpOptions): FastifyInstance {
  const { tls, log } = options
  const app = Fastify({
    logger: false,
    bodyLimit: bodyMaxBytes,
    requestTimeout: uploadTimeoutMs,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 256 },
    http: connectionTimes,
    // What the router refuses by itself.
    frameworkErrors: (_: unknown, request: FastifyRequest, reply: FastifyReply) =>
      sendProblem(
        reply,
        new Refusal(400, 'invalid_request', `the path is not valid: ${JSON.stringify(pathOf(request))}`),
        log,
      ),
    ...(tls === undefined ? {} : { https: { ...tls, ...connectionTimes } }),
  } as object) as unknown as FastifyInstance
  const callers: Known = new WeakMap()
  const uploadOf = (request: FastifyRequest) => {
    const known = callers.get(request)
    return known === undefined ? undefined : (routes[known.route] as Route).upload
  }
  // JSON and archives alone: what a form of another site can send is no request.
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/x-tar', (request, payload, done) => {
    if (uploadOf(request) === undefined) done(wrongType('application/json'))
    else done(null, payload)
  })
  app.addContentTypeParser(/^application\/json(;|$)/, { parseAs: 'string' }, (request, text, done) => {
    const upload = uploadOf(request)
    if (upload !== undefined) return done(wrongType(upload))
    try {
      done(null, JSON.parse(String(text)) as unknown)
    } catch (error) {
      const seen = error instanceof Error ? error.message : String(error)
      done(new Refusal(400, 'invalid_request', `the body is not JSON: ${seen}`))
    }
  })
  app.setErrorHandler(async (error, request, reply) =>
    sendProblem(reply, error, log, callers.get(request)?.caller),
  )
  app.addHook('onRequest', async (request, reply) => {
    const isUpload = request.headers['content-type'] === 'application/x-tar'
    cutOffLate(request, reply, isUpload ? uploadTimeoutMs : requestTimeoutMs)
    // Here, since a handler would get the body, which anybody can send.
    if (!request.is404) return
    refuseUnknown(request, reply, options)
    return reply
  })
  app.addHook('onResponse', async (request, reply) => {
    const { route, caller } = callers.get(request) ?? {}
    const { run = runMadeBy(reply) } = (request.params ?? {}) as { run?: unknown }
    options.onAnswered(route, reply.statusCode)
    // Without the query: it can hold what a client looks for.
    log({
      method: request.method,
      path: pathOf(request),
      ...(route === undefined ? {} : { route }),
      ...(typeof run === 'string' ? { run: withoutKeys(run) } : {}),
      ...(caller === undefined ? {} : { by: caller.name }),
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
    })
  })
  for (const [name, route] of Object.entries(routes) as [RouteName, Route][])
    addRoute(app, name, route, options, callers)
  addPage(app, {
    read: readPage,
    check: (request) => {
      const { host, origin } = request.headers
      options.access.checkOrigin({ host, origin }, options.isLocal(request))
    },
  })
  return app
}

/** Answers a preflight request; refuses all else. */
function refuseUnknown(
  request: FastifyRequest,
  reply: FastifyReply,
  { access, isLocal }: Pick<HttpOptions, 'access' | 'isLocal'>,
): void {
  const { host, origin } = request.headers
  const other = origin === undefined ? undefined : access.checkOrigin({ host, origin }, isLocal(request))
  if (other !== undefined && answerPreflight(request, reply, other)) return
  throw new Refusal(404, 'not_found', `there is no route ${request.method} ${pathOf(request)}`, {
    remedy: 'all routes: GET /docs',
  })
}

/** The run that a request started, as `Location` names it. */
function runMadeBy(reply: FastifyReply): string | undefined {
  return /^\/v1\/runs\/(run-[0-9a-f]{20})$/.exec(String(reply.getHeader('location') ?? ''))?.[1]
}

/** Route of a request, and who sends it once that is known. */
type Known = WeakMap<FastifyRequest, { readonly route: RouteName; readonly caller?: Caller }>

/** Whether a request may be answered by a stream that its client waits for. */
function isStreamed({ method, reply: { type } }: Route): boolean {
  return method === 'POST' && type === 'text/event-stream'
}

function addRoute(
  app: FastifyInstance,
  name: RouteName,
  route: Route,
  options: HttpOptions,
  callers: Known,
): void {
  app.route({
    method: route.method,
    url: route.path.replaceAll(/\{([a-z]+)\}/g, ':$1'),
    // Before the body is read: who may not call sends none.
    onRequest: async (request, reply) => {
      callers.set(request, { route: name })
      const isLocal = options.isLocal(request)
      const { host, origin, authorization } = request.headers
      const other = options.access.checkOrigin({ host, origin }, isLocal)
      if (other !== undefined)
        reply.headers({
          'access-control-allow-origin': other,
          'access-control-expose-headers': exposedHeaders,
          vary: 'origin',
        })
      if (route.scope === null) return
      const address = request.raw.socket.remoteAddress ?? ''
      const caller = await options.access.identify(authorization, address, isLocal || options.isOpen === true)
      callers.set(request, { route: name, caller })
      options.quotas.countRequest(caller)
      requireScope(caller, route.scope)
      requireLinked(caller, name, request.params)
      // A key that is revoked, or a JWT that expires, reads no further, as of a stream. What changes something is answered.
      if (route.method === 'GET' || isStreamed(route)) {
        const forget = options.callers.watch(caller, () => reply.raw.destroy())
        reply.raw.once('close', forget)
      }
    },
    handler: async (request, reply) => {
      const checked = checkGiven(route, request as Given)
      const upload = route.upload === undefined ? undefined : (request.body as Readable | undefined)
      // What is left of a body that was refused is not read.
      if (upload !== undefined) reply.header('connection', 'close')
      const call = {
        ...callOf(request, reply, callers.get(request)?.caller),
        baseUrl: `${options.tls === undefined ? 'http' : 'https'}://${request.headers.host ?? 'localhost'}`,
        ...(upload === undefined ? {} : { upload }),
      }
      const streams = {
        ...options,
        refuse: (to: FastifyReply, error: unknown) => writeProblem(to, error, options.log, call.caller),
      }
      if (name === 'listEvents' && accepts(request, 'text/event-stream')) {
        const { run } = checked.params as { run: string }
        const params = { run: await requireRun(options, call.caller, run) }
        const given = { params, query: checked.query as { from?: number } }
        return await streamEvents(given, request, reply, { ...streams, caller: call.caller })
      }
      // Before anything is done, since the answer may be refused with 429.
      if (isStreamed(route)) takePlace(reply, { ...options, caller: call.caller })
      const { waitMs = 0 } = (checked.query ?? {}) as { waitMs?: number }
      const signal =
        waitMs > 0 ? AbortSignal.any([call.signal, options.waits.begin(call.caller, reply.raw)]) : call.signal
      const answer = await perform(options, name, checked, { ...call, signal })
      if (answer.body instanceof EventStream) return await sendStream(answer.body, reply, streams)
      send(reply, route, answer)
      return reply
    },
  })
}

/**
 * Ends the connection of a request that has not arrived in time, and of one that was answered before all of a long body, or
 * of one without a length, has come.
 */
function cutOffLate({ raw, headers }: FastifyRequest, reply: FastifyReply, timeoutMs: number): void {
  if (raw.complete) return
  const end = (): void => {
    if (!raw.complete) raw.socket.destroy()
  }
  const late = setTimeout(end, timeoutMs)
  late.unref()
  raw.once('close', () => clearTimeout(late))
  reply.raw.once('finish', () => {
    const length = Number(
      headers['content-length'] ?? (headers['transfer-encoding'] === undefined ? 0 : Number.NaN),
    )
    // Its client has the answer by then.
    if (!(length <= bodyMaxBytes)) setTimeout(end, lingerMs).unref()
  })
}

function wrongType(expected: string): Refusal {
  const code = expected === 'application/json' ? 'not_json' : 'not_tar'
  return new Refusal(415, code, `the body is not ${expected}`, {
    remedy: `send it with Content-Type: ${expected}`,
  })
}

function callOf(request: FastifyRequest, reply: FastifyReply, caller: Caller | undefined): Call {
  const gone = new AbortController()
  reply.raw.once('close', () => gone.abort())
  const key = request.headers['idempotency-key']
  if (key !== undefined && (typeof key !== 'string' || key === '' || key.length > idempotencyKeyMaxChars))
    throw new Refusal(
      400,
      'invalid_request',
      `Idempotency-Key: expected 1 to ${idempotencyKeyMaxChars} characters`,
    )
  return {
    caller: caller ?? { name: 'anybody', scopes: new Set() },
    idempotencyKey: key,
    ifNoneMatch: request.headers['if-none-match'],
    a2aVersion: request.headers['a2a-version']?.toString(),
    signal: gone.signal,
  }
}

function send(
  reply: FastifyReply,
  { reply: { status, type, schema } }: Route,
  answer: Answer<unknown>,
): void {
  const { body, headers = {}, status: other } = answer
  reply.code(other ?? status).headers({ ...safeHeaders, ...headers })
  if (body === undefined || other === 304 || status === 204) reply.send()
  else if (body instanceof Readable) reply.type(type ?? 'application/octet-stream').send(body)
  else if (body instanceof Uint8Array) reply.send(body)
  else if (typeof body === 'string' && schema === undefined) {
    if (type === 'text/html') reply.header('content-security-policy', referencePolicy)
    reply.type(`${type ?? 'text/plain'}; charset=utf-8`).send(body)
  } else reply.type('application/json; charset=utf-8').send(JSON.stringify(body))
}

const safeHeaders = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
}

function sendProblem(
  reply: FastifyReply,
  error: unknown,
  log: HttpOptions['log'],
  caller?: Caller,
): FastifyReply {
  const { problem, headers } = describe(error, log, caller)
  return reply
    .code(problem.status)
    .headers({ ...safeHeaders, ...headers })
    .type('application/problem+json; charset=utf-8')
    .send(JSON.stringify(problem))
}

/** For an answer that Fastify does not send any more. */
function writeProblem(
  { raw }: FastifyReply,
  error: unknown,
  log: HttpOptions['log'],
  caller: Caller | undefined,
): void {
  const { problem, headers } = describe(error, log, caller)
  raw.writeHead(problem.status, {
    ...safeHeaders,
    ...headers,
    'content-type': 'application/problem+json; charset=utf-8',
  })
  raw.end(JSON.stringify(problem))
}

function describe(
  error: unknown,
  log: HttpOptions['log'],
  caller: Caller | undefined,
): { problem: Problem; headers: Readonly<Record<string, string>> } {
  const described = problemOfAny(error)
  const { problem, fault } = described
  // Names alone: what a request says is not for the log.
  const fields = (problem.errors ?? []).map(({ field }) => field.slice(0, 100))
  if (error instanceof Refusal)
    log({
      level: 'debug',
      message: 'a request was refused',
      status: problem.status,
      code: problem.code,
      fields,
    })
  else if (fault !== undefined)
    log({ level: 'error', message: fault.message, code: fault.code, cause: String(fault.cause ?? '') })
  if (error instanceof Refusal || caller === undefined || seesAll(caller)) return described
  const shown = problemForOthers(problem)
  if (shown !== problem && fault === undefined)
    log({ level: 'error', message: problem.detail, code: problem.code })
  return { ...described, problem: shown }
}

function accepts({ headers: { accept } }: FastifyRequest, type: string): boolean {
  return accept?.split(',').some((part) => part.split(';')[0]?.trim() === type) === true
}

/** Without what somebody could have pasted there by mistake. */
function pathOf({ url }: FastifyRequest): string {
  return withoutKeys(url.split('?')[0] ?? '').slice(0, 200)
}

/** Without API keys, links, JWTs (their header is JSON, so they begin with `eyJ`), and words as long as the token. */
function withoutKeys(text: string): string {
  return text
    .replaceAll(/caisson_[0-9a-f]{12}_[\w-]*/g, 'caisson_…')
    .replaceAll(/caisson-link_[\w.-]*/g, 'caisson-link_…')
    .replaceAll(/eyJ[\w-]{8,}[\w.-]*/g, 'eyJ…')
    .replaceAll(/[\w-]{43,}/g, '…')
}
