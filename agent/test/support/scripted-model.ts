/**
 * A model for tests: a real HTTP server on loopback that speaks the streaming protocol from a script, with every quirk that
 * servers were seen to have. Records what it was asked. Bytes are written as given, in pieces of any size.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface AskedMessage {
  readonly role: string
  readonly content: string | null
  readonly tool_calls?: readonly { id: string; function: { name: string; arguments: string } }[]
  readonly tool_call_id?: string
}

/** A request as it came. */
export interface Asked {
  readonly text: string
  readonly messages: readonly AskedMessage[]
  readonly tools: readonly { function: { name: string } }[]
  readonly body: Readonly<Record<string, unknown>>
}

export interface ScriptedReply {
  /** Default 200. */
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body: string | Uint8Array
  /** Bytes a write; default all at once. */
  readonly pieceBytes?: number
  /** What happens after the body: a proper end (default), a reset connection, or silence. */
  readonly after?: 'end' | 'reset' | 'hang'
}

/** Chooses the reply to the request with the given number, counted from 0. */
export type Script = (asked: Asked, index: number) => ScriptedReply

export interface ScriptedModel extends AsyncDisposable {
  readonly baseUrl: string
  readonly asked: readonly Asked[]
  /** Requests whose client went away before the reply was whole. */
  readonly abandoned: () => number
}

/** Starts the server. A script may be a list of replies, the last of which repeats. */
export async function startScriptedModel(script: Script | readonly ScriptedReply[]): Promise<ScriptedModel> {
  const asked: Asked[] = []
  let abandoned = 0
  const choose: Script =
    typeof script === 'function'
      ? script
      : (_asked, index) =>
          script[Math.min(index, script.length - 1)] ?? reply({ text: 'no reply is scripted' })
  const server = createServer((request, response) => {
    response.on('close', () => {
      if (!response.writableFinished) abandoned++
    })
    answer(request, response, asked, choose).catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    asked,
    abandoned: () => abandoned,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  asked: Asked[],
  choose: Script,
): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
  const text = Buffer.concat(chunks).toString()
  const body = JSON.parse(text) as Record<string, unknown>
  const entry: Asked = {
    text,
    body,
    messages: body.messages as AskedMessage[],
    tools: (body.tools ?? []) as Asked['tools'],
  }
  asked.push(entry)
  const chosen = choose(entry, asked.length - 1)
  const bytes = typeof chosen.body === 'string' ? Buffer.from(chosen.body) : chosen.body
  response.writeHead(chosen.status ?? 200, { 'content-type': 'text/event-stream', ...chosen.headers })
  const size = chosen.pieceBytes ?? Math.max(1, bytes.length)
  for (let at = 0; at < bytes.length && !response.destroyed; at += size) {
    if (!response.write(bytes.subarray(at, at + size))) await onceDrained(response)
    if (chosen.pieceBytes !== undefined) await new Promise(setImmediate)
  }
  if (chosen.after === 'reset') response.destroy()
  else if (chosen.after !== 'hang') response.end()
}

function onceDrained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    response.once('drain', resolve)
    response.once('close', resolve)
  })
}

/** One event of the stream. */
export function event(chunk: unknown): string {
  return `data: ${typeof chunk === 'string' ? chunk : JSON.stringify(chunk)}\n\n`
}

/** A chunk with this delta. */
export function delta(fields: unknown, finishReason: string | null = null): string {
  return event({
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta: fields, finish_reason: finishReason }],
  })
}

/** A chunk with these entries of `tool_calls`. */
export function toolDelta(...calls: unknown[]): string {
  return delta({ tool_calls: calls })
}

export interface PlainReply {
  readonly text?: string
  readonly reasoning?: string
  readonly calls?: readonly { id?: string; name: string; arguments: unknown }[]
  readonly finishReason?: string
  readonly usage?: { prompt_tokens: number; completion_tokens: number }
}

/** A well-formed reply, shaped like vLLM's. Arguments that are text go as they are. */
export function reply(content: PlainReply): ScriptedReply {
  const calls = content.calls ?? []
  const parts = [delta({ role: 'assistant', content: '' })]
  if (content.reasoning !== undefined) parts.push(delta({ reasoning_content: content.reasoning }))
  if (content.text !== undefined) parts.push(delta({ content: content.text }))
  calls.forEach((call, index) => {
    const text = typeof call.arguments === 'string' ? call.arguments : JSON.stringify(call.arguments)
    const half = Math.ceil(text.length / 2)
    const id = call.id === undefined ? {} : { id: call.id }
    parts.push(
      toolDelta({
        index,
        ...id,
        type: 'function',
        function: { name: call.name, arguments: text.slice(0, half) },
      }),
    )
    parts.push(toolDelta({ index, function: { arguments: text.slice(half) } }))
  })
  parts.push(delta({}, content.finishReason ?? (calls.length > 0 ? 'tool_calls' : 'stop')))
  parts.push(event({ choices: [], usage: content.usage ?? { prompt_tokens: 10, completion_tokens: 5 } }))
  return { body: `${parts.join('')}${event('[DONE]')}` }
}

/** The reply to a planning request: a call of submit_plan. */
export function planReply(plan: unknown): ScriptedReply {
  return reply({ calls: [{ name: 'submit_plan', arguments: plan }] })
}

/** Whether the request asks for a plan. */
export function isPlanning(asked: Asked): boolean {
  return asked.messages[0]?.content?.startsWith("You are Caisson's planner.") ?? false
}

/** The id of the step that the request is about. */
export function stepOf(asked: Asked): string | undefined {
  return /# This step\nid: (\S+)/.exec(asked.messages[1]?.content ?? '')?.[1]
}
