// A run that goes to sleep, sleeps and wakes, killed at each of these moments: real host, real agent, with a program in the
// place of QEMU.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import type { FeedItem } from '../../host/journal/run-feed.ts'
import type { Run } from '../../host/runs/run.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { describeBreach, describeRows, killsAt, killsAtRandom, type Row, runMatrix, today } from './matrix.ts'
import { accompany, resumeRun, startRun } from './scenario.ts'
import { judge } from './verdict.ts'
import type { Outcome } from './world.ts'

const takesAll = process.env.CAISSON_TEST_POSITIONS === 'all'
const unbounded = { ms: Number.POSITIVE_INFINITY, atLeast: Number.POSITIVE_INFINITY }
const linesBudget = takesAll ? unbounded : perTier({ ms: 1_500, atLeast: 2 }, { ms: 15_000, atLeast: 12 })
const momentsBudget = takesAll ? unbounded : perTier({ ms: 500, atLeast: 1 }, { ms: 10_000, atLeast: 8 })
const momentsCount = 60
const sleepAfterMs = 300
/** Before the line of the sleep: its VM ends. */
const partingMs = 250

let folder: string
let worlds: Worlds
let undisturbed: Outcome
const rows: Row[] = []

beforeAll(
  async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'caisson-sleeping-'))
    worlds = await Worlds.open(await installMachine(folder), folder, { sleepAfterMs })
    undisturbed = await worlds.run()
    const { events } = undisturbed
    const sleep = events.find(({ event }) => event.type === 'run-sleep')
    const awake = events.find(({ event, seq }) => event.type === 'vm-ready' && seq > (sleep?.seq ?? 0))
    if (sleep === undefined || awake === undefined) throw new Error('the run did not sleep')
    const seed = today()
    // The line before the sleep, and the first of the agent that continues.
    const kills = killsAt(undisturbed, seed, { from: sleep.seq - 1, to: awake.seq + 1 })
    const atLines = await runMatrix(worlds, undisturbed, kills, linesBudget)
    const span = { from: sleep.at - partingMs, to: awake.at }
    const moments = killsAtRandom(undisturbed, seed, momentsCount, span)
    const atMoments = await runMatrix(worlds, undisturbed, moments, momentsBudget)
    rows.push(...atLines, ...atMoments)
    const taken = `${atLines.length} of ${kills.length} positions and ${atMoments.length} of ${moments.length} moments`
    console.log(`killed at ${taken}, seed ${seed}\n${describeRows(rows, undisturbed)}`)
  },
  takesAll ? 3_600_000 : 300_000,
)

afterAll(async () => {
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

describe('a run that waits without a VM', () => {
  it('sleeps once and has its answer once when nobody disturbs it [R.12]', () => {
    expect(judge(undisturbed, undisturbed)).toEqual([])
    const of = (type: string) => undisturbed.events.filter(({ event }) => event.type === type).length
    expect([of('run-sleep'), of('run-resume'), undisturbed.asked]).toEqual([1, 1, 1])
  })

  it('keeps journal, effects, answer and one end when its host, VM or agent dies as it goes to sleep, sleeps or wakes [R.01 R.12]', () => {
    expect(rows.length).toBeGreaterThan(0)
    expect(rows.filter(({ breaches }) => breaches.length > 0).map(describeBreach)).toEqual([])
  })
})

describe('a run that a person pauses', { timeout: 120_000 }, () => {
  const answer = { decision: 'allow', scope: 'once', answer: 'blue' } as const

  it('sleeps too; an answer is journaled when it counts as taken, and the run continues from there when it is resumed [R.12 A.08 H.05]', async () => {
    await using world = await worlds.openWorld()
    const { host, scene } = world
    const run = await startRun(host, scene)
    await until(run, 'approval-request')
    await run.pause({ by: 'ada' })
    await until(run, 'run-sleep')
    expect(await host.runs.summary(run.id)).toMatchObject({
      status: 'sleeping',
      isPaused: true,
      isLive: true,
    })
    const [approvalId = ''] = Object.keys(run.state.pendingApprovals)
    expect(await run.answer(approvalId, answer)).toEqual({ taken: true })
    expect(run.state.pendingApprovals).toEqual({})
    expect((await host.runs.summary(run.id)).pendingApprovals).toBe(0)
    await run.resume({ by: 'ada' })
    await accompany(host, run, scene)
    const { outcome } = await run.result()
    const result = await world.outcome({ runId: run.id, killedAfter: undefined, end: outcome })
    expect(judge(result, undisturbed)).toEqual([])
    const types = result.events.map(({ event }) => event.type)
    const at = types.indexOf('run-sleep')
    expect(types.slice(at, at + 4)).toEqual([
      'run-sleep',
      'approval-decision',
      'resume-request',
      'run-resume',
    ])
    expect((await host.runs.summary(run.id)).isPaused).toBeUndefined()
  })

  it('sleeps without a process as well; an answer does not continue it, resuming does [R.12 A.08]', async () => {
    await using world = await worlds.openWorld()
    const { host, scene } = world
    const run = await startRun(host, { ...scene, leaveOnSleep: true })
    await until(run, 'approval-request')
    await run.pause({ by: 'ada' })
    expect((await run.ended).end).toBeNull()
    expect(await host.runs.summary(run.id)).toMatchObject({
      ...{ status: 'sleeping', isPaused: true, isLive: false, pendingApprovals: 1 },
    })
    const [approvalId = ''] = Object.keys(run.state.pendingApprovals)
    expect(await host.answer(run.id, approvalId, answer)).toEqual({ taken: true })
    expect((await host.runs.summary(run.id)).status).toBe('sleeping')
    const next = await resumeRun(host, run.id, scene)
    await accompany(host, next, scene)
    const { outcome } = await next.result()
    expect(outcome).toBe('completed')
    const result = await world.outcome({ runId: run.id, killedAfter: undefined, end: outcome })
    expect(judge(result, undisturbed)).toEqual([])
  })
})

/** @param approvalId of the event. Absent: any */
async function until(run: Run, type: string, approvalId?: string): Promise<void> {
  const isIt = (item: FeedItem): boolean =>
    item.source !== 'delta' &&
    item.event.type === type &&
    (approvalId === undefined || ('approvalId' in item.event && item.event.approvalId === approvalId))
  for await (const item of run.watch()) if (isIt(item)) return
  throw new Error(`the run ended before its ${type}`)
}
