/** A journal of 10,000 events, read, checked and folded; the floor reads and parses its lines alone. */
import { mkdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { Journal, readJournal } from '../../host/journal/journal.ts'
import { agentExamples, hostExamples } from '../../specs/node/event-examples.ts'
import type { AgentEvent, HostEvent } from '../../specs/protocol/event.ts'
import { initialRunState, reduceRun } from '../../specs/protocol/run-state.ts'
import type { Bench, Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'

const eventCount = 10_000
const rounds = repeats(10)
/** What a run at work writes again and again. */
const types = ['model-start', 'model-end', 'turn-end', 'tool-start', 'tool-end'] as const

export async function measureFold({ work }: Bench): Promise<Figures> {
  reportProgress(`a journal of ${eventCount} events`)
  const file = path.join(work, 'journal.jsonl')
  const runId = 'run-00000000000000000001'
  await writeJournal(file, runId, path.join(work, 'locks'))
  const foldMs: number[] = []
  const foldFloorMs: number[] = []
  for (let round = 0; round < rounds; round += 1) {
    const parsedAt = performance.now()
    for (const line of (await readFile(file, 'utf8')).split('\n')) if (line !== '') JSON.parse(line)
    const readAt = performance.now()
    const state = (await readJournal(file, runId)).reduce(reduceRun, initialRunState)
    foldMs.push(performance.now() - readAt)
    foldFloorMs.push(readAt - parsedAt)
    if (state.toolCalls !== eventCount / types.length) throw new Error(`${state.toolCalls} calls were folded`)
  }
  const [fold, floor] = [figureOf(foldMs), figureOf(foldFloorMs)]
  return { foldMs: fold, foldFloorMs: floor, foldToFloor: round(fold.p50 / floor.p50) }
}

async function writeJournal(file: string, runId: string, locks: string): Promise<void> {
  await mkdir(locks)
  await using journal = await Journal.open({ runId, path: file, locks })
  let n = 0
  for (let index = 0; index < eventCount; index += 1) {
    const type = types[index % types.length] ?? 'turn-end'
    if (type in hostExamples) {
      const [, example] = hostExamples[type as keyof typeof hostExamples]
      await journal.append({ source: 'host', event: { type, ...example } as HostEvent })
    } else {
      const [, example] = agentExamples[type as keyof typeof agentExamples]
      const call = type === 'turn-end' ? {} : { callId: `call${Math.floor(index / types.length)}` }
      const event = { type, ...example, ...call } as AgentEvent
      await journal.append({ source: 'agent', agentPath: 'root', n: ++n, event })
    }
  }
}
