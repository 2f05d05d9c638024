import { execFileSync } from 'node:child_process'
import { chmodSync, lstatSync, mkdirSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Transform } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodeChanges } from '#specs/node/change-stream.ts'
import { lookMaxChars, lookMaxPaths, WorkspaceLook } from '#specs/protocol/change.ts'
import { limits } from '#specs/protocol/limits.ts'
import { collectChanges } from '../../workspace/collect.ts'
import { Looker } from '../../workspace/look.ts'
import { operations, perform, temporaryFolder } from '../support/trees.ts'

function makeTrees(root: string) {
  const trees = { merged: join(root, 'merged'), base: join(root, 'base'), upper: join(root, 'no-upper') }
  for (const path of [trees.merged, trees.base]) mkdirSync(path)
  return trees
}

const isDirectory = (path: string): boolean =>
  lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true

async function lookAt(looker: Looker): Promise<WorkspaceLook> {
  const looked = await looker.look()
  if (!looked.ok) throw new Error(looked.error.message)
  return WorkspaceLook.parse(looked.value)
}

/** Paths of the change set, without directories. */
async function collected(trees: ReturnType<typeof makeTrees>): Promise<string[]> {
  const stream = new Transform({ transform: (chunk: Buffer, _, done) => done(null, Buffer.from(chunk)) })
  void collectChanges(stream, trees).then(() => stream.end())
  const paths: string[] = []
  for await (const { entry } of decodeChanges(stream))
    if (entry.kind !== 'unsupported' && !isDirectory(join(trees.merged, entry.path))) paths.push(entry.path)
  return paths.sort()
}

describe('a look at the workspace', () => {
  it('names the files and links of the change set, for any work [S1.10 W.02]', async () => {
    await fc.assert(
      fc.asyncProperty(operations, operations, async (before, work) => {
        using folder = temporaryFolder()
        const trees = makeTrees(folder.path)
        perform(trees.base, before)
        execFileSync('cp', ['-a', `${trees.base}/.`, trees.merged])
        const looker = new Looker(trees)
        expect((await lookAt(looker)).paths).toEqual([])
        perform(trees.merged, work)
        for (const looked of [await lookAt(looker), await lookAt(looker)]) {
          expect(looked.isPartial).toBe(false)
          const paths = looked.paths.map(({ path }) => path)
          const files = paths.filter((path) => !isDirectory(join(trees.merged, path)))
          const changed = await collected(trees)
          // Contents of large files are not compared: one that was written as it was is named too.
          const isLarge = (path: string) => lstatSync(join(trees.merged, path)).size > 64 * 1024
          expect(files.filter((path) => changed.includes(path) || !isLarge(path)).sort()).toEqual(changed)
        }
      }),
      { numRuns: 40 },
    )
  })

  it('counts lines, and reads a file again only when it was written [S1.10]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    writeFileSync(join(trees.base, 'a.txt'), 'one\ntwo\n')
    writeFileSync(join(trees.base, 'gone.txt'), 'x\n')
    writeFileSync(join(trees.merged, 'a.txt'), 'one\n2\nthree\n')
    writeFileSync(join(trees.merged, 'bytes'), Buffer.from([0, 1]))
    writeFileSync(join(trees.merged, 'large'), 'x\n'.repeat(40_000))
    mkdirSync(join(trees.merged, 'src'))
    writeFileSync(join(trees.merged, 'src/new.ts'), 'a\nb')
    symlinkSync('a.txt', join(trees.merged, 'link'))
    const looker = new Looker(trees)
    const paths = [
      { path: 'a.txt', kind: 'modified', added: 2, removed: 1 },
      { path: 'bytes', kind: 'added' },
      { path: 'gone.txt', kind: 'deleted' },
      { path: 'large', kind: 'added' },
      { path: 'link', kind: 'added' },
      { path: 'src/new.ts', kind: 'added', added: 2, removed: 0 },
    ]
    expect(await lookAt(looker)).toEqual({ paths, isPartial: false })
    writeFileSync(join(trees.merged, 'a.txt'), 'one\ntwo\n')
    expect((await lookAt(looker)).paths).toEqual(paths.slice(1))
    chmodSync(join(trees.merged, 'a.txt'), 0o755)
    expect((await lookAt(looker)).paths[0]).toEqual({ path: 'a.txt', kind: 'modified' })
  })

  it('ends at its bounds, and says that there may be more [S1.10 S1.08]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    for (let at = 0; at < lookMaxPaths + 1; at += 1) writeFileSync(join(trees.merged, `f${at}`), 'x\n')
    const many = await lookAt(new Looker(trees))
    expect([many.paths.length, many.isPartial]).toEqual([lookMaxPaths, true])
    using other = temporaryFolder()
    const long = makeTrees(other.path)
    for (let at = 0; at < 150; at += 1) writeFileSync(join(long.merged, `${at}-${'n'.repeat(240)}`), '')
    const looked = await lookAt(new Looker(long))
    expect(looked.isPartial).toBe(true)
    expect(looked.paths.reduce((sum, { path }) => sum + path.length, 0)).toBeLessThanOrEqual(lookMaxChars)
  })

  it('of a hostile guest is refused: too many paths, too long or deep ones, other places, flags of its own [S1.08]', () => {
    const look = (...paths: object[]) => WorkspaceLook.safeParse({ paths, isPartial: false }).success
    const change = { path: 'a.txt', kind: 'added', added: 1 }
    expect(look(change)).toBe(true)
    expect(look(...Array.from({ length: lookMaxPaths + 1 }, () => change))).toBe(false)
    const long = { ...change, path: `${`${'a'.repeat(99)}/`.repeat(40)}b` }
    expect([look(long), look(...Array.from({ length: 9 }, () => long))]).toEqual([true, false])
    const deep = (count: number) => look({ ...change, path: `${'a/'.repeat(count)}b` })
    expect([deep(limits.changeMaxDepth), deep(limits.changeMaxDepth + 1)]).toEqual([true, false])
    for (const path of ['../a', '/etc/passwd', 'a/../../b', ''])
      expect([path, look({ ...change, path })]).toEqual([path, false])
    expect(look({ ...change, flags: ['none'] })).toBe(false)
    expect(look({ ...change, added: -1 })).toBe(false)
  })

  it('waits for no FIFO, leaves the times of files as they are, and fails without a workspace [S1.10]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    execFileSync('mkfifo', [join(trees.merged, 'pipe')])
    const file = join(trees.merged, 'a.txt')
    writeFileSync(file, 'x\n')
    utimesSync(file, 1, 1)
    const before = lstatSync(file, { bigint: true })
    expect((await lookAt(new Looker(trees))).paths.map(({ path }) => path)).toEqual(['a.txt'])
    const { mtimeNs, ctimeNs } = lstatSync(file, { bigint: true })
    expect([mtimeNs, ctimeNs]).toEqual([before.mtimeNs, before.ctimeNs])
    rmSync(trees.merged, { recursive: true })
    expect(await new Looker(trees).look()).toMatchObject({ ok: false })
  })
})
