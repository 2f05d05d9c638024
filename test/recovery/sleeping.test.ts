// A run that goes to sleep, sleeps and wakes, killed at each of these moments: real host, real agent, with a program in the
// place of QEMU.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { describeBreach, describeRows, killsAt, killsAtRandom, type Row, runMatrix, today } from './matrix.ts'
import { judge } from './verdict.ts'
import type { Outcome } from './world.ts'

const takesAll = process.env.CAISSON_TEST_POSITIONS === 'all'
const unbounded = { ms: Number.POSITIVE_INFINITY, atLeast: Number.POSITIVE_INFINITY }
const linesBudget = takesAll ? unbounded : perTier({ ms: 3_000, atLeast: 3 }, { ms: 15_000, atLeast: 12 })
const momentsBudget = takesAll ? unbounded : perTier({ ms: 1_000, atLeast: 3 }, { ms: 10_000, atLeast: 8 })
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
