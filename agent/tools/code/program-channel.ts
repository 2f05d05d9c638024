/**
 * The way from one program in the sandbox to the agent: a socket for lines of JSON. Owns who may use it, the bounds of
 * messages, and its end; knows nothing of tools. Only the program itself gets in: its token works once, and is used
 * before the program's first line.
 */
import { Buffer } from 'node:buffer'
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import * as z from 'zod'
import type { Result, ToolError } from '#specs/protocol/error.ts'
import type { ProgramTools } from '../../tool-calls/tool.ts'

/** The variable from which the program takes the socket's name and its token. */
export const channelVariable = 'CAISSON_TOOLS'

/** Arguments of 1 Mi characters, escaped once more. */
const lineMaxBytes = 3 * 1024 * 1024
const answerMaxBytes = 1024 * 1024
/** Requests whose answer the program has not taken; the next ones are not read. */
const pendingMax = 16
/** Requests beyond the calls that are left in the run: then the connection ends. The tools refuse them before. */
const refusedMaxCount = 500
/** Connections that have not shown the token; the oldest makes room. */
const strangersMax = 4
const tokenMaxMs = 10_000

const Request = z.union([
  z.strictObject({ id: z.int().min(1), list: z.literal(true) }),
  z.strictObject({ id: z.int().min(1), tool: z.string().max(200), arguments: z.string() }),
])
type Request = z.infer<typeof Request>

export class ProgramChannel implements AsyncDisposable {
  readonly #tools: ProgramTools
  readonly #onBusy: (isBusy: boolean) => void
  readonly #server: Server
  readonly #name = `caisson-tools-${randomBytes(16).toString('hex')}`
  readonly #token = randomBytes(24).toString('base64url')
  readonly #strangers = new Set<Socket>()
  readonly #ending = new AbortController()
  readonly #open = new Set<Promise<void>>()
  #program: Socket | undefined
  /** Read and not served; null: a line that is too long. */
  #lines: (string | null)[] = []
  #requestsLeft: number
  /** Calls under way. */
  #calls = 0
  /** After too many requests, and what is none. */
  #isBroken = false

  private constructor(tools: ProgramTools, onBusy: (isBusy: boolean) => void) {
    this.#tools = tools
    this.#requestsLeft = tools.callsLeft + refusedMaxCount
    this.#onBusy = onBusy
    this.#server = createServer((socket) => this.#meet(socket))
    this.#server.on('error', () => undefined)
  }

