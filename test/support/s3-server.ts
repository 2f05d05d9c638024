/**
 * A real S3 server for tests: OpenStack Swift with its S3 interface, of Debian's package python3-swift, which checks signatures.
 * Its data is in a temporary folder, it listens on the loopback alone, needs no rights, and ends with the test's process.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  request as send,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'

const python = '/usr/bin/python3'
const swift = '/usr/lib/python3/dist-packages/swift/__init__.py'
const program = path.join(import.meta.dirname, 's3-server/server.py')

export class S3Server implements AsyncDisposable {
  readonly accessKeyId = 'test:tester'
  readonly secretAccessKey = 'the-secret-of-the-test'
  readonly port: number
  readonly #folder: string
  readonly #program: ChildProcess

  private constructor(folder: string, program: ChildProcess, port: number) {
    this.#folder = folder
    this.#program = program
    this.port = port
  }

  static async start(): Promise<S3Server> {
    if (!existsSync(swift)) throw new Error(`there is no ${swift}: install Debian's package python3-swift`)
    const folder = await mkdtemp(path.join(tmpdir(), 's3-'))
    const child = spawn(python, ['-B', program, folder], { env: {}, stdio: ['pipe', 'pipe', 'pipe'] })
    let said = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-4_000)
    })
    const login = { user: 'tester', account: 'test', secret: 'the-secret-of-the-test' }
    child.stdin.write(`${JSON.stringify(login)}\n`)
    const ended = once(child, 'close').then(() => Promise.reject(new Error(`Swift did not start: ${said}`)))
    ended.catch(() => undefined)
    try {
      const [port] = await Promise.race([once(child.stdout, 'data'), ended])
      return new S3Server(folder, child, Number(String(port)))
    } catch (error) {
      await rm(folder, { recursive: true, force: true })
      throw error
    }
  }

  /** Variables of a client. */
  envFor(port = this.port): Record<string, string> {
    return {
      AWS_ACCESS_KEY_ID: this.accessKeyId,
      AWS_SECRET_ACCESS_KEY: this.secretAccessKey,
      AWS_REGION: 'us-east-1',
      AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${port}`,
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const isOver = this.#program.exitCode !== null || this.#program.signalCode !== null
    if (!isOver) {
      const ended = once(this.#program, 'close')
      this.#program.kill('SIGKILL')
      await ended
    }
    await rm(this.#folder, { recursive: true, force: true })
  }
}

/** What happens to a request on its way. */
export type Fault =
  | {
      readonly kind: 'answer'
      readonly status: number
      readonly body: string
      readonly headers?: Record<string, string>
    }
  /** The connection breaks after so many bytes of the answer's body. */
  | { readonly kind: 'cut-answer'; readonly bytes: number }
  /** The connection breaks after so many bytes of the request's body, which the server gets. */
  | { readonly kind: 'cut-request'; readonly bytes: number }
  /** The server's answer never comes; it has done what was asked. */
  | { readonly kind: 'lost-answer' }
  /** Nothing more comes after so many bytes of the answer's body. */
  | { readonly kind: 'stall'; readonly bytes: number }

/** A way to the server on which requests meet faults. Signatures stay valid: the client's Host is passed on. */
export class FaultyWay implements AsyncDisposable {
  /** Of each request: method and address. */
  readonly seen: string[] = []
  /** For the next requests, in order; of one kind of request where `at` fits. */
  readonly faults: { readonly at: RegExp; readonly fault: Fault }[] = []
  readonly #server: Server
  readonly #to: number

  private constructor(server: Server, to: number) {
    this.#server = server
    this.#to = to
    server.on(
      'request',
      (request, response) => void this.#pass(request, response).catch(() => response.destroy()),
    )
  }

  static async open(to: number): Promise<FaultyWay> {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new FaultyWay(server, to)
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  add(at: RegExp, fault: Fault, times = 1): void {
    for (let count = 0; count < times; count += 1) this.faults.push({ at, fault })
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const what = `${request.method} ${request.url}`
    this.seen.push(what)
    const place = this.faults.findIndex(({ at }) => at.test(what))
    const fault = place < 0 ? undefined : this.faults.splice(place, 1)[0]?.fault
    if (fault?.kind === 'answer') {
      request.resume()
      response.writeHead(fault.status, fault.headers).end(fault.body)
      return
    }
    const { url: at = '', method, headers } = request
    const onward = send({ host: '127.0.0.1', port: this.#to, path: at, method, headers, agent: false })
    // Swift sends the end of a body behind the head of an answer to HEAD.
    onward.on('error', () =>
      setImmediate(() => {
        if (method !== 'HEAD' || !response.headersSent) response.destroy()
      }),
    )
    let sent = 0
    for await (const piece of request as AsyncIterable<Buffer>) {
      const most = fault?.kind === 'cut-request' ? fault.bytes - sent : piece.length
      onward.write(piece.subarray(0, most))
      sent += piece.length
      if (most >= piece.length) continue
      onward.destroy()
      response.destroy()
      return
    }
    onward.end()
    const [answer] = (await once(onward, 'response')) as [IncomingMessage]
    if (fault?.kind === 'lost-answer') {
      answer.resume()
      await once(answer, 'end')
      response.destroy()
      return
    }
    const { connection: _, 'transfer-encoding': __, ...own } = answer.headers
    response.writeHead(answer.statusCode ?? 500, own)
    if (method === 'HEAD') {
      answer.on('error', () => undefined).destroy()
      response.end()
      return
    }
    let given = 0
    for await (const piece of answer as AsyncIterable<Buffer>) {
      const isBound = fault?.kind === 'cut-answer' || fault?.kind === 'stall'
      const most = isBound ? fault.bytes - given : piece.length
      const isSent = new Promise<void>((resolve) =>
        response.write(piece.subarray(0, Math.max(0, most)), () => resolve()),
      )
      given += piece.length
      if (most < piece.length) {
        await isSent
        answer.destroy()
        if (fault?.kind === 'cut-answer') setTimeout(() => response.destroy(), 50)
        return
      }
      await isSent
    }
    response.end()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }
}
