// Undo from the run's own two files, and what lists say of applies and undos that a crash cut.
import { existsSync } from 'node:fs'
import { readFile, rm, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { RunRecord } from '../../journal/run-record.ts'
import {
  applyChanges,
  readApplyLog,
  readChangeSet,
  readManifest,
  reviewChanges,
  undoChanges,
} from '../../workspace/index.ts'
import { changedRunId, runThatChanged } from '../support/changed-run.ts'
import { snapshot, unwrap } from '../workspace/support.ts'

const before = { 'a.txt': 'a', 'b.txt': 'b', 'dir/in/c.txt': 'c', gone: 'd', toDir: 'was a file' }
const after = {
  'a.txt': 'changed',
  'b.txt': 'changed too',
  dir: 'now a file',
  new: 'n',
  'toDir/inside': 'now a directory',
}

type ChangedRun = Awaited<ReturnType<typeof runThatChanged>>

async function appliedRun() {
  const run = await runThatChanged(before, after)
  const old = snapshot(run.directory)
  const summary = await (await run.host.changes(changedRunId)).apply('all')
  const { directory } = run.host.runs.paths(changedRunId)
  return { ...run, old, summary, file: (name: string) => path.join(directory, name), runDirectory: directory }
}

const appliedInList = async ({ host }: ChangedRun) => (await host.runs.list())[0]?.state.applied

/** Directories on the way to a change are made and count as changes of their own. */
const countDifferences = (a: Record<string, string>, b: Record<string, string>) =>
  new Set([...Object.keys(a), ...Object.keys(b)].filter((name) => a[name] !== b[name])).size

async function flip(file: string): Promise<void> {
  const bytes = await readFile(file)
  const at = Math.floor(bytes.length / 2)
  bytes[at] = (bytes[at] as number) ^ 4
  await writeFile(file, bytes)
}

const harms = [
  ['gone', (file: string) => rm(file)],
  ['damaged', flip],
  ['empty', (file: string) => truncate(file, 0)],
] as const

describe('undo', () => {
  const others = ['journal.jsonl', 'manifest.jsonl', 'changes.jsonl', 'changes.bin', 'summary.json'].slice(
    0,
    perTier(2, 5),
  )
  it.each(harms)(
    'restores everything with each file of the run %s but its own two [W.01]',
    async (_, harm) => {
      for (const other of others) {
        const run = await appliedRun()
        expect(run.summary.applied).toHaveLength(7)
        expect(run.summary.appliedNow).toBe(7)
        await harm(run.file(other))
        const { conflicts, appliedNow } = await run.host.undo(changedRunId)
        expect({ conflicts, appliedNow }).toEqual({ conflicts: [], appliedNow: 0 })
        expect(snapshot(run.directory), other).toEqual(run.old)
      }
    },
    60_000,
  )

  it('says that it is not recorded where the journal is damaged, and review says how to undo [W.01 S0.12]', async () => {
    const run = await appliedRun()
    await flip(run.file('journal.jsonl'))
    await expect(run.host.changes(changedRunId)).rejects.toThrow(/journal line .*caisson workspace undo run-/)
    expect((await run.host.undo(changedRunId)).problems).toEqual([
      expect.stringMatching(/not recorded: journal line/),
    ])
  })

  it('never passes over lines that its log lost [W.01]', async () => {
    for (const [share, problem] of [
      [0, /lost lines.* 0; /],
      [0.5, /lost lines|damaged/],
      [1, /lost lines/],
    ] as const) {
      const run = await appliedRun()
      const { length } = await readFile(run.file('apply.jsonl'))
      await truncate(run.file('apply.jsonl'), Math.max(0, Math.floor(length * share) - 1))
      const told = await run.host.undo(changedRunId).then(
        ({ problems }) => problems.join(),
        (error: Error) => error.message,
      )
      expect(told).toMatch(problem)
    }
    const run = await appliedRun()
    await rm(run.file('apply.jsonl'))
    expect((await run.host.undo(changedRunId)).problems).toEqual([expect.stringMatching(/lost lines.* 0; /)])
  })

  it('notices of its log where it is cut at any byte, and any byte that was changed [W.01]', async () => {
    const { file, runDirectory } = await appliedRun()
    expect(readApplyLog(runDirectory)).toMatchObject({ isEnded: true })
    const whole = await readFile(file('apply.jsonl'))
    const stride = perTier(13, 1)
    for (let length = whole.length - 1; length >= 0; length -= stride) {
      await truncate(file('apply.jsonl'), length)
      expect(readApplyLog(runDirectory)?.isEnded, `cut to ${length} bytes`).not.toBe(true)
    }
    for (let at = 0; at < whole.length - 1; at += stride) {
      const changed = Buffer.from(whole)
      changed[at] = (changed[at] as number) ^ (1 << (at % 8))
      await writeFile(file('apply.jsonl'), changed)
      expect(() => readApplyLog(runDirectory), `byte ${at}`).toThrow(/damaged/)
    }
  }, 120_000)

  it('leaves no log and no contents behind once everything is restored [W.01]', async () => {
    const run = await appliedRun()
    const sizes: number[] = []
    for (let round = 0; round < 3; round += 1) {
      sizes.push((await readFile(run.file('undo.bin'))).length)
      expect(await run.host.undo(changedRunId)).toMatchObject({ conflicts: [], problems: [] })
      expect([existsSync(run.file('apply.jsonl')), existsSync(run.file('undo.bin'))]).toEqual([false, false])
      expect(snapshot(run.directory)).toEqual(run.old)
      expect(await (await run.host.changes(changedRunId)).apply('all')).toMatchObject({ conflicts: [] })
    }
    expect(new Set(sizes).size).toBe(1)
  })
})

describe('a diff of changes', () => {
  it.each(harms.slice(1))(
    'says of stored content that is %s that it is not what the run made [W.02]',
    async (_, harm) => {
      const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'changed' })
      await harm(path.join(run.host.runs.paths(changedRunId).directory, 'changes.bin'))
      const changes = await run.host.changes(changedRunId)
      const told: object[] = []
      for await (const item of changes.reviewWithDiffs()) told.push(item)
      expect(told).toMatchObject([{ diff: null, noDiff: expect.stringContaining('damaged') }])
    },
  )
})

