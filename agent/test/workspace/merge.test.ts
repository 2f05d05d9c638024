import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Directory } from '#specs/node/directory.ts'
import { perTier } from '#specs/testing/tier.ts'
import { type MergeResult, mergeView, takeName } from '../../workspace/merge.ts'
import {
  type Operation,
  operations,
  perform,
  type Snapshot,
  snapshot,
  temporaryFolder,
} from '../support/trees.ts'

const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }

/** The three trees in a folder; `start` is made first, the others begin as copies of it. */
class Trees implements Disposable {
  readonly #folder = temporaryFolder()
  readonly start = join(this.#folder.path, 'start')
  readonly child = join(this.#folder.path, 'child')
  readonly parent = join(this.#folder.path, 'parent')

  constructor(fill: (root: string) => void) {
    mkdirSync(this.start)
    fill(this.start)
    // Node's cpSync loses the modes of directories.
    for (const copy of [this.child, this.parent]) execFileSync('cp', ['-a', this.start, copy])
  }

  merge(upper?: string): Promise<MergeResult> {
    const { child, start, parent } = this
    return mergeView({ child, start, parent, ...(upper === undefined ? {} : { upper }) }, { owner })
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]()
  }
}

const put = (root: string, files: Readonly<Record<string, string>>): void => {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), content)
  }
}
const base = (root: string): void =>
  put(root, { 'a.txt': 'a', 'b.txt': 'b', 'd/x': 'x', 'd/y': 'y', 'd/deep/z': 'z', 'e/f': 'f' })
const read = (root: string, path: string): string => readFileSync(join(root, path), 'utf8')