  /**
   * Waits for the program.
   * @param onBusy called when a first call begins, and when none is under way any more
   */
  static async open(tools: ProgramTools, onBusy: (isBusy: boolean) => void): Promise<ProgramChannel> {
    const channel = new ProgramChannel(tools, onBusy)
    // In the abstract namespace: the sandbox has the agent's network, and no folder that only one call can see.
    await once(channel.#server.listen({ path: `\0${channel.#name}` }), 'listening')
    return channel
  }

  /** For the program alone. */
  get env(): Readonly<Record<string, string>> {
    return { [channelVariable]: `${this.#name} ${this.#token}` }
  }

  /** Ends the calls that are under way and waits for their end. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#ending.abort('the program ended')
    this.#server.close()
    for (const socket of this.#strangers) socket.destroy()
    this.#program?.destroy()
    await Promise.allSettled([...this.#open])
  }

  #meet(socket: Socket): void {
    socket.on('error', () => undefined)
    if (this.#program !== undefined || this.#ending.signal.aborted) {
      socket.destroy()
      return
    }
    for (const oldest of this.#strangers) if (this.#strangers.size >= strangersMax) this.#forget(oldest)
    this.#strangers.add(socket)
    const timer = setTimeout(() => this.#forget(socket), tokenMaxMs).unref()
    socket.once('close', () => {
      clearTimeout(timer)
      this.#strangers.delete(socket)
    })
    const expected = Buffer.from(`${this.#token}\n`)
    let seen = Buffer.alloc(0)
    const listen = (piece: Buffer): void => {
      seen = Buffer.concat([seen, piece])
      if (seen.length < expected.length) return
      socket.off('data', listen)
      if (this.#program !== undefined || !timingSafeEqual(seen.subarray(0, expected.length), expected)) {
        this.#forget(socket)
        return
      }
      clearTimeout(timer)
      this.#accept(socket, seen.subarray(expected.length))
    }
    socket.on('data', listen)
  }

  #forget(socket: Socket): void {
    this.#strangers.delete(socket)
    socket.destroy()
  }

  #accept(socket: Socket, rest: Buffer): void {
    this.#program = socket
    // Each answer that is being written waits for its end too.
    socket.setMaxListeners(2 * pendingMax)
    this.#strangers.delete(socket)
    this.#server.close()
    for (const stranger of this.#strangers) stranger.destroy()
    const reader = new LineReader()
    const take = (piece: Buffer): void => {
      this.#lines.push(...reader.feed(piece))
      this.#advance(socket)
    }
    socket.on('data', take)
    take(rest)
  }

  /** Serves what was read, and reads more where there is room. */
  #advance(socket: Socket): void {
    while (!this.#isBroken && this.#open.size < pendingMax && this.#lines.length > 0) {
      const line = this.#lines.shift() ?? null
      const request = line === null ? null : parseRequest(line)
      if (request === null || --this.#requestsLeft < 0) {
        this.#isBroken = true
        this.#lines = []
      } else this.#serve(request, socket)
    }
    // What was called before gets its answer.
    if (this.#isBroken && this.#open.size === 0) socket.destroy()
    else if (this.#isBroken || this.#lines.length > 0) socket.pause()
    else socket.resume()
  }

  #serve(request: Request, socket: Socket): void {
    const served = this.#answer(request)
      .then((answer) => write(socket, `${answer}\n`))
      .finally(() => {
        this.#open.delete(served)
        this.#advance(socket)
      })
    this.#open.add(served)
  }

  async #answer(request: Request): Promise<string> {
    const { id } = request
    if ('list' in request) return JSON.stringify({ id, value: this.#tools.functions })
    const result = await this.#call(request.tool, request.arguments)
    if (!result.ok) return JSON.stringify({ id, error: result.error })
    const answer = JSON.stringify({ id, value: result.value ?? null })
    const bytes = Buffer.byteLength(answer)
    if (bytes <= answerMaxBytes) return answer
    const text = `the call was made, and its result of ${bytes} bytes is too long for a program (${answerMaxBytes} bytes)`
    return JSON.stringify({ id, ...failure('too_large', text) })
  }

  /** The program's time runs again with the end of the call, not once the program has taken the answer. */
  async #call(tool: string, argumentsText: string): Promise<Result<unknown>> {
    if (this.#calls++ === 0) this.#onBusy(true)
    try {
      return await this.#tools.call(tool, argumentsText, this.#ending.signal)
    } catch {
      return failure('internal', 'the call could not be made')
    } finally {
      if (--this.#calls === 0) this.#onBusy(false)
    }
  }
}

function failure(code: ToolError['code'], message: string): { ok: false; error: ToolError } {
  return { ok: false, error: { code, message, retryable: false } }
}

/** Resolves when the program has room for more, or is gone. */
async function write(socket: Socket, text: string): Promise<void> {
  if (socket.destroyed) return
  const closed = Promise.withResolvers<void>()
  socket.once('close', closed.resolve)
  const written = Promise.withResolvers<void>()
  socket.write(text, () => written.resolve())
  await Promise.race([written.promise, closed.promise])
  socket.off('close', closed.resolve)
}

function parseRequest(line: string): Request | null {
  try {
    return Request.parse(JSON.parse(line))
  } catch {
    return null
  }
}

/** Cuts bytes into lines; null for one that is too long, and nothing is read after it. */
class LineReader {
  #pieces: Buffer[] = []
  #bytes = 0

  feed(piece: Buffer): (string | null)[] {
    const lines: (string | null)[] = []
    let start = 0
    for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10, start)) {
      const line = Buffer.concat([...this.#pieces, piece.subarray(start, end)])
      this.#pieces = []
      this.#bytes = 0
      start = end + 1
      lines.push(line.length > lineMaxBytes ? null : line.toString('utf8'))
    }
    this.#pieces.push(piece.subarray(start))
    this.#bytes += piece.length - start
    if (this.#bytes > lineMaxBytes) lines.push(null)
    return lines
  }
}