describe('a list of runs', () => {
  it('tells how much is applied after an apply and an undo that broke off anywhere [W.01]', async () => {
    for (let at = 1, isCut = true; isCut; at += perTier(16, 4)) {
      const run = await runThatChanged(before, after)
      const old = snapshot(run.directory)
      isCut = await cutApply(run, at)
      if (!isCut) break
      const { host } = run
      const [listed] = await host.runs.list()
      expect(listed?.state.unfinished).toBe('apply')
      // Of operations under way as it broke off only the host's files tell: they are not counted.
      expect(listed?.state.applied ?? -1).toBeLessThanOrEqual(countDifferences(old, snapshot(run.directory)))
      const { appliedNow } = await (await host.changes(changedRunId)).apply('all')
      expect((await host.changes(changedRunId)).directory).toBe(run.directory)
      expect(await appliedInList(run)).toBe(appliedNow)
      const done = snapshot(run.directory)
      await cutUndo(run, Math.min(at, 3))
      expect((await host.runs.list())[0]?.state).toMatchObject({ unfinished: 'undo' })
      expect(await appliedInList(run)).toBeLessThanOrEqual(appliedNow)
      expect(await host.undo(changedRunId)).toMatchObject({ conflicts: [], appliedNow: 0 })
      expect(snapshot(run.directory)).toEqual(old)
      expect((await host.runs.list())[0]?.state).toMatchObject({ unfinished: null, applied: 0 })
      await (await host.changes(changedRunId)).apply('all')
      expect(await appliedInList(run)).toBe(appliedNow)
      expect(snapshot(run.directory)).toEqual(done)
    }
  }, 120_000)
})

/** An apply as a crash leaves it at a step. @returns false when it had fewer steps */
async function cutApply({ host }: ChangedRun, at: number): Promise<boolean> {
  const paths = host.runs.paths(changedRunId)
  await using record = await RunRecord.open(paths)
  await record.host({ type: 'apply-start', paths: 1, sha256: '0'.repeat(64) })
  const manifest = unwrap(await readManifest(path.join(paths.directory, 'manifest.jsonl')))
  using review = unwrap(await reviewChanges(manifest, unwrap(await readChangeSet(paths.directory))))
  let steps = 0
  const result = await applyChanges({
    review,
    selection: 'all',
    runDirectory: paths.directory,
    onStep: () => {
      if (++steps === at) throw new Error('crash')
    },
  })
  return !result.ok || result.value.stopped !== undefined
}

async function cutUndo({ host }: ChangedRun, at: number): Promise<void> {
  const paths = host.runs.paths(changedRunId)
  await using record = await RunRecord.open(paths)
  await record.host({ type: 'undo-start', paths: 1 })
  let steps = 0
  const result = await undoChanges({
    runDirectory: paths.directory,
    onRestored: () => {
      if (++steps === at) throw new Error('crash')
    },
  })
  expect(!result.ok || result.value.stopped !== undefined).toBe(true)
}

it('a run says whether all that was applied of it is on this machine [W.03]', async () => {
  const { host } = await runThatChanged(before, after)
  const { runs } = host
  expect(await runs.appliedHere(changedRunId)).toBe(true)
  await (await host.changes(changedRunId)).apply({ paths: ['a.txt', 'b.txt'] })
  expect(await runs.appliedHere(changedRunId)).toBe(true)
  await host.undo(changedRunId)
  await (await host.changes(changedRunId)).apply({ paths: ['a.txt'] })
  expect(await runs.appliedHere(changedRunId)).toBe(true)
  // Another host of its fleet applies another path, and its log begins with that.
  await using record = await RunRecord.open(runs.paths(changedRunId))
  await record.host({
    ...{ type: 'apply-end', applied: 1, paths: ['b.txt'], total: 1 },
    ...{ leftOut: 0, conflicts: [], failed: [] },
  })
  expect(await runs.appliedHere(changedRunId)).toBe(false)
})
