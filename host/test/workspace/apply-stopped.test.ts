// An apply or undo that ends before its end: what was done is said, nothing is left beside it, and it can be continued.
import { readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { applyChanges } from '../../workspace/apply/apply.ts'
import { removeStagedOf } from '../../workspace/apply/staged-files.ts'
import { undoChanges } from '../../workspace/apply/undo.ts'
import { apply, expected, undo } from './apply-support.ts'
import { Bench, snapshot, type Tree, treeOf, unwrap } from './support.ts'

/** More than one batch of new files, then one that replaces content. */
const before = treeOf({ 'z.txt': 'old' })
const after: Tree = treeOf({
  ...Object.fromEntries(Array.from({ length: 100 }, (_, at) => [`a${String(at).padStart(3, '0')}`, `${at}`])),
  'z.txt': 'new',
})

describe('an apply that ends early', () => {
  it('says which changes it made when its own disk is full, and continues or is undone when there is space [R.07 W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    const contents = path.join(bench.run, 'undo.bin')
    symlinkSync('/dev/full', contents)
    const summary = await apply(bench, review)
    expect(summary.stopped).toMatchObject({
      code: 'no_space',
      message: expect.stringContaining('free some disk space'),
    })
    const [there, was] = [snapshot(bench.root), expected(before)]
    expect(summary.applied).toHaveLength(64)
    expect(
      Object.keys(there)
        .filter((name) => !(name in was))
        .toSorted(),
    ).toEqual(summary.applied.toSorted())
    expect([...summary.applied, ...summary.notReached].toSorted()).toEqual([...after.keys()].toSorted())
    rmSync(contents)
    expect((await undo(bench)).conflicts).toEqual([])
    expect(snapshot(bench.root)).toEqual(was)
    rmSync(contents, { force: true })
    symlinkSync('/dev/full', contents)
    await apply(bench, review)
    rmSync(contents)
    using again = await bench.again(review)
    expect(await apply(bench, again)).toMatchObject({ conflicts: [], failed: [], notReached: [] })
    expect(snapshot(bench.root)).toEqual(expected(after))
  })

  it('ends between two files when it is interrupted, and so does undo [R.07 W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    const stop = new AbortController()
    const summary = unwrap(
      await applyChanges({
        review,
        selection: 'all',
        runDirectory: bench.run,
        signal: stop.signal,
        onStep: ({ kind }) => {
          if (kind === 'done') stop.abort()
        },
      }),
    )
    expect(summary).toMatchObject({ stopped: { code: 'cancelled' }, conflicts: [], failed: [] })
    expect(Object.keys(snapshot(bench.root))).toEqual(expect.arrayContaining([...summary.applied]))
    expect(summary.applied).toHaveLength(64)
    const again = new AbortController()
    const undone = unwrap(
      await undoChanges({
        runDirectory: bench.run,
        signal: again.signal,
        onRestored: () => again.abort(),
      }),
    )
    expect(undone).toMatchObject({ stopped: { code: 'cancelled' }, conflicts: [] })
    expect(undone.restored).not.toEqual([])
    expect((await undo(bench)).stopped).toBeUndefined()
    expect(snapshot(bench.root)).toEqual(expected(before))
  })

  it('is a failure where it changed nothing [R.07]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    const options = { review, selection: 'all' as const, runDirectory: bench.run }
    const stopped = await applyChanges({ ...options, signal: AbortSignal.abort() })
    expect(stopped).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    expect(snapshot(bench.root)).toEqual(expected(before))
  })
})

describe('a file that a killed apply left staged', () => {
  it('does not go into the next VM, and is removed where the log names it, as nothing else is [R.07 W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    await apply(bench, review, { paths: ['a000', 'a001'] })
    const log = readFileSync(path.join(bench.run, 'apply.jsonl'), 'utf8')
    const [left = ''] = /\.caisson-[0-9a-f]{12}-\d+/.exec(log) ?? []
    const others = ['.caisson-0123456789ab-7', '.caissonignore', '.caisson-notes']
    for (const name of [left, ...others]) writeFileSync(bench.file(name), 'half')
    const scan = unwrap(await bench.scan())
    expect(scan.leftOut).toEqual(
      [
        { path: others[0], reason: 'staged' },
        { path: left, reason: 'staged' },
      ].toSorted((one, other) => ((one.path ?? '') < (other.path ?? '') ? -1 : 1)),
    )
    expect(scan.entries.map((entry) => entry.path)).toEqual(expect.arrayContaining(others.slice(1)))
    removeStagedOf(bench.root, bench.run)
    const names = Object.keys(snapshot(bench.root))
    expect(names).not.toContain(left)
    expect(names).toEqual(expect.arrayContaining(others))
    removeStagedOf(path.join(bench.home, 'gone'), bench.run)
    removeStagedOf(bench.root, path.join(bench.home, 'gone'))
    expect(Object.keys(snapshot(bench.root))).toEqual(names)
  })

  it('is removed by the next apply of the run [R.07]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    await apply(bench, review, { paths: ['a000'] })
    const log = readFileSync(path.join(bench.run, 'apply.jsonl'), 'utf8')
    const [left = ''] = /\.caisson-[0-9a-f]{12}-\d+/.exec(log) ?? []
    writeFileSync(bench.file(left), 'half')
    using again = await bench.again(review)
    expect(await apply(bench, again)).toMatchObject({ conflicts: [], failed: [] })
    expect(snapshot(bench.root)).toEqual(expected(after))
  })
})
