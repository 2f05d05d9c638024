/** Sessions of clients of revision 2025-11-25 over HTTP: each belongs to its caller, and ends when nobody uses it. */

import { randomUUID } from 'node:crypto'
import { type McpServer, WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server'
import type { McpCaller } from './caller.ts'
import { refusal } from './refusal.ts'

const sessionsMax = 128
const sessionsMaxOfCaller = 16
const idleMs = 60 * 60_000
const checkMs = 60_000

/** A JWT is renewed while a session is open, so its calls go with the newest token of the caller. */
type SessionCaller = { -readonly [Key in keyof McpCaller]: McpCaller[Key] }

interface Session {
  readonly caller: SessionCaller
  readonly server: McpServer
  readonly transport: WebStandardStreamableHTTPServerTransport
  usedAt: number
}

export interface McpSessionsOptions {
  readonly bodyMaxBytes: number
  readonly create: (caller: McpCaller) => McpServer
}

export class McpSessions {
  readonly #options: McpSessionsOptions
  readonly #sessions = new Map<string, Session>()
  /** Requests that may begin one; they have a place already. */
  readonly #beginning = new Set<{ readonly callerId: string }>()
  readonly #timer: NodeJS.Timeout

  constructor(options: McpSessionsOptions) {
    this.#options = options
    this.#timer = setInterval(() => void this.#closeIdle(), checkMs).unref()
  }

  async respond(request: Request, caller: McpCaller): Promise<Response> {
    const id = request.headers.get('mcp-session-id')
    if (id === null) return await this.#begin(request, caller)
    const session = this.#sessions.get(id)
    // A session of another caller is not there.
    if (session?.caller.id !== caller.id) return refusal(404, 'Session not found', -32_001)
    session.caller.service = caller.service
    session.usedAt = performance.now()
    return await session.transport.handleRequest(request)
  }

  async close(): Promise<void> {
    clearInterval(this.#timer)
    await Promise.all([...this.#sessions.keys()].map((id) => this.#end(id)))
  }

  async #begin(request: Request, caller: McpCaller): Promise<Response> {
    if (request.method !== 'POST') return refusal(400, 'Bad Request: Mcp-Session-Id header is required')
    const place = await this.#reserve(caller.id)
    if (place === undefined) return refusal(503, 'Too many sessions; try again later')
    try {
      return await this.#initialize(request, { ...caller }, place)
    } finally {
      place[Symbol.dispose]()
    }
  }

  async #initialize(request: Request, caller: SessionCaller, place: Disposable): Promise<Response> {
    const server = this.#options.create(caller)
    let began = false
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      maxRequestBodySize: this.#options.bodyMaxBytes,
      onsessioninitialized: (id) => {
        began = true
        place[Symbol.dispose]()
        this.#sessions.set(id, { caller, server, transport, usedAt: performance.now() })
      },
      onsessionclosed: (id) => void this.#sessions.delete(id),
    })
    await server.connect(transport)
    const response = await transport.handleRequest(request)
    if (!began) await server.close()
    return response
  }

  /** A place for a further session. The oldest of a caller with too many gives way; that of another never does. */
  async #reserve(callerId: string): Promise<Disposable | undefined> {
    const own = [...this.#sessions].filter(([, session]) => session.caller.id === callerId)
    const beginning = [...this.#beginning].filter((one) => one.callerId === callerId).length
    const [oldest] = own.toSorted(([, a], [, b]) => a.usedAt - b.usedAt)
    const isFull = own.length + beginning >= sessionsMaxOfCaller
    if (isFull && oldest === undefined) return undefined
    // It has left the list before anybody else counts.
    const ending = isFull && oldest !== undefined ? this.#end(oldest[0]) : undefined
    if (this.#sessions.size + this.#beginning.size >= sessionsMax) return undefined
    const place = { callerId }
    this.#beginning.add(place)
    await ending
    return { [Symbol.dispose]: () => void this.#beginning.delete(place) }
  }

  async #closeIdle(): Promise<void> {
    const before = performance.now() - idleMs
    for (const [id, { usedAt }] of this.#sessions) if (usedAt < before) await this.#end(id)
  }

  async #end(id: string): Promise<void> {
    const session = this.#sessions.get(id)
    this.#sessions.delete(id)
    await session?.server.close()
  }
}
