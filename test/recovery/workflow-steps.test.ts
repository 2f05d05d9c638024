// A workflow with every kind of step, and one that adds steps, in the real host and the real agent: as it runs, and killed at
// positions of its journal.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { perTier } from '#specs/testing/tier.ts'
import { Host, type WorkflowOptions } from '../../host/host.ts'
import { workflowTools } from '../../host/start-workflow.ts'
import { WorkspaceManager } from '../../host/workflows/workspace-manager.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import type { Scene } from './scenario.ts'
import { type KilledWorkflow, killAtAll, undisturbed } from './workflow-kills.ts'

const say = (content: string) => [{ role: 'user', content }]

/** @param waitS seconds of its wait */
const stepsThatWait = (waitS: number) =>
  new WorkspaceManager().parse(
    JSON.stringify({
      'A@1#details': {
        steps: ['plan', 'ask', 'each', 'wait', 'more', 'say'].map((id) => ({ id })),
        result:
          '{"added": (steps.plan.added + steps.more.added).map(one, one.output), "each": steps.each.output, "said": steps.say.output}',
      },
      'A@1@step-plan#details': { chat: say('Plan it.'), mayAdd: { steps: 2, functions: 1 } },
      'A@1@step-ask#details': { ask: { question: 'Which factor?', options: ['2', '3'] } },
      'A@1@step-each#details': {
        each: { in: '[1, 2]', parallel: 2 },
        chat: say('Order {{item}} times {{steps.ask.output}}'),
        function: ['order_part'],
      },
      'A@1@step-wait#details': { wait: { for: waitS } },
      'A@1@step-more#details': { chat: say('Is there more?'), mayAdd: { steps: 1 } },
      'A@1@step-say#details': {
        call: { function: 'times', arguments: { n: '{{size(steps.each.output)}}' } },
      },
      'A@1@func-order_part#details': { description: 'orders', parameters: [{ type: 'string', name: 'id' }] },
      'A@1@func-times#details': {
        description: 'multiplies',
        parameters: [{ type: 'integer', name: 'n' }],
        code: 'function times(n: number) { return { n: n * 10 } }',
      },
    }),
  )

const added = {
  reason: 'There is more to do',
  steps: [
    { id: 'first', chat: say('First of {{steps.plan.output}}') },
    { id: 'second', call: { function: 'length', arguments: { text: '{{steps.first.output}}' } } },
  ],
  functions: [
    {
      name: 'length',
      description: 'counts',
      parameters: [{ type: 'string', name: 'text' }],
      language: 'python',
      code: 'def length(text): return {"length": len(text)}',
    },
  ],
}

const addedLater = { reason: 'One more', steps: [{ id: 'last', chat: say('Added later') }] }

const options = (scene: Scene, orders: string[]): WorkflowOptions => ({
  functions: { order_part: ({ id }) => void orders.push(String(id)) },
  workspace: scene.workspace,
  approvals: { rules: [{ effect: 'allow', tool: 'order_part' }] },
  onApproval: ({ question }) =>
    question === undefined ? { decision: 'deny' } : { decision: 'allow', answer: '3' },
  vm: { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2, start: 'cold' },
  onNotes: () => undefined,
})

const workflow: KilledWorkflow = {
  answers: ({ messages }) => {
    const asked = messages.map(({ content }) => content ?? '').join('\n')
    const isFirst = messages.at(-1)?.role !== 'tool'
    const call = (name: string, args: object) =>
      reply({ calls: [{ id: 'c1', name, arguments: JSON.stringify(args) }] })
    if (asked.includes('Plan it.')) return isFirst ? call('add_steps', added) : reply({ text: 'plan' })
    if (asked.includes('Is there more?'))
      return isFirst ? call('add_steps', addedLater) : reply({ text: 'no' })
    if (asked.includes('Added later')) return reply({ text: 'last' })
    if (asked.includes('First of')) return reply({ text: 'four' })
    const [, item, factor] = /Order (\d) times (\d)/.exec(asked) ?? []
    return isFirst ? call('order_part', { id: `${item}x${factor}` }) : reply({ text: `ordered ${item}` })
  },
  start: ({ host, scene }, orders) => host.startWorkflow(stepsThatWait(1), options(scene, orders)),
}

let folder: string
let worlds: Worlds

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-workflow-steps-'))
  worlds = await Worlds.open(await installMachine(folder), folder)
}, 120_000)

afterAll(async () => {
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

const value = {
  added: ['four', { length: 4 }, 'last'],
  each: ['ordered 1', 'ordered 2'],
  said: { n: 20 },
}

it('steps add steps and a function with code to their run, also in another process, and a replay has them [S3.11 S3.10]', async () => {
  await using world = await worlds.openWorld()
  world.answers = workflow.answers
  const orders: string[] = []
  const given = options(world.scene, orders)
  const left = await world.host.startWorkflow(stepsThatWait(2), {
    ...given,
    vm: { ...given.vm, sleepAfterMs: 300 },
    leaveOnSleep: true,
  })
  expect((await left.ended).end).toBeNull()
  await using later = new Host({ env: { ...process.env, ...world.env } })
  const hostTools = workflowTools(stepsThatWait(2), given.functions ?? {})
  const run = await later.resume(left.id, { extensions: { hostTools }, onNotes: () => undefined })
  expect(await run.result()).toMatchObject({ outcome: 'completed', message: 'all 9 steps completed', value })
  expect(orders.toSorted()).toEqual(['1x3', '2x3'])
  const updates = (await later.runs.read(run.id)).flatMap(({ event }) =>
    event.type === 'plan-update' ? [event] : [],
  )
  expect(updates.map(({ revision, plan }) => [revision, plan.steps.map(({ id }) => id).join(' ')])).toEqual([
    [1, 'plan ask each wait more say'],
    [2, 'plan first second ask each wait more say'],
    [3, 'plan first second ask each wait more last say'],
  ])
  expect(updates[1]).toMatchObject({ reason: added.reason, added: { by: 'plan' } })
  const replay = await later.replay(run.id)
  expect(await replay.result()).toMatchObject({ isSame: true, difference: null })
}, 60_000)

it('a workflow of any steps whose agent or VM dies at a line continues there, does nothing twice, and keeps what was added [S3.08 S3.11 R.01]', async () => {
  const lines = await undisturbed(worlds, workflow)
  const first = lines.findIndex(({ event }) => event.type === 'step-start')
  const last = lines.findLastIndex(({ event }) => event.type === 'step-end')
  const positions = lines.slice(first, last + 1).map(({ seq }) => seq)
  const step = Math.ceil(positions.length / perTier(1, 16))
  // Each day begins elsewhere, so that all lines have their turn, with the agent and with the VM.
  const day = Math.floor(Date.now() / 86_400_000)
  const kills = positions
    .filter((_, index) => index % step === day % step)
    .map((seq) => ({ seq, victim: (seq + day) % 2 === 0 ? ('agent' as const) : ('machine' as const) }))
  const runs = await killAtAll(worlds, workflow, kills)
  const seen = runs.map(({ events, ...run }) => ({
    ...run,
    orders: run.orders.toSorted(),
    revisions: events.flatMap(({ event }) => (event.type === 'plan-update' ? [event.revision] : [])).at(-1),
  }))
  expect(seen).toEqual(
    runs.map(({ seq, type, victim }) => ({
      ...{ seq, type, victim, killed: true },
      ...{ end: 'completed', value, orders: ['1x3', '2x3'], revisions: 3 },
    })),
  )
}, 300_000)
