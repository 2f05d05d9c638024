// A workflow in the real host and the real agent, with a program in the place of QEMU: as it runs, and killed at positions of
// its journal.
import { createHash } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, it } from 'vitest'
import * as z from 'zod'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, ServerReply } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { runCli } from '../../host/cli/main.ts'
import { Host, type WorkflowOptions } from '../../host/host.ts'
import { workflowTools } from '../../host/start-workflow.ts'
import type { WorkflowStore } from '../../host/workflows/workflow-store.ts'
import { WorkspaceManager } from '../../host/workflows/workspace-manager.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { type KilledWorkflow, killAtAll, undisturbed } from './workflow-kills.ts'
import type { World } from './world.ts'

/** As the README of Agent Runner writes it, with a branch, a call and a result. */
const file = {
  'Agent - V1@develop#details': {
    steps: [
      { id: '1. Architect', name: '1. Architect' },
      { id: '2. Order', name: '2. Order' },
      { id: '3. Nothing', name: '3. Nothing' },
      { id: '4. Report', name: '4. Report' },
    ],
    input: { type: 'object', properties: { sheet: { type: 'string' } }, required: ['sheet'] },
    result: '{"part": steps["1. Architect"].output.part, "said": steps["4. Report"].output}',
  },
  'Agent - V1@develop@step-1. Architect#details': {
    chat: [
      { role: 'system', content: 'You are a helpful AI agent.' },
      { role: 'user', content: 'Which part is missing in {{input.sheet}}?' },
    ],
    function: [{ name: 'read_data_from_sheet' }],
    output: { type: 'object', properties: { part: { type: 'string' } }, required: ['part'] },
    nextStep: [{ when: 'steps["1. Architect"].output.part != ""', step: '2. Order' }, { step: '3. Nothing' }],
    runFunctionsInParallel: false,
    passConversationToNextStep: false,
  },
  'Agent - V1@develop@step-2. Order#details': {
    call: { function: 'order_part', arguments: { id: '{{steps["1. Architect"].output.part}}' } },
    nextStep: '4. Report',
  },
  'Agent - V1@develop@step-3. Nothing#details': {
    chat: [{ role: 'user', content: 'Say that nothing is missing.' }],
    nextStep: '4. Report',
  },
  'Agent - V1@develop@step-4. Report#details': {
    chat: [{ role: 'user', content: 'Report: {{steps["2. Order"].output}}' }],
    tools: ['write_file'],
    model: 'another',
    nextStep: '-',
  },
  'Agent - V1@develop@func-read_data_from_sheet#details': {
    description: 'reads data from given g-sheet',
    parameters: [{ type: 'string', name: 'sheet_url', description: 'Sheet url' }],
    code: 'async function read_data_from_sheet(sheet_url) { ... }',
  },
  'Agent - V1@develop@func-order_part#details': {
    description: 'orders a part',
    parameters: [{ type: 'string', name: 'id' }],
  },
}
const workflow = new WorkspaceManager().parse(JSON.stringify(file))

/** What the model of the workflow says. */
function answer({ messages }: Asked): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  const isFirst = messages.at(-1)?.role !== 'tool'
  const call = (name: string, args: object) =>
    reply({ calls: [{ id: 'c1', name, arguments: JSON.stringify(args) }] })
  if (asked.includes('Which part'))
    return isFirst ? call('read_data_from_sheet', { sheet_url: 's1' }) : reply({ text: '{"part": "a7"}' })
  if (asked.includes('Report:'))
    return isFirst
      ? call('write_file', { path: 'report.txt', content: 'ordered\n' })
      : reply({ text: 'reported' })
  return reply({ text: `unexpected: ${asked}` })
}

function functionsFor(orders: string[]): NonNullable<WorkflowOptions['functions']> {
  return {
    read_data_from_sheet: ({ sheet_url }) => ({ rows: [`${sheet_url}: a7 is missing`] }),
    order_part: ({ id }) => {
      orders.push(String(id))
      return { ordered: id }
    },
  }
}

const options = (world: World, orders: string[]): WorkflowOptions => ({
  input: { sheet: 's1' },
  functions: functionsFor(orders),
  workspace: world.scene.workspace,
  approvals: { mode: 'all' },
  vm: { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2, start: 'cold' },
  onNotes: () => undefined,
})

/** Types of lines before which there is no agent with work, and behind which it has none left. */
const isAtWork = ({ event }: JournalEvent): boolean =>
  ['step-start', 'model-start', 'model-end', 'turn-end', 'tool-start', 'tool-end', 'step-end'].includes(
    event.type,
  )

const scripted: KilledWorkflow = {
  answers: answer,
  start: (world, orders) => world.host.startWorkflow(workflow, options(world, orders)),
}

