// The disk of the state folder is full while a run is at work: it waits, and continues there or in another process. Real
// host, real agent, with a program in the place of QEMU. Mounts a disk for each run, so it needs root.
import { execFileSync } from 'node:child_process'
import { mkdirSync, statfsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import type { Run } from '../../host/runs/run.ts'
import type { Cut, CutLine } from './journal-cuts.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { accompany, resumeRun, startRun } from './scenario.ts'
import { judge } from './verdict.ts'
import { type Outcome, wholeLines } from './world.ts'

/** The disk is full from the line of this type with this number among its kind on. */
interface Moment {
  readonly type: string
  readonly count: number
  readonly cut: Cut
}

let folder: string
let worlds: Worlds
let undisturbed: Outcome

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-full-disk-'))
  worlds = await Worlds.open(await installMachine(folder), folder)
  undisturbed = await worlds.run()
}, 120_000)

afterAll(async () => {
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

class Disk implements Disposable {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
    mkdirSync(folder, { mode: 0o700 })
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2g,mode=700', 'none', folder])
  }

  fill(): void {
    const { blocks, bfree, bsize } = statfsSync(this.#folder)
    this.#resize((blocks - bfree) * bsize)
  }

  free(): void {
    this.#resize(2 * 1024 ** 3)
  }

  [Symbol.dispose](): void {
    execFileSync('umount', ['-l', this.#folder])
  }

  #resize(bytes: number): void {
    execFileSync('mount', ['-o', `remount,size=${bytes}`, this.#folder])
  }
}

/** Fills the disk at a moment of the run. @returns whether it came about */
function fillAt(run: Run, disk: Disk, { type, count, cut }: Moment): () => boolean {
  let seen = 0
  let isFilled = false
  worlds.watch(run.id, (line: CutLine, now: Cut) => {
    if (line.type !== type || now !== cut || isFilled) return
    seen += 1
    if (seen < count) return
    isFilled = true
    disk.fill()
  })
  return () => isFilled
}

/** Resolves when the run says that the disk is full. */
async function untilFull(run: Run): Promise<void> {
  for await (const item of run.watch()) if (item.source === 'delta' && item.delta.type === 'disk-full') return
  throw new Error('the run ended before it noticed that the disk is full')
}

/** Before and behind lines, and before a checkpoint and its summary. */
const moments: readonly Moment[] = [
  { type: 'tool-end', count: 1, cut: 'before' },
  ...perTier<Moment[]>(
    [],
    [
      { type: 'approval-decision', count: 1, cut: 'after' },
      { type: 'tool-start', count: 2, cut: 'after' },
      { type: 'host-tool-start', count: 1, cut: 'before' },
      { type: 'checkpoint', count: 2, cut: 'before' },
      { type: 'step-end', count: 2, cut: 'after' },
    ],
  ),
]

describe.runIf(process.getuid?.() === 0)('a run whose state folder is on a full disk', () => {
  it.concurrent.each(moments)(
    'waits $cut line $type, and continues when there is space [W.05 R.01]',
    async (moment) => {
      await using world = await worlds.openWorld()
      using disk = new Disk(world.home)
      const { host, scene } = world
      const run = await startRun(host, scene)
      const isFilled = fillAt(run, disk, moment)
      const accompanied = accompany(host, run, scene)
      await untilFull(run)
      expect(isFilled()).toBe(true)
      disk.free()
      await accompanied
      const { outcome, message } = await run.result()
      const result = await world.outcome({
        runId: run.id,
        killedAfter: undefined,
        end: `${outcome}: ${message}`,
      })
      expect(judge(result, undisturbed)).toEqual([])
    },
  )

  const parked: readonly Moment[] = [
    { type: 'tool-end', count: 3, cut: 'before' },
    { type: 'checkpoint', count: 2, cut: 'after' },
  ]
  it.concurrent.each(perTier([], parked))(
    'leaves its process $cut line $type when the wait was too long, and another one continues it [W.05 R.01]',
    async (moment) => {
      await using world = await worlds.openWorld()
      using disk = new Disk(world.home)
      const { host } = world
      const scene = { ...world.scene, maxWallMs: 60_000 }
      const run = await startRun(host, scene)
      const isFilled = fillAt(run, disk, moment)
      await accompany(host, run, scene)
      const end = await run.result()
      expect(isFilled()).toBe(true)
      expect(end).toMatchObject({ outcome: 'failed', reason: 'environment' })
      expect(end.message).toMatch(
        /the disk is full: .* needs .* free some disk space\n.*caisson runs resume run-/,
      )
      expect((await host.runs.summary(run.id)).status).toBe('interrupted')
      const killedAfter = wholeLines(world.journalOf(run.id))
      disk.free()
      const next = await resumeRun(host, run.id, scene)
      await accompany(host, next, scene)
      const { outcome, message } = await next.result()
      const result = await world.outcome({ runId: run.id, killedAfter, end: `${outcome}: ${message}` })
      expect(judge(result, undisturbed, { victim: 'host', afterMs: 0 })).toEqual([])
    },
  )
})
