// Runs with several models, whole, host and agent, with a program in the place of QEMU: which model answered is kept.
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { type ModelServer, startModelServer } from '#specs/testing/model-server.ts'
import type { ConfigInput } from '../../host/config/schema.ts'
import { Host, type RunOptions } from '../../host/host.ts'
import { type InstalledMachine, installMachine } from './machine/install.ts'

let folder: string
let machine: InstalledMachine

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-models-'))
  machine = await installMachine(folder)
  process.env.PATH = `${machine.programs}:${process.env.PATH}`
}, 120_000)

afterAll(async () => await rm(folder, { recursive: true, force: true, maxRetries: 5 }))

const vm: RunOptions['vm'] = { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2, start: 'cold' }
const limited = failure(429, 'Rate limit reached, try again in 5 hours')
const write = reply({ calls: [{ name: 'write_file', arguments: { path: 'note.txt', content: 'a note\n' } }] })

async function placeOf(name: string) {
  const place = path.join(folder, name)
  const workspace = path.join(place, 'work')
  await mkdir(workspace, { recursive: true })
  const open = (config: ConfigInput): Host =>
    new Host({
      env: { ...process.env, CAISSON_HOME: path.join(place, 'home'), CAISSON_CACHE: machine.cache },
      config,
    })
  return { workspace, open }
}

/** @param address of this machine: each has a queue of its own, in which other limits hold */
const providersOf = (servers: Readonly<Record<string, ModelServer>>, address = '127.0.0.1') =>
  Object.fromEntries(
    Object.entries(servers).map(([name, { baseUrl }]) => [
      name,
      { url: baseUrl.replace('127.0.0.1', address), models: [`${name}-*`] },
    ]),
  ) satisfies ConfigInput['providers']

it('a run that continues elsewhere, and its replay, keep the answers of a fallback [S3.06 R.01 G.05]', async () => {
  let isLimited = true
  await using own = await startModelServer(() => limited)
  await using other = await startModelServer(({ messages }) => {
    if (!messages.some(({ role }) => role === 'tool')) return write
    return isLimited ? limited : reply({ text: 'I wrote note.txt.' })
  })
  const { workspace, open } = await placeOf('fallback')
  await using host = open({ providers: providersOf({ own, other }) })
  const run = await host.run({
    prompt: 'Write note.txt.',
    model: 'own-1',
    fallback: ['other-1'],
    workspace,
    vm,
    onNotes: () => undefined,
  })
  expect(await run.result()).toMatchObject({ outcome: 'failed', reason: 'model_unreachable' })

  isLimited = false
  const asked = other.asked.length
  await using later = open({ providers: providersOf({ own, other }, 'localhost') })
  const resumed = await later.resume(run.id, { onNotes: () => undefined })
  expect(await resumed.result()).toMatchObject({ outcome: 'completed', summary: 'I wrote note.txt.' })
  // The first answer is not asked for again.
  expect(other.asked).toHaveLength(asked + 1)
  const ends = async (runId: string) =>
    (await later.runs.read(runId)).flatMap(({ event }) =>
      event.type === 'model-end' && event.error === undefined ? [event.fallback] : [],
    )
  expect((await ends(run.id)).filter((model) => model !== 'other-1')).toEqual([])

  const paid = [own.asked.length, other.asked.length]
  const replay = await later.replay(run.id)
  expect(await replay.result()).toMatchObject({ isSame: true, difference: null })
  expect((await ends(replay.run.id)).filter((model) => model !== 'other-1')).toEqual([])
  expect([own.asked.length, other.asked.length]).toEqual(paid)
})

const step = (id: string, fields: object = {}) => ({
  id,
  title: id,
  instructions: `do ${id}`,
  writes: ['note.txt'],
  ...fields,
})
const plan = reply({
  calls: [
    {
      name: 'submit_plan',
      arguments: {
        goal: 'A note',
        steps: [
          step('look'),
          step('note', { needs: ['look'], model: 'strong' }),
          step('part', { kind: 'agent', needs: ['note'], model: 'strong' }),
          step('last', { needs: ['part'] }),
        ],
      },
    },
  ],
})