describe('merging a view', () => {
  it('brings over what the view made, changed and deleted, with modes, links and empty directories [A.07]', async () => {
    using trees = new Trees(base)
    put(trees.child, { 'a.txt': 'a of the child', 'new/deep/file': 'new', large: 'l'.repeat(700_000) })
    mkdirSync(join(trees.child, 'empty'), { mode: 0o750 })
    chmodSync(join(trees.child, 'empty'), 0o750)
    chmodSync(join(trees.child, 'b.txt'), 0o755)
    symlinkSync('/etc/passwd', join(trees.child, 'out'))
    rmSync(join(trees.child, 'd/deep'), { recursive: true })
    rmSync(join(trees.child, 'd/x'))
    const { merged, conflicts, leftOut } = await trees.merge()
    expect(snapshot(trees.parent)).toEqual(snapshot(trees.child))
    expect({ conflicts, leftOut }).toEqual({ conflicts: [], leftOut: [] })
    const changed = ['a.txt', 'b.txt', 'd/deep', 'd/deep/z', 'd/x', 'empty', 'large', 'new', 'new/deep']
    expect([...merged].sort()).toEqual([...changed, 'new/deep/file', 'out'])
    expect(readdirSync(trees.parent).filter((name) => name.startsWith('.caisson'))).toEqual([])
  })

  it('keeps what the parent did meanwhile elsewhere [A.07]', async () => {
    using trees = new Trees(base)
    put(trees.child, { 'd/x': 'x of the child', 'd/mine': 'child' })
    put(trees.parent, { 'd/y': 'y of the parent', 'd/ours': 'parent', other: 'o' })
    rmSync(join(trees.parent, 'e'), { recursive: true })
    const { merged, conflicts } = await trees.merge()
    expect({ merged, conflicts }).toEqual({ merged: ['d/mine', 'd/x'], conflicts: [] })
    expect(read(trees.parent, 'd/x')).toBe('x of the child')
    expect(read(trees.parent, 'd/y')).toBe('y of the parent')
    expect(existsSync(join(trees.parent, 'e'))).toBe(false)
    expect(existsSync(join(trees.parent, 'd/ours'))).toBe(true)
  })

  it('leaves the parent’s version where both changed a path to different things, and says so [A.07]', async () => {
    using trees = new Trees(base)
    put(trees.child, { 'a.txt': 'child', 'b.txt': 'same', made: 'child', 'd/x': 'child', 'e/f': 'child' })
    rmSync(join(trees.child, 'd/deep'), { recursive: true })
    put(trees.parent, { 'a.txt': 'parent', 'b.txt': 'same', made: 'parent', 'd/deep/z': 'parent' })
    rmSync(join(trees.parent, 'd/x'))
    rmSync(join(trees.parent, 'e'), { recursive: true })
    put(trees.parent, { e: 'now a file' })
    const before = snapshot(trees.parent)
    const { merged, conflicts } = await trees.merge()
    expect(conflicts).toEqual(['a.txt', 'd/deep/z', 'd/x', 'e/f', 'made'])
    expect(merged).toEqual([])
    expect(snapshot(trees.parent)).toEqual(before)
  })

  it('exchanges files for directories and the reverse only where the parent had not touched them [A.07]', async () => {
    using trees = new Trees(base)
    for (const root of ['d', 'e']) {
      rmSync(join(trees.child, root), { recursive: true })
      put(trees.child, { [root]: 'a file now' })
    }
    for (const file of ['a.txt', 'b.txt']) {
      rmSync(join(trees.child, file))
      put(trees.child, { [`${file}/in`]: 'a directory now' })
    }
    put(trees.parent, { 'e/added': 'by the parent', 'b.txt': 'by the parent' })
    const { conflicts } = await trees.merge()
    expect(conflicts).toEqual(['b.txt', 'e'])
    expect(read(trees.parent, 'd')).toBe('a file now')
    expect(read(trees.parent, 'a.txt/in')).toBe('a directory now')
    expect(read(trees.parent, 'e/added')).toBe('by the parent')
    expect(read(trees.parent, 'b.txt')).toBe('by the parent')
  })

  it('never follows a link of either side, and names what cannot be brought over [A.07 S1.08]', async () => {
    using trees = new Trees(base)
    using outside = temporaryFolder()
    put(outside.path, { secret: 'outside' })
    // The parent's directory is a link by now: what goes into it must not land outside.
    rmSync(join(trees.parent, 'd'), { recursive: true })
    symlinkSync(outside.path, join(trees.parent, 'd'))
    put(trees.child, { 'd/x': 'child', 'd/fresh': 'child' })
    execFileSync('mkfifo', [join(trees.child, 'pipe')])
    const { conflicts, leftOut, merged } = await trees.merge()
    expect(conflicts).toEqual(['d/fresh', 'd/x'])
    expect(leftOut).toEqual([{ path: 'pipe', reason: 'it is a device, FIFO or socket' }])
    expect(merged).toEqual([])
    expect(readdirSync(outside.path)).toEqual(['secret'])
  })

  it('looks at the top only where something was written, by the view’s upper directory [A.07]', async () => {
    using trees = new Trees(base)
    put(trees.child, { 'd/x': 'child', 'a.txt': 'not in the hint' })
    const upper = join(trees.child, '..', 'upper')
    mkdirSync(join(upper, 'd'), { recursive: true })
    const { merged } = await trees.merge(upper)
    expect(merged).toEqual(['d/x'])
  })

  it('gives, for any work of both, the child’s work where the parent did nothing, the parent’s elsewhere, and a conflict for what is lost [A.07]', async () => {
    await fc.assert(
      fc.asyncProperty(operations, operations, operations, async (first, childWork, parentWork) => {
        using trees = new Trees((root) => perform(root, first))
        perform(trees.child, childWork)
        perform(trees.parent, parentWork)
        const [start, child, parent] = [trees.start, trees.child, trees.parent].map((root) => snapshot(root))
        const { conflicts, leftOut } = await trees.merge()
        expect(leftOut).toEqual([])
        check({ start, child, parent, after: snapshot(trees.parent) } as Record<string, Snapshot>, conflicts)
      }),
      { numRuns: perTier(40, 150), seed: 5 },
    )
  })

  it('is the child’s tree when the parent did nothing, and the parent’s when the child did nothing, for any work [A.07]', async () => {
    const isDirectoryMode = (work: readonly Operation[]): boolean => work.length > 0
    await fc.assert(
      fc.asyncProperty(operations, operations.filter(isDirectoryMode), async (first, work) => {
        using trees = new Trees((root) => perform(root, first))
        perform(trees.child, work)
        const wanted = snapshot(trees.child)
        expect((await trees.merge()).conflicts).toEqual([])
        expect(snapshot(trees.parent)).toEqual(wanted)
        // And again, when there is nothing left to do.
        expect(await trees.merge()).toMatchObject({ merged: [], conflicts: [] })
      }),
      { numRuns: perTier(25, 80), seed: 6 },
    )
  })
})