let folder: string
let worlds: Worlds

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-workflow-'))
  worlds = await Worlds.open(await installMachine(folder), folder)
}, 120_000)

afterAll(async () => {
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

it('a workflow runs as its file says, and its result is the answer of the run [S3.01 S3.02 S3.03 S3.04]', async () => {
  await using world = await worlds.openWorld()
  const models: unknown[] = []
  world.answers = (asked) => {
    models.push(asked.body.model)
    return answer(asked)
  }
  const orders: string[] = []
  const run = await scripted.start(world, orders)
  const result = await run.result()
  expect(result).toMatchObject({
    outcome: 'completed',
    message: '3 of 4 steps completed, 1 not taken',
    value: { part: 'a7', said: 'reported' },
  })
  expect(orders).toEqual(['a7'])
  expect(models).toEqual(['scripted', 'scripted', 'another', 'another'])
  const lines = await world.host.runs.read(run.id)
  expect(lines[0]?.event).toMatchObject({
    type: 'run-start',
    prompt: 'Agent - V1@develop',
    workflow: { name: 'Agent - V1', version: 'develop', sha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
  })
  const ended = lines.flatMap(({ event }) =>
    event.type === 'step-end' ? [`${event.stepId} ${event.state}`] : [],
  )
  expect(ended).toEqual([
    '1-architect completed',
    '3-nothing skipped',
    '2-order completed',
    '4-report completed',
  ])
}, 60_000)

it('the first sample of the documents runs unchanged, with the functions of the application [S3.02 S3.03 S3.12]', async () => {
  const page = await readFile(path.join(import.meta.dirname, '../../docs/sample-workspace-json.md'), 'utf8')
  const sample = new WorkspaceManager().parse(/```json5\n([\s\S]*?)```/.exec(page)?.[1] ?? '')
  await using world = await worlds.openWorld()
  const models = new Set<unknown>()
  const call = (id: string, name: string, args: object) => ({ id, name, arguments: JSON.stringify(args) })
  world.answers = ({ body, messages }) => {
    models.add(body.model)
    if (messages.at(-1)?.role === 'tool') return reply({ text: 'planned' })
    const read = call('c1', 'read_data_from_sheet', { sheet_url: 's', tab_name: 't' })
    return reply({ calls: [read, call('c2', 'send_plan_to_pm', { plan: 'p' })] })
  }
  const calls: unknown[] = []
  const run = await world.host.startWorkflow(sample, {
    ...options(world, []),
    functions: {
      read_data_from_sheet: (input) => void calls.push(input),
      send_plan_to_pm: {
        description: 'Sends the plan.',
        inputSchema: z.strictObject({ plan: z.string() }),
        execute: (input) => void calls.push(input),
      },
    },
  })
  expect(await run.result()).toMatchObject({ outcome: 'completed', summary: 'planned' })
  expect(calls).toEqual([{ sheet_url: 's', tab_name: 't' }, { plan: 'p' }])
  expect([...models]).toEqual(['gpt-4o'])
}, 60_000)

it('asks a person, runs code of the file and another workflow for each entry of a list, and is replayed [S3.09 S3.10]', async () => {
  const place = await temporaryFolder('workflow-parts')
  await writeFile(
    path.join(place, 'say.json'),
    JSON.stringify({
      'Say@1#details': { steps: [{ id: 'say' }], result: 'steps.say.output' },
      'Say@1@step-say#details': { chat: [{ role: 'user', content: 'say {{input.what}}' }] },
    }),
  )
  const each = path.join(place, 'a.workflow.json')
  await writeFile(
    each,
    JSON.stringify({
      'A@1#details': { steps: [{ id: 'ask' }, { id: 'square' }, { id: 'say' }], result: 'steps.say.output' },
      'A@1@step-ask#details': { ask: { question: 'Which factor?', options: ['2', '3'] } },
      'A@1@step-square#details': {
        each: { in: 'input', parallel: 2 },
        call: { function: 'times', arguments: { n: '{{item}}', by: '{{steps.ask.output}}' } },
      },
      'A@1@step-say#details': {
        each: { in: 'steps.square.output' },
        workflow: { from: 'say.json', input: { what: '{{item}}' } },
        nextStep: '-',
      },
      'A@1@func-times#details': {
        description: 'multiplies',
        parameters: [
          { type: 'integer', name: 'n' },
          { type: 'string', name: 'by' },
        ],
        code: 'function times(n: number, by: string) { return n * Number(by) }',
      },
    }),
  )
  await using world = await worlds.openWorld()
  world.answers = ({ messages }) => reply({ text: `${messages.at(-1)?.content}!` })
  const questions: unknown[] = []
  const { functions: _, approvals: __, ...rest } = options(world, [])
  const run = await world.host.startWorkflow(each, {
    ...rest,
    input: [1, 2, 3],
    onApproval: ({ question }) => {
      questions.push(question)
      return { decision: 'allow', answer: '3' }
    },
  })
  expect(await run.result()).toMatchObject({
    message: 'all 3 steps completed',
    outcome: 'completed',
    value: ['say 3!', 'say 6!', 'say 9!'],
  })
  expect(questions).toHaveLength(1)
  const replay = await world.host.replay(run.id)
  expect(await replay.result()).toMatchObject({ isSame: true, difference: null })
}, 60_000)

it('runs from the command line, and prints the result alone with --quiet [H.01 S3.04 S3.10]', async () => {
  await using world = await worlds.openWorld()
  const place = await temporaryFolder('workflow-cli')
  await writeFile(
    path.join(place, 'a.workflow.yaml'),
    [
      'A@1#details: { steps: [{ id: add }] }',
      'A@1@step-add#details: { call: { function: add, arguments: { list: "{{input}}" } } }',
      'A@1@func-add#details:',
      '  description: adds',
      '  parameters: [{ type: array, name: list }]',
      '  language: python',
      '  code: "def add(list): return {\\"sum\\": sum(list)}"',
    ].join('\n'),
  )
  await writeFile(path.join(place, 'input.json'), '[1, 2, 3]')
  const run = async (...flags: string[]) => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const env = { ...process.env, ...world.env }
    const argv = [
      'workflow',
      'run',
      path.join(place, 'a.workflow.yaml'),
      '-w',
      world.scene.workspace,
      '-q',
      ...flags,
    ]
    const code = await runCli(argv, { stdin: new PassThrough(), stdout, stderr, env, version: '0' })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  expect(await run('--no-template', '--input', `@${path.join(place, 'input.json')}`)).toMatchObject({
    code: 0,
    stdout: '{"sum":6}\n',
  })
  for (const [input, why] of [
    ['{', /--input must be JSON/],
    ['@/nowhere/a.json', /--input @\/nowhere\/a\.json cannot be read/],
  ] as const)
    expect(await run('--input', input)).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringMatching(why),
    })
}, 60_000)

it('waits for a time without a VM, and continues by itself [S3.09 R.01]', async () => {
  const waiting = new WorkspaceManager().parse(
    JSON.stringify({
      'A@1#details': { steps: [{ id: 'pause' }, { id: 'say' }] },
      'A@1@step-pause#details': { wait: { for: 6 } },
      'A@1@step-say#details': { chat: [{ role: 'user', content: 'after: {{steps.pause.state}}' }] },
    }),
  )
  await using world = await worlds.openWorld()
  world.answers = ({ messages }) => reply({ text: `${messages.at(-1)?.content}!` })
  const { functions: _, vm, ...rest } = options(world, [])
  const run = await world.host.startWorkflow(waiting, { ...rest, vm: { ...vm, sleepAfterMs: 300 } })
  const { outcome, summary } = await run.result()
  expect(outcome).toBe('completed')
  expect(summary).toBe('after: completed!')
  const types = (await world.host.runs.read(run.id)).map(({ event }) => event.type)
  const replay = await world.host.replay(run.id)
  expect(await replay.result()).toMatchObject({ isSame: true, difference: null })
  expect(types.filter((type) => type === 'run-sleep' || type === 'run-resume')).toEqual([
    'run-sleep',
    'run-resume',
  ])
}, 60_000)

it('a workflow that left its process while it waited continues in another one, with its functions [S3.08 S3.09]', async () => {
  const waiting = new WorkspaceManager().parse(
    JSON.stringify({
      'A@1#details': { steps: [{ id: 'pause' }, { id: 'order' }] },
      'A@1@step-pause#details': { wait: { for: 6 } },
      'A@1@step-order#details': { call: { function: 'order_part', arguments: { id: 'b8' } } },
      'A@1@func-order_part#details': file['Agent - V1@develop@func-order_part#details'],
    }),
  )
  await using world = await worlds.openWorld()
  const orders: string[] = []
  const given = options(world, orders)
  const { functions = {}, vm } = given
  const run = await world.host.startWorkflow(waiting, {
    ...given,
    functions: { order_part: functions.order_part ?? (() => undefined) },
    vm: { ...vm, sleepAfterMs: 300 },
    leaveOnSleep: true,
  })
  expect((await run.ended).end).toBeNull()
  await using later = new Host({ env: { ...process.env, ...world.env } })
  await expect(later.resume(run.id)).rejects.toThrow(/host tools order_part/)
  const hostTools = workflowTools(waiting, {
    order_part: functionsFor(orders).order_part ?? (() => undefined),
  })
  const next = await later.resume(run.id, { extensions: { hostTools }, onNotes: () => undefined })
  expect(await next.result()).toMatchObject({ outcome: 'completed', value: { ordered: 'b8' } })
  expect(orders).toEqual(['b8'])
}, 60_000)

it('what a run took of a store is what resume, fork, rewind and replay use, whatever the store has by then [S3.07 S3.08]', async () => {
  const library = (says: string) =>
    JSON.stringify({
      'Lib@1#details': { steps: [{ id: 'say' }], result: 'steps.say.output' },
      'Lib@1@step-say#details': {
        chat: [{ role: 'user', content: `${says} {{input}}` }],
        function: ['mark'],
      },
      'Lib@1@func-mark#details': {
        description: 'marks',
        parameters: [{ type: 'string', name: 'text' }],
        code: `function mark(text) { return text + ' ${says}' }`,
      },
    })
  const texts = new Map([['Lib@1', library('first')]])
  const asked: string[] = []
  const store: WorkflowStore = {
    get: async (name, version) => {
      asked.push(`${name}@${version}`)
      return texts.get(`${name}@${version}`) ?? null
    },
    list: async () => [],
    put: async () => undefined,
  }
  const sha256 = createHash('sha256').update(library('first')).digest('hex')
  const taking = JSON.stringify({
    'A@1#details': {
      steps: [{ id: 'pause' }, { id: 'say' }, { id: 'mark' }, { id: 'inner' }],
      result: '[steps.say.output, steps.mark.output, steps.inner.output]',
    },
    'A@1@step-pause#details': { wait: { for: 6 } },
    'A@1@step-say#details': { from: 'Lib@1@step-say', sha256 },
    'A@1@step-mark#details': { call: { function: 'mark', arguments: { text: '{{steps.say.output}}' } } },
    'A@1@step-inner#details': { workflow: { from: 'Lib@1', input: '{{steps.mark.output}}' } },
    'A@1@func-mark#details': { from: 'Lib@1@func-mark' },
  })
  texts.set('A@1', taking)
  await using world = await worlds.openWorld()
  world.answers = ({ messages }) => reply({ text: `${messages.at(-1)?.content}!` })
  const { functions: _, vm, ...rest } = options(world, [])
  const given = { ...rest, input: 'x', store }
  const run = await world.host.startWorkflow('A@1', {
    ...given,
    vm: { ...vm, sleepAfterMs: 300 },
    leaveOnSleep: true,
  })
  expect((await run.ended).end).toBeNull()
  const [started] = await world.host.runs.read(run.id)
  expect(started?.event).toMatchObject({
    type: 'run-start',
    workflow: { name: 'A', uses: [{ from: 'Lib@1', sha256 }] },
  })

  texts.set('Lib@1', library('second'))
  const before = [...asked]
  const value = ['first x!', 'first x! first', 'first first x! first!']
  await using later = new Host({ env: { ...process.env, ...world.env } })
  const quiet = { onNotes: () => undefined }
  const resumed = await later.resume(run.id, quiet)
  expect(await resumed.result()).toMatchObject({ outcome: 'completed', value })
  const replay = await later.replay(run.id)
  expect(await replay.result()).toMatchObject({ isSame: true, difference: null })
  const { runIds } = await later.fork(run.id, { at: 'mark' })
  for (const id of [...runIds, (await later.rewind(run.id, { to: 'say' })).runId]) {
    const again = await later.resume(id, quiet)
    expect(await again.result()).toMatchObject({ outcome: 'completed', value })
  }
  expect(asked).toEqual(before)
  await expect(world.host.startWorkflow('A@1', given)).rejects.toThrow(
    /step "say" from: "Lib@1" has the SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}/,
  )
}, 120_000)

it('a workflow whose agent dies at any line of its work continues there, and calls each function once [S3.08 R.01]', async () => {
  const lines = await undisturbed(worlds, scripted)
  const seqs = lines.filter(isAtWork).map(({ seq }) => seq)
  const step = perTier(Math.ceil(seqs.length / 3), 1)
  // Each day begins elsewhere, so that all lines have their turn.
  const first = Math.floor(Date.now() / 86_400_000) % step
  const chosen = seqs.filter((_, index) => index % step === first)
  const runs = await killAtAll(
    worlds,
    scripted,
    chosen.map((seq) => ({ seq, victim: 'agent' as const })),
  )
  expect(runs.map(({ seq, end, value, orders, killed }) => ({ seq, end, value, orders, killed }))).toEqual(
    chosen.map((seq) => ({
      seq,
      end: 'completed',
      value: { part: 'a7', said: 'reported' },
      orders: ['a7'],
      killed: true,
    })),
  )
}, 300_000)
