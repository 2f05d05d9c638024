/** A corporate proxy as a real server: CONNECT alone, with a password where one is asked for. */
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, connect, type Socket } from 'node:net'

export interface TestProxy extends AsyncDisposable {
  readonly port: number
  /** Authorities that were asked for, in order. */
  readonly asked: string[]
}

export interface TestProxyOptions {
  /** `USER:PASSWORD`; without it everybody may. */
  readonly user?: string
  /** Where each tunnel really leads, as this machine cannot resolve the names of a test. */
  readonly leadsTo?: { readonly host: string; readonly port: number }
  /** Speaks TLS itself. */
  readonly tls?: { readonly cert: string; readonly key: string }
  /** Takes the request and never answers. */
  readonly silent?: boolean
}

export async function startConnectProxy(options: TestProxyOptions = {}): Promise<TestProxy> {
  const asked: string[] = []
  const sockets = new Set<Socket>()
  const server = options.tls === undefined ? createServer() : createTlsServer(options.tls)
  server.on('connection', (socket: Socket) => sockets.add(socket))
  server.on('connect', (request, socket: Socket, head: Buffer) => {
    socket.on('error', () => {})
    const authority = request.url ?? ''
    asked.push(authority)
    if (options.silent === true) return
    const wanted = options.user && `Basic ${Buffer.from(options.user).toString('base64')}`
    if (wanted !== undefined && request.headers['proxy-authorization'] !== wanted) {
      return socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
    }
    const { host, port } = options.leadsTo ?? splitAuthority(authority)
    const onward = connect(port, host, () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
      if (head.length > 0) onward.write(head)
      onward.pipe(socket)
      socket.pipe(onward)
    })
    sockets.add(onward)
    onward.on('error', () => socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n'))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    asked,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}

function splitAuthority(authority: string): { host: string; port: number } {
  const at = authority.lastIndexOf(':')
  return { host: authority.slice(0, at).replace(/^\[|\]$/g, ''), port: Number(authority.slice(at + 1)) }
}
