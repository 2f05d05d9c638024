// Several runs on one directory, each on its own copy: what is applied and undone in which order, and what is lost: nothing.
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { manifestFile, prepareWorkspace } from '../../runs/prepare.ts'
import { VmPool } from '../../vm/vm-pool.ts'
import { applyChanges } from '../../workspace/apply/apply.ts'
import { undoChanges } from '../../workspace/apply/undo.ts'
import { readChangeSet } from '../../workspace/change-set.ts'
import { readManifest } from '../../workspace/manifest.ts'
import { reviewChanges } from '../../workspace/review/review.ts'
import { readAppliedCount, readApplyLog } from '../../workspace/write-ahead.ts'
import { beginRun } from '../support/begun-run.ts'
import { beginChanging, placeOfRuns } from '../support/changed-run.ts'
import { type Sketch, snapshot, treeOf, unwrap } from '../workspace/support.ts'

const [one, two] = ['1', '2'].map((digit) => `run-${digit.repeat(20)}`) as [string, string]

/** Two runs that copied the same directory, and their changes. */
async function twoRuns(before: Sketch, first: Sketch, second: Sketch) {
  const place = await placeOfRuns(before)
  const ends = [
    await beginChanging(place.host, place.directory, one),
    await beginChanging(place.host, place.directory, two),
  ]
  await ends[0]?.(treeOf(before), treeOf(first))
  await ends[1]?.(treeOf(before), treeOf(second))
  const read = (name: string) => readFile(path.join(place.directory, name), 'utf8')
  const changesOf = (runId: string) => place.host.changes(runId)
  return { ...place, read, changesOf }
}

describe('two runs on one directory', () => {
  it('both apply what they changed, and each can be undone alone [W.06]', async () => {
    const before = { 'a.txt': 'a', 'b.txt': 'b', 'c.txt': 'c' }
    const { host, directory, changesOf, read } = await twoRuns(
      before,
      { ...before, 'a.txt': 'A' },
      { ...before, 'b.txt': 'B', 'new.txt': 'n' },
    )
    expect(await (await changesOf(one)).apply('all')).toMatchObject({ applied: ['a.txt'], conflicts: [] })
    expect(await (await changesOf(two)).apply('all')).toMatchObject({
      applied: ['b.txt', 'new.txt'],
      conflicts: [],
    })
    expect([await read('a.txt'), await read('b.txt'), await read('new.txt')]).toEqual(['A', 'B', 'n'])
    expect(await host.undo(one)).toMatchObject({ restored: ['a.txt'], conflicts: [] })
    expect([await read('a.txt'), await read('b.txt')]).toEqual(['a', 'B'])
    expect(await host.undo(two)).toMatchObject({ conflicts: [], appliedNow: 0 })
    expect(snapshot(directory)).toMatchObject({ 'b.txt': expect.any(String) })
    expect(await read('b.txt')).toBe('b')
  })

  it('conflict where both changed a path, which names the other run and the time [W.06]', async () => {
    const before = { 'a.txt': 'a', 'b.txt': 'b', 'd/x': 'x', 'same.txt': 's' }
    const { host, changesOf, read, directory } = await twoRuns(
      before,
      { 'a.txt': 'first', 'b.txt': 'b', 'same.txt': 'S' },
      { 'a.txt': 'second', 'b.txt': 'B', 'd/x': 'x', 'd/y': 'y', 'same.txt': 'S' },
    )
    const startedAt = Date.now()
    await (await changesOf(one)).apply('all')
    const reason = (what: string) => expect.stringMatching(new RegExp(`^${what} by ${one}, applied \\d{4}-`))
    const review = await (await changesOf(two)).review()
    const stateOf = (wanted: string) => review.find((item) => item.path === wanted)?.state
    expect(stateOf('a.txt')).toEqual({ kind: 'conflict', reason: reason('also changed') })
    expect(stateOf('b.txt')).toEqual({ kind: 'clear' })
    expect(stateOf('same.txt')).toEqual({ kind: 'applied' })
    expect(stateOf('d/y')).toEqual({ kind: 'conflict', reason: reason('"d" was also changed') })
    const summary = await (await changesOf(two)).apply('all')
    expect(summary).toMatchObject({
      applied: ['b.txt'],
      already: ['same.txt'],
      conflicts: [
        { path: 'a.txt', reason: reason('also changed') },
        { path: 'd/y', reason: reason('"d" was also changed') },
      ],
      failed: [],
    })
    expect(await read('a.txt')).toBe('first')
    const log = readApplyLog(host.runs.paths(two).directory)
    expect(log?.operations.every(({ at }) => at !== undefined && at >= startedAt)).toBe(true)
    await writeFile(path.join(directory, 'b.txt'), 'mine')
    const mine = (await (await changesOf(two)).review()).find((item) => item.path === 'b.txt')
    expect(mine?.state).toEqual({
      kind: 'conflict',
      reason: 'it was changed on the host since the run began',
    })
  })

  it('are undone in the other order of their applies: the earlier one refuses what the later one changed [W.06]', async () => {
    const place = await placeOfRuns({ 'a.txt': 'a', 'b.txt': 'b' })
    const { host, directory } = place
    const end = await beginChanging(host, directory, one)
    await end(treeOf({ 'a.txt': 'a', 'b.txt': 'b' }), treeOf({ 'a.txt': 'first', 'b.txt': 'B' }))
    await (await host.changes(one)).apply('all')
    const later = await beginChanging(host, directory, two)
    await later(treeOf({ 'a.txt': 'first', 'b.txt': 'B' }), treeOf({ 'a.txt': 'second', 'b.txt': 'B' }))
    await (await host.changes(two)).apply('all')
    const undone = await host.undo(one)
    expect(undone.restored).toEqual(['b.txt'])
    expect(undone.conflicts).toEqual([
      {
        path: 'a.txt',
        reason: expect.stringMatching(
          `^also changed by ${two}, applied .*; undo that run first: caisson workspace undo ${two}$`,
        ),
      },
    ])
    expect(readFileSync(path.join(directory, 'a.txt'), 'utf8')).toBe('second')
    expect((await host.undo(two)).restored).toEqual(['a.txt'])
    expect((await host.undo(one)).restored).toEqual(['a.txt'])
    expect(readFileSync(path.join(directory, 'a.txt'), 'utf8')).toBe('a')
  })
})

