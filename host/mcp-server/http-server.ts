/**
 * The MCP server over streamable HTTP, on a loopback address. Checks Host and Origin, then the bearer token, which is a
 * key, JWT or token of the service: each request is made to the service with the token of its own caller.
 */

import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  isLegacyRequest,
  type McpHttpHandler,
  type McpServer,
  originValidationResponse,
} from '@modelcontextprotocol/server'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { type ServiceClient, ServiceError } from '../../client/index.ts'
import type { McpCaller } from './caller.ts'
import { ConnectionShares, connectionsMaxOfCaller } from './connections.ts'
import { refusal } from './refusal.ts'
import { McpSessions } from './sessions.ts'

export const mcpPath = '/mcp'
const bodyMaxBytes = 1024 * 1024
const connectionsMax = 512
const subscriptionsMax = 64
const requestTimeoutMs = 30_000
/** For how long a token that the service accepted is not asked about again. The service judges each call anyway. */
const acceptedMs = 10_000
const acceptedMax = 500

export interface McpHttpOptions {
  /** Makes the server of a caller: for each request of 2026-07-28, for each session of 2025-11-25. */
  readonly create: (caller: McpCaller) => McpServer
  /** 0 for a free one. */
  readonly port: number
  /** A client of the service that sends the token. */
  readonly serviceOf: (token: string) => ServiceClient
  /** Further names of this server in `Host`, without a port. */
  readonly hostNames?: readonly string[]
  readonly log: (line: string) => void
}

const loopbackNames = ['localhost', '127.0.0.1', '[::1]']

export class McpHttpServer {
  readonly #options: McpHttpOptions
  readonly #server: Server
  readonly #handler: McpHttpHandler
  readonly #sessions: McpSessions
  readonly #connections = new ConnectionShares()
  readonly #accepted = new Map<string, number>()

