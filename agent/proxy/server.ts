/**
 * The proxy server on loopback: forwards CONNECT and absolute-form requests to the host as HTTP/2 streams, byte for
 * byte, and returns refusals with their messages. The host makes all decisions.
 */

import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type ServerResponse,
} from 'node:http'
import type { ClientHttp2Stream } from 'node:http2'
import type { Server, Socket } from 'node:net'
import { connectionFields } from '#specs/protocol/proxy.ts'
import { openEgressStream, type StreamOpener } from './egress-stream.ts'
import { Gate } from './gate.ts'
import { type Refusals, refusalLine } from './refusals.ts'
import { EarlyBytes, joinTunnel, sayEstablished } from './tunnel.ts'

export interface ProxyServerOptions {
  readonly http: StreamOpener
  readonly refusals: Refusals
  readonly gate?: Gate
}

/** The server, not yet listening. */
export function createProxyServer({ http, refusals, gate = new Gate() }: ProxyServerOptions): Server {
  const way = { http, gate }

  async function tunnel(request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    const authority = request.url ?? ''
    const target = `CONNECT ${authority}`
    socket.on('error', () => undefined)
    if (!isAuthority(authority)) {
      socket.end(refusalText(400, badAuthority))
      return
    }
    if (/:80$/.test(authority)) {
      // Some programs (Node's fetch) use CONNECT for http too: requests inside it go to that server.
      sayEstablished(socket)
      if (head.length > 0) socket.unshift(head)
      authorities.set(socket, authority)
      inTunnels.emit('connection', socket)
      return
    }
    const early = new EarlyBytes(socket, head)
    const headers = { ':method': 'CONNECT', ':authority': authority }
    const opened = await openEgressStream(way, headers, { signal: early.gone })
    if (opened.kind === 'refused') {
      refusals.note(target, opened.reason)
      early.take()
      if (!socket.destroyed) socket.end(refusalText(opened.status, opened.reason))
      return
    }
    sayEstablished(socket)
    joinTunnel(socket, opened.stream, early.take(), (reason) => refusals.note(target, reason))
  }

  async function pass(
    request: IncomingMessage,
    response: ServerResponse,
    place: { scheme: string; authority: string; path: string },
  ): Promise<void> {
    const method = request.method ?? 'GET'
    if (!isAuthority(place.authority)) return refuse(response, 400, badAuthority)
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    const headers = {
      ...passHeaders(request.headers),
      ':method': method,
      ':scheme': place.scheme,
      ':authority': place.authority,
      ':path': place.path,
    }
    const hasBody =
      request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0
    const send = (stream: ClientHttp2Stream): void => sendBody(request, stream)
    const opened = await openEgressStream(way, headers, { signal: gone.signal, ...(hasBody ? { send } : {}) })
    if (opened.kind === 'refused') {
      refusals.note(`${method} ${place.scheme}://${place.authority}${place.path}`, opened.reason)
      return refuse(response, opened.status, opened.reason)
    }
    answer(opened.stream, opened.headers, response)
  }

  const serve = (request: IncomingMessage, response: ServerResponse): void => {
    const whole = /^(https?):\/\/([^/?#\s]+)([/?][^#\s]*)?$/i.exec(request.url ?? '')
    const authority = authorities.get(request.socket)
    const path = whole?.[3] ?? '/'
    const place =
      whole !== null
        ? {
            scheme: (whole[1] ?? '').toLowerCase(),
            authority: whole[2] ?? '',
            path: path.startsWith('/') ? path : `/${path}`,
          }
        : authority !== undefined && request.url?.startsWith('/') === true
          ? { scheme: 'http', authority, path: request.url }
          : null
    if (place === null) {
      refuse(
        response,
        400,
        'This is a proxy: ask it for a whole address (GET http://example.com/), or by CONNECT.',
      )
      return
    }
    void pass(request, response, place).catch((error: unknown) =>
      refuse(response, 502, `It could not be passed on: ${String(error)}`),
    )
  }

  const options = {
    keepAliveTimeout: 30_000,
    headersTimeout: 30_000,
    requestTimeout: 0,
    requireHostHeader: false,
  }
  const server = createServer(options, serve)
  /** Tunnels that carry plain-text requests, with their targets. */
  const authorities = new WeakMap<Socket, string>()
  const inTunnels = createServer(options, serve)
  server.on('connect', (request, socket, head) => {
    void tunnel(request, socket as Socket, head).catch(() => socket.destroy())
  })
  for (const one of [server, inTunnels]) {
    one.on('clientError', (_error, socket) => {
      if (socket.writable) socket.end(refusalText(400, 'That is no HTTP request.'))
      else socket.destroy()
    })
  }
  return server
}

const badAuthority = 'A place is a host and a port, such as example.com:443, without user and path.'

function isAuthority(text: string): boolean {
  return /^[a-z0-9._~%:[\]-]{1,300}$/i.test(text)
}

/** Headers for HTTP/2; the host decides which of them a server receives. */
function passHeaders(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
  const named = (headers.connection ?? '').toLowerCase().split(/\s*,\s*/)
  const passed: OutgoingHttpHeaders = {}
  for (const [name, value] of Object.entries(headers)) {
    if (connectionFields.has(name) || named.includes(name) || name.startsWith('proxy-')) continue
    passed[name] = value
  }
  return passed
}

function sendBody(request: IncomingMessage, stream: ClientHttp2Stream): void {
  request.pipe(stream)
  request.once('close', () => {
    // A truncated body must not look complete.
    if (!request.complete && !stream.destroyed) stream.destroy(new Error('the program broke off'))
  })
}

function answer(stream: ClientHttp2Stream, headers: object, response: ServerResponse): void {
  const passed = Object.entries(headers).filter(([name]) => !name.startsWith(':'))
  const status = Number((headers as { ':status'?: number })[':status'])
  response.sendDate = false
  response.on('error', () => undefined)
  response.once('close', () => {
    if (!stream.destroyed && !stream.readableEnded) stream.destroy(new Error('the program has gone'))
  })
  response.writeHead(status, Object.fromEntries(passed) as OutgoingHttpHeaders)
  const finish = (): void => {
    if (stream.readableEnded && (stream.rstCode ?? 0) === 0) response.end()
    else response.destroy()
  }
  stream.pipe(response, { end: false })
  // An answer without a body may end before a listener is attached.
  if (stream.destroyed) finish()
  else stream.once('close', finish)
}

function refuse(response: ServerResponse, status: number, reason: string): void {
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return
  }
  // Discard the rest of the body.
  response.writeHead(status, statusLine(reason), {
    'content-type': 'text/plain; charset=utf-8',
    connection: 'close',
  })
  response.end(`Refused: ${reason}\n`)
}

/** The reason is also in the status line: Python, pip and Node show only that. */
function refusalText(status: number, reason: string): string {
  const body = `Refused: ${reason}\n`
  return [
    `HTTP/1.1 ${status} ${statusLine(reason)}`,
    'Content-Type: text/plain; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
    '',
    body,
  ].join('\r\n')
}

function statusLine(reason: string): string {
  return refusalLine(`Refused: ${reason}`)
    .replaceAll(/[^\x20-\x7e]/g, '?')
    .slice(0, 300)
}
