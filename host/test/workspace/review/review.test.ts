import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { ChangedPath } from '#specs/protocol/change.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { diffItem, outlineChanges } from '../../../workspace/review/diff.ts'
import type { ReviewItem } from '../../../workspace/review/review.ts'
import { Bench, changesBetween, itemsOf, treeOf, unwrap } from '../support.ts'

const standingOf = (items: Map<string, ReviewItem>, path: string) => {
  const standing = items.get(path)?.state
  return standing?.kind === 'conflict' ? standing.reason : standing?.kind
}

describe('the outline of a change set', () => {
  it('has the kind, the counted lines and the flag of each path, and no lines of a conflict [W.01 S1.10]', async () => {
    const before = treeOf({ 'a.txt': 'one\ntwo\n', 'gone.txt': '1\n2\n3\n', 'both.txt': 'x\n' })
    using bench = new Bench(before)
    const { manifest } = await bench.takeIn()
    const after = treeOf({
      'a.txt': 'one\n2\nthree\n',
      'both.txt': 'run\n',
      'pic.bin': Buffer.from([1, 0, 2]),
      '.git/hooks/post-checkout': '#!/bin/sh\n',
    })
    const changes = unwrap(await bench.receive(manifest, changesBetween(before, after)))
    writeFileSync(bench.file('both.txt'), 'host\n')
    const { paths, flagged } = unwrap(await outlineChanges(manifest, changes))
    expect(ChangedPath.array().parse(paths)).toEqual(paths)
    const byPath = Object.fromEntries(paths.map(({ path, ...rest }) => [path, rest]))
    expect(byPath).toMatchObject({
      'a.txt': { kind: 'modified', added: 2, removed: 1 },
      'both.txt': { kind: 'modified' },
      'gone.txt': { kind: 'deleted', added: 0, removed: 3 },
      'pic.bin': { kind: 'added' },
    })
    for (const path of ['both.txt', 'pic.bin']) expect(byPath[path]).not.toHaveProperty('added')
    expect(flagged.length).toBeGreaterThan(0)
    expect(paths.filter(({ flags }) => flags !== undefined).map(({ path }) => path)).toEqual(flagged)
  })
})

describe('a review', () => {
  it('says of each change what it does, with sizes, modes, targets and what a deletion takes [W.01]', async () => {
    const items = await itemsOf(
      { 'a.txt': 'one', 'd/x': '1', 'd/e/y': '2', l: '-> a.txt', 'run.sh': 's', swap: 'file' },
      {
        'a.txt': 'three',
        l: '-> d',
        'run.sh': { kind: 'file', mode: 0o755, content: 's' },
        'swap/in': 'z',
        'pic.bin': Buffer.from([1, 0, 2]),
      },
    )
    expect(items.get('a.txt')).toMatchObject({
      change: 'modified',
      before: { size: 3 },
      after: { size: 5 },
      binary: false,
    })
    expect(items.get('d')).toMatchObject({ change: 'deleted', before: { kind: 'directory' }, filesBelow: 2 })
    expect(items.get('l')).toMatchObject({
      change: 'modified',
      before: { target: 'a.txt' },
      after: { target: 'd' },
    })
    expect(items.get('run.sh')).toMatchObject({
      change: 'mode',
      before: { mode: 0o644 },
      after: { mode: 0o755 },
    })
    expect(items.get('swap')).toMatchObject({
      change: 'modified',
      before: { kind: 'file' },
      after: { kind: 'directory' },
    })
    expect(items.get('pic.bin')).toMatchObject({ change: 'added', binary: true })
  })

  it('pairs moved files by content, inside a moved directory too [W.02]', async () => {
    const items = await itemsOf(
      { 'old/a.txt': 'same', 'old/b.txt': 'same', 'x.txt': 'ex' },
      { 'new/b.txt': 'same', 'y.txt': 'ex' },
    )
    expect(items.get('new/b.txt')?.renamedFrom).toBe('old/b.txt')
    expect(items.get('y.txt')?.renamedFrom).toBe('x.txt')
    expect(items.get('x.txt')?.renamedTo).toBe('y.txt')
  })

  it('shows the change as a unified diff, line ends as they are, or says why not [W.01]', async () => {
    const before = treeOf({ 'a.txt': 'one\r\ntwo\r\n', bin: Buffer.from([0, 1]), big: 'b' })
    using bench = new Bench(before)
    using review = await bench.review(
      before,
      treeOf({
        'a.txt': 'one\r\n2\r\n',
        bin: Buffer.from([0, 2]),
        big: 'c'.repeat(600_000),
        'caf\udce9': Buffer.from([0xe9]),
      }),
    )
    const diffs = new Map(review.items.map((item) => [item.path, diffItem(review, item)]))
    expect(diffs.get('a.txt')).toMatchObject({
      kind: 'text',
      added: 1,
      removed: 1,
      text: '--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\r\n-two\r\n+2\r\n',
    })
    expect(diffs.get('bin')).toEqual({ kind: 'none', why: 'binary (2 bytes)' })
    expect(diffs.get('big')).toEqual({ kind: 'none', why: 'too large to show (600000 bytes)' })
    expect(diffs.get('caf\udce9')).toEqual({ kind: 'none', why: 'not UTF-8 text (1 byte)' })
  })

  it('gives diffs that git applies: a deleted file is gone, and an added one is there [W.01]', async () => {
    const before = treeOf({ 'a.txt': 'one\n', 'gone.txt': 'old\n' })
    using bench = new Bench(before)
    using review = await bench.review(before, treeOf({ 'a.txt': '1\n', 'new dir/b.txt': 'new\n' }))
    const diffs = review.items.map((item) => diffItem(review, item))
    const patch = diffs.map((diff) => (diff.kind === 'text' ? diff.text : '')).join('')
    const folder = await temporaryFolder('patched')
    writeFileSync(path.join(folder, 'a.txt'), 'one\n')
    writeFileSync(path.join(folder, 'gone.txt'), 'old\n')
    execFileSync('git', ['apply', '-'], { cwd: folder, input: patch })
    expect(readdirSync(folder)).toEqual(['a.txt', 'new dir'])
    expect(readFileSync(path.join(folder, 'a.txt'), 'utf8')).toBe('1\n')
    expect(readFileSync(path.join(folder, 'new dir/b.txt'), 'utf8')).toBe('new\n')
  })
})

