/** The model of the agent's benchmark: calls a tool in every turn but the last. Keeps nothing of what it is asked. */

import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { delta, done, event, toolDelta } from '../../specs/testing/model-replies.ts'

export interface TurnServer extends AsyncDisposable {
  readonly baseUrl: string
  /** Conversations of `turns` answers each begin; `gate` is awaited before every last answer. */
  begin(turns: number, gate?: () => Promise<void>): void
}

export const finalText = 'That is all there is to say about it.'

/** Knows a conversation by the model's name in the path, so that it need not read what is sent. */
export async function startTurnServer(): Promise<TurnServer> {
  let turns = 1
  let gate = async (): Promise<void> => undefined
  const asked = new Map<string, number>()
  const server = createServer((request, response) => {
    request.resume()
    request.on('end', () => {
      const conversation = request.url ?? ''
      const turn = (asked.get(conversation) ?? 0) + 1
      asked.set(conversation, turn)
      const answer = async () => {
        if (turn % turns === 0) await gate()
        await write(response, turn % turns === 0 ? lastAnswer : callAnswer(turn))
      }
      answer().catch(() => response.destroy())
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    baseUrl: `http://127.0.0.1:${port}`,
    begin: (count, wait = async () => undefined) => {
      turns = count
      gate = wait
      asked.clear()
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

const usage = event({ choices: [], usage: { prompt_tokens: 10, completion_tokens: 10 } })
const words = finalText.match(/\S+\s?/g) ?? []
const lastAnswer = [...words.map((content) => delta({ content })), delta({}, 'stop'), usage, done]

/** Some words, then a call whose arguments come in ten pieces. */
function callAnswer(turn: number): string[] {
  const args = JSON.stringify({ path: `notes/file-${turn}.txt`, content: `line ${turn} `.repeat(8) })
  const size = Math.ceil(args.length / 10)
  const pieces = Array.from({ length: 10 }, (_, at) => args.slice(at * size, (at + 1) * size))
  const name = { name: 'write_file', arguments: '' }
  return [
    ...['Next ', 'comes ', 'file ', `${turn}.`].map((content) => delta({ content })),
    toolDelta({ index: 0, id: `call-${turn}`, type: 'function', function: name }),
    ...pieces.map((piece) => toolDelta({ index: 0, function: { arguments: piece } })),
    delta({}, 'tool_calls'),
    usage,
    done,
  ]
}

async function write(response: ServerResponse, events: readonly string[]): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for (const one of events) {
    response.write(one)
    await new Promise(setImmediate)
  }
  response.end()
}