  private constructor(options: McpHttpOptions) {
    this.#options = options
    const { log } = options
    const onerror = (error: Error): void => log(`MCP: ${errorMessage(error)}`)
    this.#sessions = new McpSessions({
      bodyMaxBytes,
      create: options.create,
    })
    this.#handler = createMcpHandler(
      ({ authInfo }) => options.create(this.#callerOf(authInfo?.token ?? '')),
      {
        ...{
          legacy: 'reject',
          maxRequestBodySize: bodyMaxBytes,
          maxSubscriptions: subscriptionsMax,
          onerror,
        },
      },
    )
    this.#server = createServer(
      { requestTimeout: requestTimeoutMs, headersTimeout: 10_000 },
      (request, response) => {
        this.#answer(request, response).catch((error: unknown) => {
          onerror(error instanceof Error ? error : new Error(String(error)))
          response.destroy()
        })
      },
    )
    this.#server.maxConnections = connectionsMax
    this.#server.on('connection', (socket) => this.#connections.add(socket))
  }

  /** @throws {CaissonError} `not_possible_now` when it cannot listen */
  static async start(options: McpHttpOptions): Promise<McpHttpServer> {
    const started = new McpHttpServer(options)
    started.#server.listen(options.port, '127.0.0.1')
    await once(started.#server, 'listening').catch((cause: unknown) => {
      throw new CaissonError(
        'not_possible_now',
        `cannot listen on port ${options.port}: ${errorMessage(cause)}`,
        { cause },
      )
    })
    return started
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}${mcpPath}`
  }

  async close(): Promise<void> {
    this.#server.close()
    await Promise.all([this.#handler.close(), this.#sessions.close()])
    this.#server.closeAllConnections()
  }

  async #answer(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const gone = new AbortController()
    outgoing.once('close', () => gone.abort())
    const request = requestOf(incoming, gone.signal)
    const response =
      request === undefined
        ? refusal(400, 'The request is not valid')
        : await this.#respond(request, incoming.socket)
    // A body that was not read is cut off with its connection.
    if (!incoming.complete) response.headers.set('connection', 'close')
    await send(response, outgoing)
  }

  async #respond(request: Request, socket: Socket): Promise<Response> {
    const { hostNames = [] } = this.#options
    const refused =
      hostHeaderValidationResponse(request, [...loopbackNames, ...hostNames]) ??
      originValidationResponse(request, loopbackNames)
    if (refused !== undefined) return refused
    if (new URL(request.url).pathname !== mcpPath)
      return refusal(404, `There is nothing here; the MCP server is at ${mcpPath}`)
    const [, token] = /^Bearer ([^\s]{1,8192})$/i.exec(request.headers.get('authorization') ?? '') ?? []
    if (token === undefined) return unauthorized()
    const rejected = await this.#checkToken(token)
    if (rejected !== undefined) return rejected
    const caller = this.#callerOf(token)
    if (!this.#connections.enter(socket, caller.id)) return tooManyConnections()
    if (await isLegacyRequest(request, undefined, { maxRequestBodySize: bodyMaxBytes }))
      return await this.#sessions.respond(request, caller)
    return await this.#handler.fetch(request, { authInfo: { token, clientId: caller.id, scopes: [] } })
  }

  #callerOf(token: string): McpCaller {
    return { service: this.#options.serviceOf(token), id: callerIdOf(token), seesMarkedRunsAlone: false }
  }

  /** @returns why the token is refused; undefined: the service accepts it */
  async #checkToken(token: string): Promise<Response | undefined> {
    const name = digestOf(token)
    const now = performance.now()
    if ((this.#accepted.get(name) ?? Number.NEGATIVE_INFINITY) > now - acceptedMs) return undefined
    this.#accepted.delete(name)
    try {
      await this.#options.serviceOf(token).call('listRuns', { query: { limit: 1 } })
    } catch (error) {
      const status = error instanceof ServiceError ? error.status : 503
      if (status === 401) return unauthorized()
      if (status === 429) return refusal(429, errorMessage(error))
      // A key without the scope `read` is a key.
      if (status !== 403) return refusal(503, 'The service of Caisson does not answer')
    }
    this.#accepted.set(name, now)
    const [oldest] = this.#accepted.keys()
    if (this.#accepted.size > acceptedMax && oldest !== undefined) this.#accepted.delete(oldest)
    return undefined
  }
}

/** Of a JWT its issuer and subject, since it is renewed within the days that a question waits; the service has checked them. */
export function callerIdOf(token: string): string {
  const [, payload, signature] = token.split('.')
  if (payload === undefined || signature === undefined) return digestOf(`key\0${token}`)
  try {
    const { iss, sub } = JSON.parse(Buffer.from(payload, 'base64url').toString('utf8')) as {
      iss?: unknown
      sub?: unknown
    }
    if (typeof iss === 'string' && typeof sub === 'string') return digestOf(`jwt\0${iss}\0${sub}`)
  } catch {
    // It is no JWT, so it is taken as it is.
  }
  return digestOf(`key\0${token}`)
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

function requestOf(incoming: IncomingMessage, signal: AbortSignal): Request | undefined {
  const { method = 'GET', url = '/', headers } = incoming
  if (!URL.canParse(url, 'http://127.0.0.1')) return undefined
  const sent = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, Array.isArray(value) ? value.join(', ') : value] as [string, string]],
  )
  const hasBody = method !== 'GET' && method !== 'HEAD'
  const body = hasBody ? { body: Readable.toWeb(incoming), duplex: 'half' } : {}
  try {
    return new Request(new URL(url, 'http://127.0.0.1'), {
      method,
      headers: sent,
      signal,
      ...body,
    } as RequestInit)
  } catch {
    return undefined
  }
}

async function send(response: Response, outgoing: ServerResponse): Promise<void> {
  if (outgoing.destroyed) {
    await response.body?.cancel()
    return
  }
  outgoing.writeHead(response.status, {
    ...Object.fromEntries(response.headers),
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
  })
  if (response.body === null) outgoing.end()
  // A client that leaves ends the stream, which is no failure of this server.
  else
    await pipeline(Readable.fromWeb(response.body as Parameters<typeof Readable.fromWeb>[0]), outgoing).catch(
      () => undefined,
    )
}

function unauthorized(): Response {
  const refused = refusal(
    401,
    'The request has no valid key of the service; send "Authorization: Bearer KEY"',
  )
  refused.headers.set('www-authenticate', 'Bearer realm="caisson"')
  return refused
}

function tooManyConnections(): Response {
  const refused = refusal(
    429,
    `The caller has ${connectionsMaxOfCaller} connections open, and may not have more; close one`,
  )
  refused.headers.set('retry-after', '5')
  refused.headers.set('connection', 'close')
  return refused
}