const names = ['a', 'b', 'c', 'd/x', 'd/y', 'e/z']

/** Numbers below a bound, the same for the same seed. */
function randomNumbers(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

/** One directory, its runs, and a person who edits it, driven by a seed. */
class Story {
  readonly #place: Awaited<ReturnType<typeof placeOfRuns>>
  readonly #random: (below: number) => number
  readonly #runs: string[] = []
  readonly said: string[] = []
  #contents = 0

  constructor(place: Awaited<ReturnType<typeof placeOfRuns>>, seed: number) {
    this.#place = place
    this.#random = randomNumbers(seed)
  }

  async step(): Promise<void> {
    const { length } = this.#runs
    const action = this.#random(10)
    if (action < 2) return await this.#edit()
    if (action < 4 || length === 0) return await this.#run()
    const runId = this.#runs[this.#random(length)] ?? ''
    const before = this.#all()
    const files = this.#files()
    this.said.push(
      `${['', '', '', '', 'apply', 'apply', 'killed apply', 'undo', 'undo', 'killed undo'][action]} ${runId}`,
    )
    let touched: readonly string[]
    if (action < 6) touched = await this.#apply(runId)
    else if (action === 6) touched = await this.#killedApply(runId)
    else if (action < 9) touched = await this.#undo(runId)
    else touched = await this.#killedUndo(runId)
    const after = this.#all()
    expect([...before].filter((content) => !after.has(content))).toEqual([])
    for (const name of names)
      if (!touched.includes(name)) expect([name, this.#files().get(name)]).toEqual([name, files.get(name)])
  }

  async #edit(): Promise<void> {
    const name = names[this.#random(names.length)] ?? ''
    this.said.push(`edit ${name}`)
    await this.#write(name, this.#random(4) === 0 ? undefined : this.#newContent())
  }

  /** The copy and the result of a run at once: only its copy matters for what follows. */
  async #run(): Promise<void> {
    const { host, directory } = this.#place
    const runId = `run-${String(this.#runs.length).padStart(20, '0')}`
    this.#runs.push(runId)
    const before = Object.fromEntries(this.#files())
    const after = new Map(this.#files())
    for (const name of names) {
      const choice = this.#random(4)
      if (choice === 0) after.set(name, this.#newContent())
      else if (choice === 1) after.delete(name)
    }
    this.said.push(`${runId}: ${JSON.stringify(before)} to ${JSON.stringify(Object.fromEntries(after))}`)
    const end = await beginChanging(host, directory, runId)
    const folders = { d: null, e: null }
    await end(treeOf({ ...folders, ...before }), treeOf({ ...folders, ...Object.fromEntries(after) }))
    rmSync(host.runs.paths(runId).disk)
  }

  async #apply(runId: string): Promise<readonly string[]> {
    const changes = await this.#place.host.changes(runId)
    const { applied, conflicts, already, failed, appliedNow } = await changes.apply('all')
    expect(failed).toEqual([])
    const wanted = await this.#wantedBy(runId)
    for (const name of [...applied, ...already])
      if (names.includes(name)) expect(this.#files().get(name)).toBe(wanted.get(name))
    expect(new Set([...applied, ...already, ...conflicts.map(({ path: name }) => name)])).toEqual(
      new Set(wanted.keys()),
    )
    await this.#checkCount(runId, appliedNow)
    return applied
  }

  async #undo(runId: string): Promise<readonly string[]> {
    const { restored, problems, appliedNow, conflicts } = await this.#place.host.undo(runId)
    expect(problems).toEqual([])
    if (conflicts.length === 0) expect(appliedNow).toBe(0)
    await this.#checkCount(runId, appliedNow)
    return restored
  }

  async #checkCount(runId: string, total: number): Promise<void> {
    const { runs } = this.#place.host
    expect(readAppliedCount(runs.paths(runId).directory)).toBe(total)
    expect((await runs.summary(runId)).state.applied ?? 0).toBe(total)
  }

  /** Breaks off at a random step, with the log as it was on the disk at that moment. */
  async #killedApply(runId: string): Promise<readonly string[]> {
    const { directory } = this.#place.host.runs.paths(runId)
    const manifest = unwrap(await readManifest(manifestFile(directory)))
    const changes = unwrap(await readChangeSet(directory))
    await using record = await RunRecord.open(this.#place.host.runs.paths(runId))
    await using _ = unwrap(await record.holdDirectory(manifest.root))
    using review = unwrap(await reviewChanges(manifest, changes))
    await record.host({ type: 'apply-start', paths: 1, sha256: changes.sha256 })
    await this.#kill(directory, (onStep) =>
      applyChanges({ review, selection: 'all', runDirectory: directory, onStep }),
    )
    return [...changes.entries.keys()]
  }

  async #killedUndo(runId: string): Promise<readonly string[]> {
    const { directory } = this.#place.host.runs.paths(runId)
    const operations = readApplyLog(directory)?.operations ?? []
    if (operations.length === 0) return []
    await using record = await RunRecord.open(this.#place.host.runs.paths(runId))
    await using _ = unwrap(await record.holdDirectory(this.#place.directory))
    await record.host({ type: 'undo-start', paths: 1 })
    await this.#kill(directory, (onStep) => undoChanges({ runDirectory: directory, onRestored: onStep }))
    return operations.map(({ path: name }) => name)
  }

  async #kill(directory: string, work: (onStep: () => void) => Promise<unknown>): Promise<void> {
    const logs = ['apply.jsonl', 'undo.bin'].map((name) => path.join(directory, name))
    const at = this.#random(12)
    let steps = 0
    let isKilled = false
    await work(() => {
      if (steps++ !== at) return
      isKilled = true
      for (const log of logs) if (existsSync(log)) copyFileSync(log, `${log}.then`)
      throw new Error('killed')
    })
    for (const log of logs) {
      if (isKilled && existsSync(`${log}.then`)) copyFileSync(`${log}.then`, log)
      rmSync(`${log}.then`, { force: true })
    }
  }

  /** Content by path as the run wants it; undefined is a deletion. */
  async #wantedBy(runId: string): Promise<Map<string, string | undefined>> {
    const { directory } = this.#place.host.runs.paths(runId)
    const { entries, paths } = unwrap(await readChangeSet(directory))
    const contents = readFileSync(paths.contents)
    return new Map(
      [...entries].map(([name, entry]) => [
        name,
        entry.kind === 'file'
          ? contents.toString('utf8', entry.offset, entry.offset + entry.size)
          : undefined,
      ]),
    )
  }

  #newContent(): string {
    return `content ${++this.#contents};`
  }

  async #write(name: string, content: string | undefined): Promise<void> {
    const file = path.join(this.#place.directory, name)
    await mkdir(path.dirname(file), { recursive: true })
    if (content === undefined) await rm(file, { force: true })
    else writeFileSync(file, content)
  }

  #files(): Map<string, string> {
    const found = new Map<string, string>()
    for (const name of names) {
      const file = path.join(this.#place.directory, name)
      if (existsSync(file)) found.set(name, readFileSync(file, 'utf8'))
    }
    return found
  }

  /** Every content that is in the directory, in a change set or in the undo data of a log. */
  #all(): Set<string> {
    const found = new Set(this.#files().values())
    for (const runId of this.#runs) {
      const { directory } = this.#place.host.runs.paths(runId)
      const undo = path.join(directory, 'undo.bin')
      for (const { before, offset } of readApplyLog(directory)?.operations ?? [])
        if (before.kind === 'file' && offset !== undefined)
          found.add(readFileSync(undo).toString('utf8', offset, offset + before.size))
      const made = readFileSync(path.join(directory, 'changes.bin'), 'utf8')
      for (const [content] of made.matchAll(/content \d+;/g)) found.add(content)
    }
    return found
  }
}

describe('a run that waits for a VM of a pool', () => {
  it('says its place in the queue, a number, before it waits [S1.10 V.01]', async () => {
    const { host, directory } = await placeOfRuns({ 'a.txt': 'a' })
    const { record } = await beginRun(host, one, directory)
    const nothing = '/does/not/exist'
    const image = { kernel: nothing, initramfs: nothing, root: nothing, agentDisk: nothing }
    const warmUp = () => Promise.reject(new Error('no VM starts here'))
    await using pool = new VmPool({ image, folders: host.folders }, { warmUp }, { size: 0 })
    const plan = { folders: host.folders, directory, include: [], runId: one, pool }
    const items = record.feed.watch()
    await expect(prepareWorkspace(plan, record, new AbortController().signal)).rejects.toThrow()
    await record[Symbol.asyncDispose]()
    const deltas: unknown[] = []
    for await (const item of items) if (item.source === 'delta') deltas.push(item.delta)
    expect(deltas.at(-1)).toEqual({
      type: 'prepare',
      what: 'queue',
      text: 'waiting for a VM of the pool: next in the queue',
      place: 1,
    })
  })
})

describe('runs, applies, undos and edits in any order, some of them killed', () => {
  const seeds = Array.from({ length: perTier(4, 20) }, (_, at) => at + 1)
  it.each(seeds)(
    'lose no content and count what is applied (seed %i) [W.06 R.07]',
    async (seed) => {
      const place = await placeOfRuns({ a: 'a;', b: 'b;', 'd/x': 'x;', 'e/z': 'z;' })
      const story = new Story(place, seed)
      for (let step = 0; step < perTier(20, 40); step++)
        await story.step().catch((error: unknown) => {
          throw new Error(`after ${story.said.join('\n')}`, { cause: error })
        })
    },
    120_000,
  )
})
