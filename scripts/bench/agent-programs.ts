/**
 * What tools as functions of a program save: turns and tokens of five tasks, by calls of the model alone and by one program.
 * The model is scripted: it makes eight calls in a reply where they do not need each other. Both ways must have the
 * same result.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { estimateTokens } from '../../agent/context/tokens.ts'
import { runStep } from '../../agent/step/step.ts'
import { makeRun, modelAt, silentLogger } from '../../agent/test/support/run.ts'
import { helperInFolder, runInFolder } from '../../agent/test/support/tools.ts'
import { snapshot, temporaryFolder } from '../../agent/test/support/trees.ts'
import { createRegistry } from '../../agent/tool-calls/registry.ts'
import { createCodeTools } from '../../agent/tools/code/code.ts'
import { createFileTools } from '../../agent/tools/file-tools.ts'
import { type PlainReply, reply } from '../../specs/testing/model-replies.ts'
import { startModelServer } from '../../specs/testing/model-server.ts'
import type { Figures } from './bench.ts'
import { reportProgress, round } from './figures.ts'

type Call = readonly [name: string, input: object]

interface ProgramTask {
  readonly files: Readonly<Record<string, string>>
  /** Calls of the model alone, in replies. */
  readonly turns: readonly (readonly Call[])[]
  /** Python that does the same. */
  readonly program: string
}

const callsAtOnce = 8

function inReplies(calls: readonly Call[]): Call[][] {
  return Array.from({ length: Math.ceil(calls.length / callsAtOnce) }, (_, at) =>
    calls.slice(at * callsAtOnce, (at + 1) * callsAtOnce),
  )
}

function filesOf(count: number, name: (at: number) => string, content: (at: number) => string) {
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [name(at), content(at)]))
}

const line = (at: number) => `${at} the quick brown fox jumps over the lazy dog\n`
const orders = filesOf(
  40,
  (at) => `orders/${at}.json`,
  (at) => `{\n  "order": ${at},\n  "total": ${at * 7}\n}\n`,
)
const sources = filesOf(
  30,
  (at) => `src/part${at}.py`,
  (at) => `${at % 7 === 3 ? '' : '# Licence: MIT\n'}${line(at).repeat(40)}`,
)
const settings = filesOf(
  20,
  (at) => `conf/${at}.ini`,
  (at) => `name = ${at}\nlog_level = debug\n`,
)
const log = { 'run.log': `${Array.from({ length: 2_400 }, (_, at) => line(at)).join('')}the end\n` }
const reports = filesOf(24, (at) => `report-20${10 + (at % 4)}-${at}.txt`, line)

const list = (at: string): Call => ['list_files', { path: at }]
const readAll = (files: object): Call[] => Object.keys(files).map((name) => ['read_file', { path: name }])

const tasks: Readonly<Record<string, ProgramTask>> = {
  sum: {
    files: orders,
    turns: [[list('orders')], ...inReplies(readAll(orders))],
    program: `import json
paths = [entry['path'] for entry in tools.list_files(path='orders')['entries']]
print(sum(json.loads(tools.read_file(path=path)['content'])['total'] for path in paths))`,
  },
  check: {
    files: sources,
    turns: [[list('src')], ...inReplies(readAll(sources))],
    program: `for entry in tools.list_files(path='src')['entries']:
    if not tools.read_file(path=entry['path'])['content'].startswith('# Licence'):
        print(entry['path'])`,
  },
  edit: {
    files: settings,
    turns: [
      [list('conf')],
      ...inReplies(
        Object.keys(settings).map((name) => [
          'edit_file',
          { path: name, oldText: 'log_level = debug', newText: 'log_level = info' },
        ]),
      ),
    ],
    program: `for entry in tools.list_files(path='conf')['entries']:
    tools.edit_file(path=entry['path'], oldText='log_level = debug', newText='log_level = info')`,
  },
  pages: {
    files: log,
    turns: Array.from({ length: 7 }, (_, at) => [
      ['read_file', { path: 'run.log', offset: 1 + 400 * at, limit: 400 }],
    ]),
    program: `offset, found = 1, []
while offset is not None:
    page = tools.read_file(path='run.log', offset=offset, limit=400)
    found += [text for text in page['content'].splitlines() if text.startswith('the end')]
    offset = page['nextOffset']
print(found)`,
  },
  move: {
    files: reports,
    turns: [
      [list('.')],
      ...inReplies(
        Object.keys(reports).map((name) => ['move_file', { from: name, to: `${name.slice(7, 11)}/${name}` }]),
      ),
    ],
    program: `for entry in tools.list_files(path='.', depth=1)['entries']:
    name = entry['path']
    tools.move_file(**{'from': name, 'to': f'{name[7:11]}/{name}'})`,
  },
}

export async function measurePrograms(): Promise<Figures> {
  const turns: Record<string, readonly number[]> = {}
  const tokens: Record<string, readonly number[]> = {}
  let [alone, programs] = [0, 0]
  for (const [name, task] of Object.entries(tasks)) {
    reportProgress(`the task ${name} by calls and by a program`)
    const without = await perform(task, task.turns)
    const within = await perform(task, [[['run_python', { code: task.program }]]])
    if (without.tree !== within.tree) throw new Error(`${name}: the program left other files`)
    turns[name] = [without.turns, within.turns]
    tokens[name] = [without.tokens, within.tokens]
    alone += without.tokens
    programs += within.tokens
  }
  return { programTurns: turns, programTokens: tokens, programTokensToCalls: round(programs / alone) }
}

/** Tokens are those of all requests and answers, estimated as the agent does. */
async function perform(
  { files }: ProgramTask,
  replies: readonly (readonly Call[])[],
): Promise<{ turns: number; tokens: number; tree: string }> {
  using folder = temporaryFolder()
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder.path, name)), { recursive: true })
    writeFileSync(path.join(folder.path, name), content)
  }
  const answers: PlainReply[] = [
    ...replies.map((calls) => ({ calls: calls.map(([name, given]) => ({ name, arguments: given })) })),
    { text: 'It is done.' },
  ]
  await using server = await startModelServer(answers.map(reply))
  const tools = [
    ...createFileTools(runInFolder(folder.path), { root: folder.path }),
    ...createCodeTools(helperInFolder(folder.path)),
  ]
  const { run, events } = makeRun({
    model: modelAt(server.baseUrl),
    registry: createRegistry(tools, { logger: silentLogger }),
  })
  const step = {
    id: 's',
    title: 't',
    instructions: 'i',
    needs: [],
    writes: ['*'],
    onFailure: 'abort' as const,
  }
  const { state } = await runStep(step, [{ role: 'user', content: 'Do it.' }], run, run.signal)
  run.budget.stop()
  const failed = events.find(
    (event) => event.type === 'tool-end' && (event.error !== undefined || (event.exitCode ?? 0) !== 0),
  )
  if (state !== 'completed' || failed !== undefined)
    throw new Error(`a call failed: ${JSON.stringify(failed)}`)
  const said = answers.reduce((sum, answer) => sum + estimateTokens(JSON.stringify(answer)), 0)
  const asked = server.asked.reduce((sum, { text }) => sum + estimateTokens(text), 0)
  return { turns: server.asked.length, tokens: said + asked, tree: JSON.stringify(snapshot(folder.path)) }
}
