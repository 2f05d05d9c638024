import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { applyChanges } from '../../workspace/apply/apply.ts'
import { undoChanges } from '../../workspace/apply/undo.ts'
import { writeManifest } from '../../workspace/manifest.ts'
import { after, apply, before, childProgram, expected, undo } from './apply-support.ts'
import { Bench, snapshot } from './support.ts'

describe('a crash', () => {
  it('at any step can be undone, and from any step apply continues [W.01]', async () => {
    const [old, done] = [expected(before), expected(after)]
    for (let at = 1; ; at += perTier(7, 1)) {
      using bench = new Bench(before)
      using review = await bench.review(before, after)
      let steps = 0
      const crashed = await applyChanges({
        review,
        selection: 'all',
        runDirectory: bench.run,
        onStep: () => {
          if (++steps === at) throw new Error('crash')
        },
      })
      if (crashed.ok && crashed.value.stopped === undefined) {
        expect(at).toBeGreaterThan(40)
        break
      }
      if (at % 2 === 0) {
        using again = await bench.again(review)
        expect(await apply(bench, again)).toMatchObject({ conflicts: [], failed: [] })
        expect(snapshot(bench.root)).toEqual(done)
      }
      expect((await undo(bench)).conflicts).toEqual([])
      expect(snapshot(bench.root)).toEqual(old)
    }
  })

  it('of undo at any path is made good by undoing again [W.01]', async () => {
    for (let at = 1, isCrashed = true; isCrashed; at += perTier(4, 1)) {
      using bench = new Bench(before)
      using review = await bench.review(before, after)
      await apply(bench, review)
      let steps = 0
      const first = await undoChanges({
        runDirectory: bench.run,
        onRestored: () => {
          if (++steps === at) throw new Error('crash')
        },
      })
      isCrashed = !first.ok || first.value.stopped !== undefined
      expect((await undo(bench)).conflicts).toEqual([])
      expect(snapshot(bench.root)).toEqual(expected(before))
    }
  })

  it('that left staged content or a torn log line behind leaves nothing of it [W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    let intended = 0
    await applyChanges({
      review,
      selection: { paths: ['a.txt'] },
      runDirectory: bench.run,
      onStep: ({ kind }) => {
        if (kind === 'intended' && ++intended === 1) throw new Error('crash')
      },
    })
    const log = path.join(bench.run, 'apply.jsonl')
    const { temporary } = JSON.parse(readFileSync(log, 'utf8').split('\n')[1]?.slice(17) ?? '')
    writeFileSync(bench.file(temporary), 'half')
    writeFileSync(log, `${readFileSync(log, 'utf8')}{"op":1,"pa`)
    expect((await undo(bench)).conflicts).toEqual([])
    expect(snapshot(bench.root)).toEqual(expected(before))
    writeFileSync(log, 'not a log line\n')
    const damaged = await undoChanges({ runDirectory: bench.run })
    expect(damaged).toMatchObject({ ok: false, error: { code: 'damaged' } })
  })

  it('by SIGKILL in the middle of apply can be undone by another process [W.01]', async () => {
    for (const killAt of perTier([45], [25, 45, 60])) {
      using bench = new Bench(before)
      using review = await bench.review(before, after)
      await writeManifest(path.join(bench.run, 'manifest.jsonl'), review.index.manifest)
      const child = spawn(
        process.execPath,
        ['--conditions=caisson-source', '--input-type=module', '-e', childProgram(bench, killAt)],
        { stdio: 'ignore' },
      )
      const signal = await new Promise((resolve) => child.once('exit', (_, ended) => resolve(ended)))
      expect(signal).toBe('SIGKILL')
      expect((await undo(bench)).conflicts).toEqual([])
      expect(snapshot(bench.root)).toEqual(expected(before))
    }
  })
})
