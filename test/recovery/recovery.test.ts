// Runs of the real host and the real agent, over the real protocols, with a program in the place of QEMU: killed at the
// positions of their journals and at random moments, and continued. The properties are those of durable execution;
// `CAISSON_TEST_POSITIONS=all` takes all positions in all ways, where the tiers take as many as fit.
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import type { Run } from '../../host/runs/run.ts'
import type { HostOrder, HostReport } from './host-program.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { describeBreach, describeRows, killsAt, killsAtRandom, type Row, runMatrix, today } from './matrix.ts'
import { accompany, expectedOrders, resumeRun, startRun } from './scenario.ts'
import { type Breach, changesOf, judge, workOf } from './verdict.ts'
import type { Outcome, World } from './world.ts'

const takesAll = process.env.CAISSON_TEST_POSITIONS === 'all'
const unbounded = { ms: Number.POSITIVE_INFINITY, atLeast: Number.POSITIVE_INFINITY }
const positionsBudget = takesAll ? unbounded : perTier({ ms: 8_000, atLeast: 6 }, { ms: 60_000, atLeast: 30 })
const momentsBudget = takesAll ? unbounded : perTier({ ms: 3_000, atLeast: 3 }, { ms: 20_000, atLeast: 8 })
const programBudget = takesAll ? unbounded : perTier({ ms: 3_000, atLeast: 4 }, { ms: 20_000, atLeast: 12 })
const momentsCount = 200
const timeoutMs = takesAll ? 3_600_000 : 600_000

let folder: string
let worlds: Worlds
let undisturbed: Outcome
const rows: Row[] = []

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-recovery-'))
  worlds = await Worlds.open(await installMachine(folder), folder)
  undisturbed = await worlds.run()
  const seed = today()
  const kills = killsAt(undisturbed, seed)
  const atLines = await runMatrix(worlds, undisturbed, kills, positionsBudget)
  const positions = `killed at ${atLines.length} of ${kills.length} positions, seed ${seed}`
  console.log(`${positions}\n${describeRows(atLines, undisturbed)}`)
  const moments = killsAtRandom(undisturbed, seed, momentsCount)
  const atMoments = await runMatrix(worlds, undisturbed, moments, momentsBudget)
  const random = `killed at ${atMoments.length} of ${momentsCount} random moments, seed ${seed}`
  console.log(`${random}\n${describeRows(atMoments, undisturbed)}`)
  rows.push(...atLines, ...atMoments)
}, timeoutMs)

