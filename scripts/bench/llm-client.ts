/** CPU time per turn of the model client, compared with the floor: both read the same streams alternately. */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { delta, done, event, toolDelta } from '../../specs/testing/model-replies.ts'
import { type ServerReply, startModelServer } from '../../specs/testing/model-server.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'
import type { LlmJob, LlmResult } from './llm-child.ts'

interface Case {
  readonly reply: ServerReply
  /** Turns of one sample. */
  readonly turns: number
  readonly history?: number
}

const samples = repeats(15)
const warmUpSamples = repeats(3)
/** A packet's worth: large streams do not come an event at a time. */
const packetBytes = 1_400

const cases: Readonly<Record<string, Case>> = {
  turn20: { reply: eventwise(texts(20, 12)), turns: 40 },
  turn200: { reply: eventwise(texts(200, 12)), turns: 20 },
  history200: { reply: eventwise(texts(20, 12)), turns: 20, history: 200 },
  bigArguments: { reply: packetwise(bigCall(200_000, 4_000)), turns: 4 },
  textFlood: { reply: packetwise(texts(20_000, 12)), turns: 2 },
}

export async function measureClient(): Promise<Figures> {
  const client = startChild('client')
  const floor = startChild('floor')
  try {
    const figures: Record<string, unknown> = {}
    for (const [name, one] of Object.entries(cases)) {
      reportProgress(`${name} of the client`)
      Object.assign(figures, await measureCase(name, one, client, floor))
    }
    return figures
  } finally {
    client.kill()
    floor.kill()
  }
}

async function measureCase(
  name: string,
  { reply, turns, history = 0 }: Case,
  client: Child,
  floor: Child,
): Promise<Figures> {
  await using server = await startModelServer([reply])
  const job: LlmJob = { baseUrl: server.baseUrl, turns, history }
  const clientMs: number[] = []
  const floorMs: number[] = []
  for (let count = -warmUpSamples; count < samples; count++) {
    const one = await client.run(job)
    const other = await floor.run(job)
    if (one.text !== other.text || one.argumentsText !== other.argumentsText)
      throw new Error(`${name}: client and floor read different answers`)
    if (count < 0) continue
    clientMs.push(one.cpuMs)
    floorMs.push(other.cpuMs)
  }
  const [figure, floorFigure] = [figureOf(clientMs), figureOf(floorMs)]
  return {
    [`${name}CpuMs`]: figure,
    [`floor${name.charAt(0).toUpperCase()}${name.slice(1)}CpuMs`]: floorFigure,
    [`${name}ToFloor`]: round(figure.p50 / floorFigure.p50),
  }
}

interface Child {
  readonly run: (job: LlmJob) => Promise<LlmResult>
  readonly kill: () => void
}

function startChild(kind: 'client' | 'floor'): Child {
  const child = fork(new URL('./llm-child.ts', import.meta.url), [kind], {
    execArgv: ['--conditions=caisson-source'],
  })
  const died = once(child, 'exit').then((): never => {
    throw new Error('the benchmarked process died; its reason is above')
  })
  // Irrelevant once the figures are collected.
  died.catch(() => undefined)
  return {
    run: async (job) => {
      const answer = once(child, 'message')
      child.send(job)
      const [result] = (await Promise.race([answer, died])) as [LlmResult]
      return result
    },
    kill: () => void child.kill(),
  }
}

function texts(count: number, chars: number): string[] {
  return Array.from({ length: count }, (_, index) => delta({ content: `${index} `.padEnd(chars, 'word ') }))
}

/** One call whose arguments come in this many deltas. */
function bigCall(chars: number, count: number): string[] {
  const text = JSON.stringify({
    path: 'a.txt',
    content: 'lorem "ipsum"\n'.repeat(chars / 17).slice(0, chars),
  })
  const size = Math.ceil(text.length / count)
  const head = toolDelta({ index: 0, id: 'call-1', type: 'function', function: { name: 'f', arguments: '' } })
  const rest = Array.from({ length: count }, (_, piece) =>
    toolDelta({ index: 0, function: { arguments: text.slice(piece * size, (piece + 1) * size) } }),
  )
  return [head, ...rest]
}

function ended(events: readonly string[]): string[] {
  const usage = event({ choices: [], usage: { prompt_tokens: 10, completion_tokens: 10 } })
  return [...events, delta({}, 'stop'), usage, done]
}

/** Every event is written by itself. */
function eventwise(events: readonly string[]): ServerReply {
  const all = ended(events)
  return { body: all.join(''), pieceBytes: all.map((one) => Buffer.byteLength(one)) }
}

function packetwise(events: readonly string[]): ServerReply {
  return { body: ended(events).join(''), pieceBytes: packetBytes }
}
