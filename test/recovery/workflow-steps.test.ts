// A workflow with every kind of step, and one that adds steps, in the real host and the real agent: as it runs, and killed at
// positions of its journal.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { Host } from '../../host/host.ts'
import { workflowTools } from '../../host/start-workflow.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import {
  type ContinuedRun,
  type KilledWorkflow,
  killAtAll,
  killHostAt,
  undisturbed,
} from './workflow-kills.ts'
import {
  added,
  answerWorkflow,
  startWorkflowRun,
  stepsThatWait,
  workflowOptions,
} from './workflow-scenario.ts'

const workflow: KilledWorkflow = {
  answers: answerWorkflow,
  start: ({ host, scene }, orders) => startWorkflowRun(host, scene, orders),
}

const today = Math.floor(Date.now() / 86_400_000)

let folder: string
let worlds: Worlds
/** Lines from the first step to the last, of a run that nobody disturbs. */
let positions: number[]

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-workflow-steps-'))
  worlds = await Worlds.open(await installMachine(folder), folder, { isWorkflow: true })
  const lines = await undisturbed(worlds, workflow)
  const first = lines.findIndex(({ event }) => event.type === 'step-start')
  const last = lines.findLastIndex(({ event }) => event.type === 'step-end')
  positions = lines.slice(first, last + 1).map(({ seq }) => seq)
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
  const given = workflowOptions(world.scene, orders)
  const left = await world.host.startWorkflow(stepsThatWait(6), {
    ...given,
    vm: { ...given.vm, sleepAfterMs: 300 },
    leaveOnSleep: true,
  })
  expect((await left.ended).end).toBeNull()
  await using later = new Host({ env: { ...process.env, ...world.env } })
  const hostTools = workflowTools(stepsThatWait(6), given.functions)
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

/** So many of the lines; each day begins elsewhere, so that all have their turn with each victim. */
function positionsOfToday(count: number): number[] {
  const step = Math.ceil(positions.length / count)
  return positions.filter((_, index) => index % step === today % step)
}

it('a workflow of any steps whose agent or VM dies at a line continues there, does nothing twice, and keeps what was added [S3.08 S3.11 R.01]', async () => {
  const kills = positionsOfToday(perTier(1, 16)).map((seq) => ({
    seq,
    victim: (seq + today) % 2 === 0 ? ('agent' as const) : ('machine' as const),
  }))
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

it('a workflow of any steps whose host process dies at a line continues in another; no call is made twice [S3.08 S3.11 R.01]', async () => {
  const runs: ContinuedRun[] = []
  for (const seq of positionsOfToday(perTier(1, 12)))
    runs.push(await killHostAt(worlds, { seq, victim: (seq + today) % 2 === 0 ? 'host' : 'power' }))
  for (const { seq, type, victim, end, orders, events, ...run } of runs) {
    const at = `${victim} at line ${seq}, ${type}`
    expect(new Set(orders).size, at).toBe(orders.length)
    const isUnknown = JSON.stringify(events).includes('its result is not known')
    // A call that was under way when its process died fails its step, and this workflow does not say otherwise.
    if (isUnknown) expect(end, at).toMatch(/^step_failed: .*its result is not known/)
    else {
      expect({ ...run, end }, at).toEqual({ end: 'completed', value })
      expect(orders.toSorted(), at).toEqual(['ordered 1x3', 'ordered 2x3'])
    }
  }
}, 300_000)