describe('conflicts', () => {
  const before = { 'a.txt': 'a', 'b.txt': 'b', 'd/x': 'x', 'd/y': 'y' }

  it('are found where the host changed since, and nowhere else [W.01]', async () => {
    const items = await itemsOf(before, { 'a.txt': 'A', 'b.txt': 'B', 'new.txt': 'n' }, (bench) => {
      appendFileSync(bench.file('a.txt'), 'host')
      utimesSync(bench.file('b.txt'), 1, 1)
      writeFileSync(bench.file('new.txt'), 'host made it')
      writeFileSync(bench.file('d/z'), 'new in a directory that goes')
    })
    expect(standingOf(items, 'a.txt')).toContain('changed on the host')
    expect(standingOf(items, 'b.txt')).toBe('clear')
    expect(standingOf(items, 'new.txt')).toContain('made on the host')
    expect(standingOf(items, 'd')).toContain('"d/z" in it is new on the host')
  })

  it('are found when content changed although size and time of change did not [W.01]', async () => {
    const items = await itemsOf(before, { ...before, 'a.txt': 'A' }, (bench) => {
      writeFileSync(bench.file('a.txt'), 'h')
      utimesSync(bench.file('a.txt'), 5, 5)
    })
    expect(standingOf(items, 'a.txt')).toContain('changed on the host')
  })

  it('include paths that were left out of the VM but exist on the host [W.01]', async () => {
    const sketch = { '.gitignore': 'out/\n', '.env': 'KEY=1', 'out/x': '1', 'd/.env': 'KEY=2', 'd/a': 'a' }
    const items = await itemsOf(
      sketch,
      { '.gitignore': 'out/\n', '.env': 'KEY=guest', 'out/y': '2' },
      () => {},
    )
    expect(standingOf(items, '.env')).toContain('left out of the VM (secret)')
    expect(standingOf(items, 'out')).toContain('left out of the VM (ignored)')
    expect(standingOf(items, 'd')).toContain('"d/.env" in it was left out')
  })

  it('include a directory on the way that became a link on the host [W.02]', async () => {
    const items = await itemsOf(before, { ...before, 'd/x': 'X' }, (bench) => {
      renameSync(bench.file('d'), bench.file('moved'))
      symlinkSync('moved', bench.file('d'))
    })
    expect(standingOf(items, 'd/x')).toContain('symbolic link')
  })

  it('do not include what the host already has, nor a changed mode of what is deleted [W.01]', async () => {
    const items = await itemsOf(before, { 'a.txt': 'A', 'd/x': 'x', 'd/y': 'y' }, (bench) => {
      writeFileSync(bench.file('a.txt'), 'A')
      rmSync(bench.file('b.txt'))
    })
    expect(standingOf(items, 'a.txt')).toBe('applied')
    expect(standingOf(items, 'b.txt')).toBe('applied')
  })

  it('include a mode that was changed on both sides [W.02]', async () => {
    const executable = { kind: 'file', mode: 0o755, content: 'a' } as const
    const items = await itemsOf(before, { ...before, 'a.txt': executable }, (bench) =>
      chmodSync(bench.file('a.txt'), 0o600),
    )
    expect(standingOf(items, 'a.txt')).toContain('mode was changed')
  })
})
