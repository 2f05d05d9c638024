import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { runUnprivileged } from '#specs/testing/unprivileged.ts'
import { writeManifest } from '../../../workspace/manifest.ts'
import { after, apply, before, childProgram, expected, undo } from '../apply-support.ts'
import { Bench, snapshot, type Tree, type TreeNode, treeOf, unwrap } from '../support.ts'

describe('applying', () => {
  it('makes the workspace exactly what the agent left: every kind of change [W.01, W.02]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    const summary = await apply(bench, review)
    expect(summary).toMatchObject({ conflicts: [], failed: [], leftOut: [] })
    expect(snapshot(bench.root)).toEqual(expected(after))
    expect(readdirSync(bench.root).filter((name) => name.startsWith('.caisson'))).toEqual([])
  })

  it('can be repeated: what is applied stays as it is [W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    await apply(bench, review)
    using second = await bench.again(review)
    const summary = await apply(bench, second)
    expect(summary).toMatchObject({ applied: [], conflicts: [], failed: [] })
    expect(summary.already.length).toBe(review.items.length)
  })

  it('takes single files and leaves the rest [W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    const summary = await apply(bench, review, { paths: ['a.txt', 'toDir/inside'] })
    expect(summary.applied).toEqual(['a.txt', 'toDir', 'toDir/inside'])
    const now = snapshot(bench.root)
    const [old, done] = [expected(before), expected(after)]
    for (const name of ['a.txt', 'toDir', 'toDir/inside']) expect(now[name]).toBe(done[name])
    for (const name of ['del.txt', 'run.sh', 'toFile']) expect(now[name]).toBe(old[name])
  })

  it('overwrites nothing that changed on the host, before or after the review [W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    writeFileSync(bench.file('a.txt'), 'host edit after the review')
    writeFileSync(bench.file('dir/in/new'), 'made after the review')
    writeFileSync(bench.file('renamed'), 'in the way')
    const summary = await apply(bench, review)
    expect(summary.conflicts.map((item) => item.path)).toEqual(expect.arrayContaining(['a.txt', 'renamed']))
    expect(summary.failed.map((item) => item.path)).toEqual(
      expect.arrayContaining(['dir/in', 'renamed/x.bin']),
    )
    expect(readFileSync(bench.file('a.txt'), 'utf8')).toBe('host edit after the review')
    expect(readFileSync(bench.file('dir/in/new'), 'utf8')).toBe('made after the review')
    expect(readFileSync(bench.file('renamed'), 'utf8')).toBe('in the way')
    expect(readFileSync(bench.file('crlf.txt'), 'utf8')).toBe('y\r\n')
    await undo(bench)
    const { 'dir/in/new': extra, renamed, ...rest } = snapshot(bench.root)
    expect([extra, renamed]).not.toContain(undefined)
    const { 'a.txt': edited, ...old } = expected(before)
    expect(rest).toEqual({ ...old, 'a.txt': expect.not.stringMatching(edited ?? '') })
  })

  it('keeps what another program writes at the last moment [W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    const paths = ['a.txt', 'del.txt', 'link', 'new']
    const summary = await apply(bench, review, { paths }, ({ kind, path: at }) => {
      if (kind !== 'intended' || at !== 'a.txt') return
      writeFileSync(bench.file('a.txt'), 'late')
      writeFileSync(bench.file('del.txt'), 'late')
      mkdirSync(bench.file('new'))
    })
    expect(summary.applied).toEqual(['link'])
    expect(summary.failed.map((item) => item.path)).toEqual([
      'a.txt',
      'del.txt',
      'new',
      'new/big.bin',
      'new/empty',
    ])
    expect((await undo(bench)).conflicts).toEqual([])
    for (const name of ['a.txt', 'del.txt']) expect(readFileSync(bench.file(name), 'utf8')).toBe('late')
    expect(readdirSync(bench.file('new'))).toEqual([])
  })

  it('writes nothing through a link that appears on the way after the review [W.02]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(
      before,
      treeOf({ ...Object.fromEntries(before), 'dir/keep': 'K', 'dir/in/deep.txt': 'D', 'dir/fresh': 'f' }),
    )
    const outside = path.join(bench.home, 'outside')
    mkdirSync(outside)
    writeFileSync(path.join(outside, 'keep'), 'k')
    renameSync(bench.file('dir'), path.join(bench.home, 'aside'))
    symlinkSync(outside, bench.file('dir'))
    const summary = await apply(bench, review)
    expect(summary.applied).toEqual([])
    expect(summary.conflicts.map((item) => item.path)).toEqual(['dir/fresh', 'dir/in/deep.txt', 'dir/keep'])
    expect(snapshot(outside)).toEqual({ keep: expect.stringContaining('file') })
    expect(readFileSync(path.join(outside, 'keep'), 'utf8')).toBe('k')
  })

  it('replaces a file and not what a hard link to it shows elsewhere [W.02]', async () => {
    using bench = new Bench(before)
    const twin = path.join(bench.home, 'twin')
    linkSync(bench.file('a.txt'), twin)
    using review = await bench.review(before, after)
    await apply(bench, review)
    expect(readFileSync(twin, 'utf8')).toBe('a')
  })

  it('reports what the file system refuses path by path, and applies the others, as an unprivileged user [W.01]', async () => {
    using bench = new Bench(treeOf({ 'free.txt': 'f', 'shut/x': 'x' }))
    const { manifest } = await bench.takeIn()
    unwrap(
      await bench.receive(manifest, [
        { entry: { kind: 'file', path: 'free.txt', mode: 0o644, size: 1 }, content: Buffer.from('F') },
        { entry: { kind: 'file', path: 'shut/x', mode: 0o644, size: 1 }, content: Buffer.from('X') },
      ]),
    )
    await writeManifest(path.join(bench.run, 'manifest.jsonl'), manifest)
    chmodSync(bench.file('shut'), 0o555)
    const summary = JSON.parse(runUnprivileged(childProgram(bench)))
    chmodSync(bench.file('shut'), 0o755)
    expect(summary.applied).toEqual(['free.txt'])
    expect(summary.failed).toEqual([{ path: 'shut/x', reason: expect.stringContaining('permission denied') }])
    expect(readFileSync(bench.file('free.txt'), 'utf8')).toBe('F')
  })
})

