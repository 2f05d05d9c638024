/**
 * A model server for tests: real HTTP on loopback that answers from a scripted list, with every fault observed in
 * servers. Writes bytes as given and records requests. `model-replies.ts` builds the answers.
 */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export interface AskedMessage {
  readonly role: string
  readonly content: string | null
  readonly tool_calls?: readonly { id: string; function: { name: string; arguments: string } }[]
  readonly tool_call_id?: string
}

/** A received request. */
export interface Asked {
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly text: string
  /** Empty when the request had no JSON. */
  readonly body: Readonly<Record<string, unknown>>
  readonly messages: readonly AskedMessage[]
  readonly tools: readonly { function: { name: string } }[]
}

export interface ServerReply {
  /** Default 200. */
  readonly status?: number
  /** Besides `content-type`, which is an event stream's unless given here. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body: string | Uint8Array
  /** The JSON for a request without streaming; absent: always `body`. */
  readonly whole?: string
  /** The stream for a request without `stream_options.include_usage`; absent: `body`. */
  readonly uncounted?: string
  /** Bytes per write, or of successive writes; default all at once. */
  readonly pieceBytes?: number | readonly number[]
  /** Pause between the writes. */
  readonly pauseMs?: number
  /** Awaited before the write of that number, counted from 0, after the pause. */
  readonly beforePiece?: (piece: number) => Promise<unknown> | undefined
  /** Pause before the head. */
  readonly headAfterMs?: number
  /** Replaces the whole response: silence, or a reset connection. */
  readonly before?: 'hang' | 'reset'
  /** What follows the body: a proper end (default), an early close or reset, or silence. */
  readonly after?: 'end' | 'cut' | 'reset' | 'hang'
}

/** Chooses the reply to the request with the given number, counted from 0. */
export type Script = (asked: Asked, index: number) => ServerReply | Promise<ServerReply>

export interface ModelServer extends AsyncDisposable {
  /** Such as `http://127.0.0.1:40123/v1`. */
  readonly baseUrl: string
  readonly asked: readonly Asked[]
  /** Requests whose client left before the reply was complete. */
  readonly abandoned: () => number
  /** Maximum concurrent requests. */
  readonly mostOpen: () => number
}

/** Starts the server. A script may be a list of replies; the last one repeats. */
export async function startModelServer(script: Script | readonly ServerReply[]): Promise<ModelServer> {
  const asked: Asked[] = []
  const choose = typeof script === 'function' ? script : inTurn(script)
  let abandoned = 0
  let open = 0
  let mostOpen = 0
  const server = createServer((request, response) => {
    mostOpen = Math.max(mostOpen, ++open)
    response.on('close', () => {
      open--
      if (!response.writableFinished) abandoned++
    })
    response.on('error', () => undefined)
    answer(request, response, asked, choose).catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    asked,
    abandoned: () => abandoned,
    mostOpen: () => mostOpen,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function inTurn(replies: readonly ServerReply[]): Script {
  return (_asked, index) => {
    const chosen = replies[Math.min(index, replies.length - 1)]
    if (chosen === undefined) throw new Error('the script of the model server is empty')
    return chosen
  }
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  asked: Asked[],
  choose: Script,
): Promise<void> {
  const entry = await readRequest(request)
  asked.push(entry)
  const chosen = await choose(entry, asked.length - 1)
  if (chosen.before === 'hang') return
  if (chosen.before === 'reset') return void request.socket.resetAndDestroy()
  if (chosen.headAfterMs !== undefined) await sleep(chosen.headAfterMs)
  const asWhole = chosen.whole !== undefined && entry.body.stream !== true
  const type = asWhole ? 'application/json' : 'text/event-stream'
  response.writeHead(chosen.status ?? 200, { 'content-type': type, ...chosen.headers })
  response.flushHeaders()
  const stream = asksForUsage(entry.body) ? chosen.body : (chosen.uncounted ?? chosen.body)
  const body = asWhole ? (chosen.whole ?? '') : stream
  await writePieces(response, typeof body === 'string' ? Buffer.from(body) : body, chosen)
  if (chosen.after === 'cut') response.destroy()
  else if (chosen.after === 'reset') request.socket.resetAndDestroy()
  else if (chosen.after !== 'hang') response.end()
}

function asksForUsage({ stream_options: options }: Asked['body']): boolean {
  return typeof options === 'object' && options !== null && Reflect.get(options, 'include_usage') === true
}

async function readRequest(request: IncomingMessage): Promise<Asked> {
  const chunks: Buffer[] = []
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
  const text = Buffer.concat(chunks).toString()
  const body = parseObject(text)
  return {
    method: request.method ?? '',
    path: request.url ?? '',
    headers: request.headers,
    text,
    body,
    messages: (body.messages ?? []) as Asked['messages'],
    tools: (body.tools ?? []) as Asked['tools'],
  }
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

async function writePieces(
  response: ServerResponse,
  bytes: Uint8Array,
  { pieceBytes = Math.max(1, bytes.length), pauseMs, beforePiece }: ServerReply,
): Promise<void> {
  const sizes = typeof pieceBytes === 'number' ? [pieceBytes] : pieceBytes
  for (let at = 0, turn = 0; at < bytes.length && !response.destroyed; turn++) {
    const size = Math.max(1, sizes[turn % sizes.length] ?? 1)
    const piece = bytes.subarray(at, at + size)
    at += size
    await beforePiece?.(turn)
    // Lets written data leave before a reset can overtake it.
    await new Promise<void>((resolve) => {
      response.once('close', resolve)
      response.write(piece, () => {
        response.off('close', resolve)
        resolve()
      })
    })
    if (at < bytes.length) await (pauseMs === undefined ? new Promise(setImmediate) : sleep(pauseMs))
  }
}
