/** A gateway behind a real HTTP/2 server on loopback, and a real HTTP server that plays an upstream, however badly. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import http2 from 'node:http2'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, createServer as createNetServer, type Socket } from 'node:net'
import type { ModelEnd, ModelWait } from '#specs/protocol/model-request.ts'
import {
  createGateway,
  type DeniedRequest,
  type Gateway,
  type GatewayOptions,
} from '../../gateway/gateway.ts'
import { Secret } from '../../keys/secret.ts'
import type { ModelProvider } from '../../providers/providers.ts'

export const testKey = 'nvapi-test-0123456789abcdef'

export interface TestGateway extends AsyncDisposable {
  readonly gateway: Gateway
  /** Everything that was reported of model requests, in order. */
  readonly reported: (Parameters<GatewayOptions['onModelEvent']>[0] | ModelWait)[]
  readonly exchanges: ModelEnd[]
  readonly denied: DeniedRequest[]
  readonly logged: string[]
  request(options?: RequestOptions): Promise<Answer>
  /** A stream that the caller reads. */
  open(options?: RequestOptions): http2.ClientHttp2Stream
  /** Resolves when a request waits for this, or did. */
  waitsFor(what: ModelWait['for']): Promise<void>
  /** Resolves when `count` exchanges were reported. */
  exchanged(count: number): Promise<void>
}

export interface RequestOptions {
  readonly method?: string
  readonly path?: string
  readonly authority?: string
  readonly headers?: http2.OutgoingHttpHeaders
  readonly body?: unknown
}

export interface Answer {
  /** 0 when the stream ended without one. */
  readonly status: number
  readonly headers: http2.IncomingHttpHeaders
  readonly text: string
  /** The code of a reset; 0 when the stream ended well. */
  readonly reset: number
  /** `error.code` of a JSON error. */
  readonly code: string | null
}

export const chatBody = { messages: [{ role: 'user', content: 'hello' }], stream: true }

export function customProvider(baseUrl: string, key: string | null = testKey): ModelProvider {
  return {
    name: 'custom',
    model: 'test/model',
    baseUrl,
    key: key === null ? null : new Secret(key),
    keySetting: 'the variable CAISSON_LLM_KEY',
    notes: [],
  }
}

export async function startGateway(
  provider: ModelProvider,
  options: Partial<
    Pick<
      GatewayOptions,
      | 'limits'
      | 'timeouts'
      | 'runId'
      | 'network'
      | 'capabilityCache'
      | 'modelHolds'
      | 'sharedKeys'
      | 'services'
      | 'embeddings'
      | 'fallbacks'
      | 'stepModels'
      | 'wrapUpstream'
      | 'modelHooks'
    >
  > = {},
): Promise<TestGateway> {
  const exchanges: ModelEnd[] = []
  const reported: TestGateway['reported'] = []
  const denied: DeniedRequest[] = []
  const logged: string[] = []
  let wake: () => void = () => {}
  const gateway = createGateway({
    runId: 'run-00000000000000000000',
    limits: { maxTokens: 1_000_000 },
    ...options,
    provider,
    onModelEvent: (event) => {
      reported.push(event)
      if (event.type === 'model-end') exchanges.push(event)
      wake()
    },
    onModelWait: (wait) => {
      reported.push(wait)
      wake()
    },
    onDenied: (request) => denied.push(request),
    logger: {
      info: (fields, text) => logged.push(JSON.stringify({ ...fields, text })),
      warn: (fields, text) => logged.push(JSON.stringify({ ...fields, text })),
    },
  })
  const server = http2.createServer()
  server.on('stream', (stream, headers) => gateway.handleStream(stream, headers))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  client.on('error', () => {})
  const open = (wanted: RequestOptions = {}): http2.ClientHttp2Stream => {
    const { method = 'POST', path = '/v1/chat/completions', authority = 'gateway', headers = {} } = wanted
    const pseudo =
      method === 'CONNECT'
        ? { ':method': method, ':authority': authority }
        : { ':method': method, ':path': path, ':authority': authority, ':scheme': 'http' }
    const stream = client.request({ ...pseudo, ...headers }, { endStream: method === 'GET' })
    stream.on('error', () => {})
    if (method !== 'GET') {
      const body = wanted.body ?? chatBody
      stream.end(typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body))
    }
    return stream
  }
  return {
    gateway,
    exchanges,
    reported,
    denied,
    logged,
    open,
    request: (wanted) => readAnswer(open(wanted)),
    async waitsFor(what) {
      const isIt = (item: TestGateway['reported'][number]) => item.type === 'model-wait' && item.for === what
      while (!reported.some(isIt)) await new Promise<void>((resolve) => (wake = resolve))
    },
    async exchanged(count) {
      while (exchanges.length < count) await new Promise<void>((resolve) => (wake = resolve))
    },
    async [Symbol.asyncDispose]() {
      await gateway.close()
      client.destroy()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}

export async function readAnswer(stream: http2.ClientHttp2Stream): Promise<Answer> {
  let headers: http2.IncomingHttpHeaders = {}
  const parts: Buffer[] = []
  stream.on('response', (received) => {
    headers = received
  })
  stream.on('data', (part: Buffer) => parts.push(part))
  await new Promise<void>((resolve) => stream.once('close', resolve))
  const text = Buffer.concat(parts).toString('utf8')
  return {
    status: Number(headers[':status'] ?? 0),
    headers,
    text,
    reset: stream.rstCode ?? 0,
    code: readCode(text),
  }
}

function readCode(text: string): string | null {
  try {
    const value = JSON.parse(text) as { error?: { code?: unknown } }
    return typeof value.error?.code === 'string' ? value.error.code : null
  } catch {
    return null
  }
}

export interface TestUpstream extends AsyncDisposable {
  readonly url: string
  /** What came in, in order. */
  readonly requests: { readonly request: IncomingMessage; readonly body: string }[]
  /** Resolves when the connection of the first request is closed. */
  closed(): Promise<void>
}

/** An HTTP server on loopback whose every answer is `respond`'s. @param tls speaks TLS with this certificate */
export async function startUpstream(
  respond: (response: ServerResponse, request: IncomingMessage, body: string) => void,
  tls?: { readonly cert: string; readonly key: string },
): Promise<TestUpstream> {
  const requests: TestUpstream['requests'] = []
  const first = Promise.withResolvers<void>()
  const server: Server =
    tls === undefined ? createServer() : createTlsServer({ cert: tls.cert, key: tls.key })
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const parts: Buffer[] = []
    request.on('data', (part: Buffer) => parts.push(part))
    request.socket.once('close', () => first.resolve())
    response.on('error', () => {})
    request.on('end', () => {
      const body = Buffer.concat(parts).toString('utf8')
      requests.push({ request, body })
      respond(response, request, body)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http${tls === undefined ? '' : 's'}://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests,
    closed: () => first.promise,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}

/** A TCP server that answers every connection with `bytes` and then does what `after` says. */
export async function startRawUpstream(
  bytes: Buffer,
  after: (socket: Socket) => void,
): Promise<{ readonly url: string } & AsyncDisposable> {
  const sockets = new Set<Socket>()
  const server = createNetServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('data', () => socket.write(bytes, () => after(socket)))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}

/** One chunk of a stream. */
export function sse(value: unknown): string {
  return `data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`
}

export const textChunk = (text: string): string => sse({ choices: [{ index: 0, delta: { content: text } }] })

/** A whole, well-formed stream. */
export function sendStream(response: ServerResponse, ...events: string[]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for (const event of events) response.write(event)
  response.end()
}