describe('undoing', () => {
  it('restores every byte and mode, and nothing is left of apply [W.01]', async () => {
    using bench = new Bench(before)
    chmodSync(bench.file('run.sh'), 0o2744)
    const start = snapshot(bench.root)
    using review = await bench.review(before, after)
    await apply(bench, review, { paths: ['a.txt', 'toFile'] })
    using rest = await bench.again(review)
    await apply(bench, rest)
    const summary = await undo(bench)
    expect(summary.conflicts).toEqual([])
    expect(snapshot(bench.root)).toEqual(start)
    expect(await undo(bench)).toEqual({ restored: [], conflicts: [], appliedNow: 0, problems: [] })
    using again = await bench.again(review)
    expect((await apply(bench, again)).failed).toEqual([])
  })

  it('keeps what was changed since, says so, and restores the rest; later the rest of the rest [W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    await apply(bench, review)
    writeFileSync(bench.file('a.txt'), 'mine now')
    writeFileSync(bench.file('new/mine'), 'mine')
    const summary = await undo(bench)
    expect(summary.conflicts.map(({ path: at }) => at).sort()).toEqual(['a.txt', 'new'])
    expect(readFileSync(bench.file('a.txt'), 'utf8')).toBe('mine now')
    expect(readFileSync(bench.file('new/mine'), 'utf8')).toBe('mine')
    expect(existsSync(bench.file('new/big.bin'))).toBe(false)
    writeFileSync(bench.file('a.txt'), 'changed')
    rmSync(bench.file('new/mine'))
    expect((await undo(bench)).conflicts).toEqual([])
    expect(snapshot(bench.root)).toEqual(expected(before))
  })

  it('refuses content that was damaged meanwhile rather than restoring it [W.01]', async () => {
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    await apply(bench, review, { paths: ['a.txt'] })
    writeFileSync(path.join(bench.run, 'undo.bin'), 'b')
    expect((await undo(bench)).conflicts).toEqual([
      { path: 'a.txt', reason: expect.stringContaining('damaged') },
    ])
    expect(readFileSync(bench.file('a.txt'), 'utf8')).toBe('changed')
    expect(statSync(path.join(bench.run, 'undo.bin')).mode & 0o777).toBe(0o600)
  })

  it('restores any tree from any other, and apply makes any tree into any other [W.01, W.02]', async () => {
    await fc.assert(
      fc.asyncProperty(trees, trees, async (from, to) => {
        using bench = new Bench(from)
        const start = snapshot(bench.root)
        using review = await bench.review(from, to)
        const named = { paths: review.items.map((item) => item.path) }
        expect(await apply(bench, review, named)).toMatchObject({ conflicts: [], failed: [], leftOut: [] })
        expect(snapshot(bench.root)).toEqual(expected(to))
        expect((await undo(bench)).conflicts).toEqual([])
        expect(snapshot(bench.root)).toEqual(start)
      }),
      { seed: 7, numRuns: 60 },
    )
  })
})

const names = fc.constantFrom('a', 'b', 'Makefile', '.x', 'é', 'caf\udce9')
const nodes: fc.Arbitrary<TreeNode> = fc.oneof(
  fc.record({
    kind: fc.constant('file' as const),
    mode: fc.constantFrom(0o644, 0o755, 0o600, 0o444),
    content: fc.oneof(
      fc.constantFrom('', 'x', 'same'),
      fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    ),
  }),
  fc.record({ kind: fc.constant('directory' as const), mode: fc.constantFrom(0o755, 0o700, 0o750) }),
  fc.record({
    kind: fc.constant('link' as const),
    target: fc.constantFrom('a', '../b', '/etc/passwd', 'no/where'),
  }),
)
/** Paths up to three deep; what would lie below a file or link is left out. */
const trees: fc.Arbitrary<Tree> = fc
  .array(fc.tuple(fc.array(names, { minLength: 1, maxLength: 3 }), nodes), { maxLength: 14 })
  .map((list) => {
    const made = new Map<string, TreeNode>()
    for (const [parts, node] of list) {
      const above = parts.slice(0, -1).map((_, at) => parts.slice(0, at + 1).join('/'))
      if (above.some((name) => (made.get(name)?.kind ?? 'directory') !== 'directory')) continue
      for (const name of above) if (!made.has(name)) made.set(name, { kind: 'directory', mode: 0o755 })
      const name = parts.join('/')
      if (!made.has(name)) made.set(name, node)
    }
    return treeOf(Object.fromEntries(made))
  })