const anthropicEvent = (value: { type: string }) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`

function anthropicReply(block: object, input?: object) {
  const usage = { input_tokens: 10, output_tokens: 1 }
  const piece = { type: 'input_json_delta', partial_json: JSON.stringify(input) }
  return {
    body: [
      { type: 'message_start', message: { model: 'claude-sonnet-5-5', usage } },
      { type: 'content_block_start', index: 0, content_block: block },
      ...(input === undefined ? [] : [{ type: 'content_block_delta', index: 0, delta: piece }]),
      { type: 'message_delta', delta: { stop_reason: input === undefined ? 'end_turn' : 'tool_use' }, usage },
      { type: 'message_stop' },
    ]
      .map(anthropicEvent)
      .join(''),
  }
}

it('steps and sub-agents get the models that a plan names, also where the run continues, and in its replay [S3.06 R.01 R.03 G.05]', async () => {
  let isLimited = true
  await using own = await startModelServer(({ messages, text }) => {
    if (messages[0]?.content?.startsWith("You are Caisson's planner.")) return plan
    return reply({ text: text.includes('do last') ? 'All is done.' : 'I looked.' })
  })
  await using claude = await startModelServer(({ text }) => {
    if (text.includes('You are a sub-agent'))
      return anthropicReply({ type: 'text', text: 'The part is done.' })
    const input = { path: 'note.txt', content: 'a note\n' }
    if (!text.includes('"tool_result"'))
      return anthropicReply({ type: 'tool_use', id: 'toolu_1', name: 'write_file', input: {} }, input)
    return isLimited ? limited : anthropicReply({ type: 'text', text: 'I wrote note.txt.' })
  })
  const { workspace, open } = await placeOf('steps')
  const config = (address: string): ConfigInput => ({
    providers: {
      ...providersOf({ own }, address),
      claude: {
        kind: 'anthropic',
        url: claude.baseUrl.replace('127.0.0.1', address).replace(/\/v1$/, ''),
        models: ['claude-*'],
      },
    },
    stepModels: { strong: 'claude-sonnet-5-5' },
  })
  await using host = open(config('127.0.0.1'))
  const run = await host.run({
    prompt: 'Write note.txt.',
    model: 'own-1',
    workspace,
    vm,
    onNotes: () => undefined,
  })
  expect(await run.result()).toMatchObject({ outcome: 'failed', reason: 'model_unreachable' })
  expect(own.asked[0]?.text).toContain('- strong: claude-sonnet-5-5')

  isLimited = false
  const paid = [own.asked.length, claude.asked.length]
  await using later = open(config('localhost'))
  const resumed = await later.resume(run.id, { onNotes: () => undefined })
  expect(await resumed.result()).toMatchObject({ outcome: 'completed', summary: 'All is done.' })
  // Only what had no answer is asked: the end of the note, the part, and the last step.
  expect([own.asked.length, claude.asked.length]).toEqual([(paid[0] ?? 0) + 1, (paid[1] ?? 0) + 2])
  const modelsOf = async (runId: string) => {
    const starts = new Map<string, string>()
    for (const { event } of await later.runs.read(runId))
      if (event.type === 'model-start')
        starts.set(`${event.agentPath} ${event.stepId}`, event.stepModel ?? 'the own')
    return Object.fromEntries(starts)
  }
  const models = {
    'root plan': 'the own',
    'root look': 'the own',
    'root note': 'claude-sonnet-5-5',
    'root/part agent': 'claude-sonnet-5-5',
    'root last': 'the own',
  }
  expect(await modelsOf(run.id)).toEqual(models)

  const answered = [own.asked.length, claude.asked.length]
  const replay = await later.replay(run.id)
  expect(await replay.result()).toMatchObject({ isSame: true, difference: null })
  expect(await modelsOf(replay.run.id)).toEqual(models)
  expect([own.asked.length, claude.asked.length]).toEqual(answered)
})
