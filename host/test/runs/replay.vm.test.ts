// A run is replayed without its model, its application and its person, and compared with what it was.
import { readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import * as z from 'zod'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { elsewhere, exported, imported } from '../archive/support.ts'
import { readFiles, type TestBench, testBench } from '../support/runs.ts'

const call = (name: string, input: unknown): ServerReply => reply({ calls: [{ name, arguments: input }] })
const step = (id: string, more: object) => ({
  id,
  title: id,
  instructions: id.toUpperCase(),
  needs: [],
  ...more,
})
const plan = call('submit_plan', {
  goal: 'Order parts',
  steps: [
    step('count', { writes: ['count.txt'] }),
    step('order', { writes: ['order.txt', 'old.txt'] }),
    step('join', { needs: ['count', 'order'], writes: ['report.md'] }),
  ],
})

/** Orders and deletes by the tools, and prints little of what they gave. */
const orderProgram = `number = tools.order_part(id='a7')
tools.delete_file(path='old.txt')
print(number[-2:], tools.read_file(path='parts.csv')['totalLines'])`
const countProgram = `const pages = await Promise.all([1, 2, 3].map((offset) => tools.read_file({ path: 'parts.csv', offset, limit: 1 })))
console.log(pages.map(({ content }) => content.slice(0, 2)).join())`

const turns: Readonly<Record<string, readonly ServerReply[]>> = {
  COUNT: [
    call('run_bash', { command: 'wc -l <parts.csv | tee count.txt' }),
    call('run_javascript', { code: countProgram }),
    reply({ text: '3 lines' }),
  ],
  ORDER: [
    call('run_python', { code: orderProgram }),
    call('write_file', { path: 'order.txt', content: 'a7\n' }),
    reply({ text: 'ordered' }),
  ],
  JOIN: [
    call('ask_user', { question: 'Which title?', kind: 'text' }),
    call('spawn_agent', { brief: 'PEN', name: 'pen', isolation: 'vm' }),
    reply({ text: 'All is written.' }),
  ],
  PEN: [
    call('write_file', { path: 'report.md', content: '# Parts\n' }),
    call('edit_file', { path: 'parts.csv', edits: [{ find: 'b2', replace: 'b3' }] }),
    reply({ text: 'PEN is done' }),
  ],
}

/** Each agent has the word in capitals with which its instructions begin. */
function script(): Script {
  const at = new Map<string, number>()
  return (asked: Asked) => {
    const user = asked.messages.find(({ role }) => role === 'user')?.content ?? ''
    const word = /<instructions>\n(?:.*\n\n)?([A-Z]{2,})/.exec(user)?.[1]
    if (word === undefined) return plan
    const turn = at.get(word) ?? 0
    at.set(word, turn + 1)
    return turns[word]?.[turn] ?? reply({ text: `${word} is done` })
  }
}

/** Where this machine keeps its image, and its programs. */
const ofMachine = Object.fromEntries(
  ['HOME', 'PATH', 'CAISSON_CACHE', 'XDG_CACHE_HOME'].flatMap((name) => {
    const value = process.env[name]
    return value === undefined ? [] : [[name, value]]
  }),
)

/** What the application did. */
interface Effects {
  ordered: number
  asked: number
}

async function runOnce(): Promise<{ bench: TestBench; runId: string; effects: Effects }> {
  await using server = await startModelServer(script())
  const env = { CAISSON_LLM_URL: server.baseUrl, CAISSON_LLM_KEY: 'sk-1', CAISSON_MODEL: 'scripted' }
  const bench = await testBench({ 'parts.csv': 'a7,1\nb2,5\nc3,9\n', 'old.txt': 'old\n' }, env)
  const effects = { ordered: 0, asked: 0 }
  const { run, state } = await bench.run('Order the parts', {
    approvals: { interactive: true },
    onApproval: ({ question }) => {
      effects.asked += 1
      return question === undefined ? 'allow' : { decision: 'allow', answer: 'Parts' }
    },
    extensions: {
      hostTools: {
        order_part: {
          description: 'Orders a part',
          inputSchema: z.strictObject({ id: z.string() }),
          execute: () => {
            effects.ordered += 1
            return 'ordered under number 17'
          },
        },
      },
      hooks: [
        { point: 'after-tool', tools: ['run_bash'], name: 'note', run: () => ({ note: 'counted twice' }) },
      ],
    },
  })
  expect(state.end).toMatchObject({ outcome: 'completed' })
  return { bench, runId: run.id, effects }
}

/** Each call of a program stands below the program's own; the model got what the programs printed. */
function expectProgramCalls(events: readonly JournalEvent['event'][]): void {
  const starts = events.flatMap((event) => (event.type === 'tool-start' ? [event] : []))
  const inner = starts.filter(({ parentCallId }) => parentCallId !== undefined)
  const parents = inner.map(({ parentCallId }) => starts.find(({ callId }) => callId === parentCallId)?.tool)
  expect(inner.map(({ tool }, index) => `${parents[index]} ${tool}`).toSorted()).toEqual([
    ...Array.from({ length: 3 }, () => 'run_javascript read_file'),
    ...['delete_file', 'order_part', 'read_file'].map((tool) => `run_python ${tool}`),
  ])
  const outputs = events.flatMap((event) =>
    event.type === 'tool-end' ? [`${event.tool} ${event.output}`] : [],
  )
  expect(outputs).toContainEqual(expect.stringMatching(/^run_python 17 3\n\[exit code 0/))
  expect(outputs).toContainEqual(expect.stringMatching(/^run_javascript a7,b2,c3\n\[exit code 0/))
  const asked = events.flatMap((event) => (event.type === 'approval-request' ? [event.request] : []))
  expect(asked.filter(({ parentCallId }) => parentCallId !== undefined).map(({ tool }) => tool)).toEqual([
    'order_part',
    'delete_file',
  ])
}

it('a replayed run asks no model, application or person, and finds no difference; a changed one is found at its line [R.03, G.06, A.14]', async () => {
  const { bench, runId, effects } = await runOnce()
  expect(effects).toEqual({ ordered: 1, asked: 3 })
  expectProgramCalls((await bench.host.runs.read(runId)).map(({ event }) => event))
  // As one file it goes to a host that has neither the directory nor the model.
  const there = await elsewhere(ofMachine)
  const file = await exported(bench.host, runId)
  expect(await imported(there.host, file, there.directory)).toMatchObject({ runId, isNew: true })
  const replay = await there.host.replay(runId)
  const result = await replay.result()
  expect(result).toMatchObject({ replays: runId, isSame: true, difference: null, isCutOff: false })
  expect(result.events).toBeGreaterThan(30)
  expect(effects).toEqual({ ordered: 1, asked: 3 })
  expect(await there.host.runs.summary(replay.run.id)).toMatchObject({ replays: runId, status: 'completed' })

  // Nothing of a replay is applied, whoever asks for it; the workspace is as the run found it.
  const changes = await there.host.changes(replay.run.id)
  await expect(changes.apply('all')).rejects.toMatchObject({ code: 'not_possible_now' })
  expect(await readFiles(bench.workspace)).toEqual({ 'parts.csv': 'a7,1\nb2,5\nc3,9\n', 'old.txt': 'old\n' })
  await expect(there.host.replay(replay.run.id)).rejects.toThrow('is a replay itself')

  const { exchanges } = bench.host.runs.paths(runId)
  const recorded = await readFile(exchanges, 'utf8')
  await writeFile(exchanges, recorded.replaceAll('PEN is done', 'PEN is late'))
  const other = await (await bench.host.replay(runId)).result()
  const line = (await bench.host.runs.read(runId)).find(
    ({ event }) => event.type === 'turn-end' && event.text === 'PEN is done',
  )?.seq
  expect(other).toMatchObject({
    isSame: false,
    difference: {
      line,
      agentPath: 'root/pen',
      type: 'turn-end',
      field: 'text',
      expected: 'PEN is done',
      seen: 'PEN is late',
    },
  })

  await rm(bench.host.runs.paths(runId).moments, { recursive: true, force: true })
  await writeFile(path.join(bench.workspace, 'parts.csv'), 'd4,1\n')
  await expect(bench.host.replay(runId)).rejects.toMatchObject({
    code: 'not_possible_now',
    message: expect.stringContaining('"parts.csv" is another'),
  })
}, 400_000)