afterAll(async () => {
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

/** From the beginning of the call that a program makes of the host's tool to its end. */
function programSpan({ events }: Outcome): { from: number; to: number } {
  const of = events
    .filter(({ event }) => 'callId' in event && event.callId?.includes('.') === true)
    .map(({ seq }) => seq)
  return { from: Math.min(...of), to: Math.max(...of) }
}

/** Runs that lack a property, with what was seen. */
function lacking(property: Breach['property']): string[] {
  return rows
    .filter(({ breaches }) => breaches.some((breach) => breach.property === property))
    .map(describeBreach)
}

describe('a run whose agent, VM, host process or machine dies, at the positions of its journal and at random moments', () => {
  it('is whole when nobody disturbs it [R.01]', () => {
    expect(judge(undisturbed, undisturbed)).toEqual([])
    expect(undisturbed.orders).toEqual(expectedOrders.map((id) => `ordered ${id}`))
    expect(rows.length).toBeGreaterThan(0)
  })

  it('starts a program again that was killed around its call of a host tool, which is made once [A.14] [R.01]', async () => {
    const kills = killsAt(undisturbed, today(), programSpan(undisturbed))
    const killed = await runMatrix(worlds, undisturbed, kills, programBudget)
    console.log(describeRows(killed, undisturbed))
    expect(killed.filter(({ breaches }) => breaches.length > 0).map(describeBreach)).toEqual([])
    expect(killed.length).toBeGreaterThanOrEqual(4)
  }, 180_000)

  it('prefix continuation: it keeps every line that its journal had, and continues behind the last [R.01]', () => {
    expect(lacking('prefix continuation')).toEqual([])
  })

  it('effects exactly once: its files, orders and requests outside are those of the undisturbed run [R.01]', () => {
    expect(lacking('effects exactly once')).toEqual([])
  })

  it('checkpoint validity: it continues from the last checkpoint of its journal, whose disk is whole [R.01]', () => {
    expect(lacking('checkpoint validity')).toEqual([])
  })

  it('consume once: no question is decided twice, or asked again when it has its answer [R.01]', () => {
    expect(lacking('consume once')).toEqual([])
  })

  it('recovery determinism: steps, sub-agents and revisions are those of the undisturbed run [R.01, A.04]', () => {
    expect(lacking('recovery determinism')).toEqual([])
  })

  it('has one end, and leaves no VM, no process and no disk behind [R.01]', () => {
    expect(lacking('one end')).toEqual([])
  })
})

describe('a run that several want to answer or to continue at once', { timeout: 180_000 }, () => {
  it('consume once: of 16 answers from four processes one is taken, and the run has that one [R.01, A.03]', async () => {
    await using world = await worlds.openWorld()
    const run = await startRun(world.host, world.scene)
    const approvalId = await questionOf(run)
    const rivals = [1, 2, 3, 4].map((rival) => {
      const answers = ['red', 'green', 'blue', 'grey'].map((color) => `${color} of ${rival}`)
      return ask(world, { does: 'answer', runId: run.id, approvalId, answers })
    })
    const taken = (await Promise.all(rivals)).flatMap((report) => report.taken ?? [])
    const { outcome } = await run.result()
    const decisions = (await world.host.runs.read(run.id)).flatMap(({ event }) =>
      event.type === 'approval-decision' && event.approvalId === approvalId ? [event.answer] : [],
    )
    expect({ outcome, decisions }).toEqual({ outcome: 'completed', decisions: taken })
    expect(taken).toHaveLength(1)
  })

  it('is continued by one of four processes, and each effect is there once [R.01]', async () => {
    await using world = await worlds.openWorld()
    const middle = Math.floor(undisturbed.lines.length / 2)
    const kill = { victim: 'host', seq: middle, cut: 'after' } as const
    const { runId, killedAfter } = await worlds.killHost(world, kill)
    const reports = await Promise.all([1, 2, 3, 4].map(() => ask(world, { does: 'resume', runId })))
    const said = reports.map((report) => report.said ?? '')
    // One that is slower than the whole run finds it ended.
    const winners = said.filter((text) => text !== 'run_busy' && !text.includes('has ended'))
    expect(winners, said.join('; ')).toHaveLength(1)
    const outcome = await world.outcome({ runId, killedAfter, end: winners[0] ?? '' })
    expect(judge(outcome, undisturbed, kill)).toEqual([])
  })

  it('recovery determinism: two that continue from copies of one state do the same [R.01]', async () => {
    await using world = await worlds.openWorld()
    const seq = Math.floor(undisturbed.lines.length * 0.6)
    const kill = { victim: 'host', seq, cut: 'after' } as const
    const { runId, killedAfter } = await worlds.killHost(world, kill)
    await world.keepCopy()
    const outcomes: Outcome[] = []
    for (const _ of ['one', 'other']) {
      await world.restoreCopy()
      const run = await resumeRun(world.host, runId, world.scene)
      await accompany(world.host, run, world.scene)
      const { outcome, message } = await run.result()
      outcomes.push(await world.outcome({ runId, killedAfter, end: `${outcome}: ${message}` }))
    }
    const [one, other] = outcomes.map(({ files, orders, end, events }) => ({
      ...{ files, end, work: workOf(events) },
      orders: orders.toSorted(),
    }))
    expect(one).toEqual(other)
    expect(one?.end).toMatch(/^completed/)
  })

  it('fork determinism: two forks at one step do the same as each other, and as the run itself from there [R.01, V.05]', async () => {
    await using world = await worlds.openWorld()
    const { host, scene } = world
    const run = await startRun(host, scene)
    await accompany(host, run, scene)
    await run.result()
    const { runIds } = await host.fork(run.id, { at: 'first', count: 2 })
    for (const runId of runIds) {
      const fork = await resumeRun(host, runId, scene)
      await accompany(host, fork, scene)
      expect(await fork.result()).toMatchObject({ outcome: 'completed' })
    }
    const [itself, one, other] = await Promise.all(
      [run.id, ...runIds].map(async (runId) => ({
        work: workOf(await host.runs.read(runId)),
        changes: await changesOf(host, runId),
      })),
    )
    expect(one).toEqual(other)
    expect(one).toEqual(itself)
  })
})

/** The first question to the person. */
async function questionOf(run: Run): Promise<string> {
  for await (const item of run.watch()) {
    if (item.source === 'delta' || item.event.type !== 'approval-request') continue
    if (item.event.request.tool === 'ask_user') return item.event.request.approvalId
  }
  throw new Error('the run asked nothing')
}

/** Has a process of its own do this. */
async function ask({ scene, env }: World, rival: NonNullable<HostOrder['rival']>): Promise<HostReport> {
  const child = worlds.takeHost()
  const said = once(child, 'message') as Promise<[HostReport]>
  child.send({ scene, env, rival } satisfies HostOrder)
  const [report] = await said
  await once(child, 'exit')
  return report
}
