import { existsSync } from 'node:fs'
import { readdir, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { freeKept } from '../../clean/free.ts'
import { listKept } from '../../clean/inventory.ts'
import { Host } from '../../host.ts'
import {
  boundMoments,
  defaultMomentBounds,
  keepLeftMoments,
  listMoments,
  momentPaths,
} from '../../journal/kept-moments.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
import { runWithMoments } from '../support/run-with-moments.ts'

const idOf = (number: number) => `run-${String(number).padStart(20, '0')}`

async function place() {
  const home = await temporaryFolder('moments')
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), CAISSON_CACHE: path.join(home, 'cache') }
  const host = new Host({ env })
  const run = (number: number, isOver = true) => runWithMoments(host, home, { runId: idOf(number), isOver })
  return { host, run }
}

/** Of `count` runs, the later the newer. */
async function endedRuns(count: number) {
  const { host, run } = await place()
  for (let number = 1; number <= count; number += 1) {
    const { moments } = await run(number)
    await utimes(moments, number * 1_000, number * 1_000)
  }
  return {
    host,
    now: count * 1_000_000,
    left: async () => (await listMoments(host.runs)).map(({ runId }) => runId),
  }
}

describe('the moments of an ended run', () => {
  it('stay in its folder, without what no checkpoint needs [V.05]', async () => {
    const { run } = await place()
    const paths = await run(1)
    expect((await readdir(paths.moments)).toSorted()).toEqual([
      'run.json',
      'scratch',
      'workspace-files.json',
      'workspace.erofs',
    ])
    for (const file of [paths.options, paths.scratch, paths.disk, paths.diskFiles])
      expect(existsSync(file)).toBe(false)
    const { scratch } = momentPaths(paths, true)
    const layers = (await readdir(scratch)).filter((name) => name.startsWith('layer-'))
    expect(layers).toHaveLength(4)
    expect((await CheckpointDisk.open(scratch, 'cp-3')).sealed).toHaveLength(3)
  })

  it('are kept by the next run where its host process was killed right after its end [V.05 V.07]', async () => {
    const { host, run } = await place()
    const paths = await run(1, false)
    {
      await using record = await RunRecord.open(paths)
      const end = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
      await record.host({ type: 'run-end', ...end, usage: record.state.usage, durationMs: 1 })
      // Its process is still at work.
      await keepLeftMoments(host.runs)
      expect(existsSync(paths.options)).toBe(true)
    }
    // One that can continue, and one whose journal is damaged, stay as they are.
    const others = [await run(2, false), await run(3, false)]
    await writeFile(others[1]?.journal ?? '', 'x\n')
    await host.runs.clearScratch()
    await keepLeftMoments(host.runs)
    for (const { options, scratch } of others)
      expect([existsSync(options), existsSync(scratch)]).toEqual([true, true])
    for (const file of [paths.options, paths.scratch, paths.disk, paths.diskFiles])
      expect(existsSync(file)).toBe(false)
    expect((await listMoments(host.runs)).map(({ runId }) => runId)).toEqual([idOf(1)])
    expect(await host.fork(idOf(1), { at: 'end' })).toMatchObject({ checkpointId: 'cp-4' })
    await boundMoments(host.runs, { ...defaultMomentBounds, maxRuns: 0 }, Date.now())
    expect(existsSync(paths.moments)).toBe(false)
  })

  it('are bounded by number, bytes and age, the newest first [V.05 V.07]', async () => {
    const { host, now, left } = await endedRuns(4)
    await boundMoments(host.runs, { ...defaultMomentBounds, maxRuns: 3 }, now)
    expect(await left()).toEqual([idOf(4), idOf(3), idOf(2)])
    await boundMoments(host.runs, { ...defaultMomentBounds, maxAgeMs: 1_500_000 }, now)
    expect(await left()).toEqual([idOf(4), idOf(3)])
    const [{ bytes } = { bytes: 0 }] = await listMoments(host.runs)
    await boundMoments(host.runs, { ...defaultMomentBounds, maxBytes: bytes * 1.5 }, now)
    expect(await left()).toEqual([idOf(4)])
    await boundMoments(host.runs, { ...defaultMomentBounds, maxRuns: 0 }, now)
    expect(await left()).toEqual([])
    expect(await host.runs.ids()).toHaveLength(4)
  })

  it('are an entry of `clean`, which frees them and leaves the run [V.05 S0.10]', async () => {
    const { host, run } = await place()
    const { moments } = await run(1)
    const entries = await listKept({ folders: host.folders, now: Date.now() })
    const entry = entries.find(({ kind }) => kind === 'moments')
    expect(entry).toMatchObject({ name: idOf(1), path: moments, state: 'old' })
    expect(entry?.bytes).toBeGreaterThan(10_000)
    expect(entries.find(({ kind }) => kind === 'run')?.note).not.toContain('another version')
    await freeKept(host.folders, entry === undefined ? [] : [entry])
    expect(existsSync(moments)).toBe(false)
    expect(await host.runs.ids()).toEqual([idOf(1)])
  })
})