/** What holds for every path that is a file or link on one side at least. */
function check(trees: Readonly<Record<string, Snapshot>>, conflicts: readonly string[]): void {
  const { start = {}, child = {}, parent = {}, after = {} } = trees
  const isIn = (path: string): boolean =>
    conflicts.some(
      (conflict) => path === conflict || path.startsWith(`${conflict}/`) || conflict.startsWith(`${path}/`),
    )
  for (const path of new Set([...Object.keys(child), ...Object.keys(parent), ...Object.keys(start)])) {
    const kinds = [start, child, parent].map((tree) => tree[path]?.split(' ', 1)[0])
    if (kinds.includes('directory') || isIn(path)) continue
    if (child[path] === start[path] || child[path] === parent[path])
      expect([path, after[path]]).toEqual([path, parent[path]])
    else if (parent[path] === start[path]) expect([path, after[path]]).toEqual([path, child[path]])
    else throw new Error(`${path} was changed by both, and no conflict was reported`)
  }
  // Nothing of the parent's is lost in a conflict.
  for (const path of conflicts) if (parent[path] !== undefined) expect(after[path]).toBe(parent[path])
}

describe('taking a child’s version', () => {
  it('makes the parent’s name what the child has: file, link, tree or nothing [A.07]', async () => {
    using trees = new Trees(base)
    put(trees.child, { 'a.txt': 'child', 'e/more/g': 'g' })
    chmodSync(join(trees.child, 'a.txt'), 0o700)
    rmSync(join(trees.child, 'b.txt'))
    rmSync(join(trees.child, 'd'), { recursive: true })
    symlinkSync('a.txt', join(trees.child, 'd'))
    put(trees.parent, { 'a.txt': 'parent', 'b.txt': 'parent' })
    renameSync(join(trees.parent, 'e'), join(trees.parent, 'e-was'))
    put(trees.parent, { e: 'a file' })
    using from = Directory.openTrusted(trees.child)
    using to = Directory.openTrusted(trees.parent)
    for (const name of ['a.txt', 'b.txt', 'd', 'e']) await takeName(from, to, name, owner)
    rmSync(join(trees.parent, 'e-was'), { recursive: true })
    expect(snapshot(trees.parent)).toEqual(snapshot(trees.child))
    expect(lstatSync(join(trees.parent, 'd')).isSymbolicLink()).toBe(true)
  })

  it('leaves the parent’s as it was where the child has a device, FIFO or socket, or a tree that cannot be copied [A.07]', async () => {
    using trees = new Trees(base)
    rmSync(join(trees.child, 'a.txt'))
    execFileSync('mkfifo', [join(trees.child, 'a.txt')])
    rmSync(join(trees.child, 'd'), { recursive: true })
    mkdirSync(join(trees.child, 'd', ...Array.from({ length: 300 }, () => 'n')), { recursive: true })
    const before = snapshot(trees.parent)
    using from = Directory.openTrusted(trees.child)
    using to = Directory.openTrusted(trees.parent)
    for (const name of ['a.txt', 'd']) await expect(takeName(from, to, name, owner)).rejects.toThrow()
    expect(snapshot(trees.parent)).toEqual(before)
  })

  it('takes a directory without the FIFOs and sockets in it [A.07]', async () => {
    using trees = new Trees(base)
    put(trees.child, { 'd/x': 'child' })
    execFileSync('mkfifo', [join(trees.child, 'd/pipe')])
    using from = Directory.openTrusted(trees.child)
    using to = Directory.openTrusted(trees.parent)
    await takeName(from, to, 'd', owner)
    rmSync(join(trees.child, 'd/pipe'))
    expect(snapshot(trees.parent)).toEqual(snapshot(trees.child))
  })
})

describe('a file that is copied for long', () => {
  it('is left at once when the merge is cancelled, and nothing of it stays [A.07]', async () => {
    using trees = new Trees(base)
    put(trees.child, { 'large.bin': '' })
    truncateSync(join(trees.child, 'large.bin'), 2 * 1024 ** 3)
    const before = snapshot(trees.parent)
    const ending = new AbortController()
    const merging = mergeView(trees, { owner, signal: ending.signal })
    setImmediate(() => ending.abort())
    expect((await merging).merged).toEqual([])
    expect(snapshot(trees.parent)).toEqual(before)
  })

  it('ends at the size that it had, though a program keeps writing to it [A.07]', async () => {
    using trees = new Trees(base)
    const piece = 'p'.repeat(300_000)
    put(trees.child, { log: piece })
    let appended = 0
    let isDone = false
    const append = (): void => {
      if (isDone || appended++ >= 200) return
      appendFileSync(join(trees.child, 'log'), piece)
      setImmediate(append)
    }
    append()
    expect((await trees.merge()).merged).toEqual(['log'])
    isDone = true
    expect(appended).toBeLessThan(100)
  })
})
