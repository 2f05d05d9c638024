// Where repositories lie: their history is judged wherever that is, and by the paths of their own working tree.
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { apply } from '../apply-support.ts'
import { type Files, GitBench, git, put, repository } from './git-bench.ts'

const base: Files = { 'a.txt': 'a\n', Makefile: 'all:\n' }
const evil: Files = { 'a.txt': 'agent\n', Makefile: 'all: ; touch PWNED\n' }

/** Commits these files alone: a repository may lie in its own working tree. */
function commit(root: string, files: Files): void {
  put(root, files)
  git(root, 'add', '--', ...Object.keys(files))
  git(root, 'commit', '-q', '-m', 'work')
}

/** Ways to have a repository in a directory that is not called `.git`; each gives the working tree that uses it. */
const layouts: Readonly<Record<string, { make: (root: string) => void; tree: string }>> = {
  'a .git file': {
    make: repository(base, (root) => {
      renameSync(path.join(root, '.git'), path.join(root, '.bare'))
      put(root, { '.git': 'gitdir: ./.bare\n' })
    }),
    tree: '',
  },
  'a link': {
    make: repository(base, (root) => {
      renameSync(path.join(root, '.git'), path.join(root, 'store'))
      symlinkSync('store', path.join(root, '.git'))
    }),
    tree: '',
  },
  'a working tree within': {
    make: (root) => {
      mkdirSync(path.join(root, 'work'))
      repository(base)(path.join(root, 'work'))
      renameSync(path.join(root, 'work/.git'), path.join(root, 'store.git'))
      put(root, { 'work/.git': 'gitdir: ../store.git\n' })
      git(path.join(root, 'work'), 'config', 'core.worktree', '../work')
    },
    tree: 'work',
  },
}

describe('a repository in a directory of another name', () => {
  it.each(Object.entries(layouts))(
    'reached by %s brings no flagged file by a checkout after "all" [W.03]',
    async (_, { make, tree }) => {
      using bench = new GitBench(make)
      using review = await bench.afterAgent((copy) => commit(path.join(copy, tree), evil))
      await apply(bench, review)
      const root = bench.file(tree === '' ? '.' : tree)
      git(root, 'checkout', '--', '.')
      git(root, 'reset', '-q', '--hard')
      expect(readFileSync(path.join(root, 'Makefile'), 'utf8')).toBe(base.Makefile)
      expect(review.history[0]).toMatchObject({ commits: 1, flaggedCount: 1, isExamined: true })
    },
  )

  it.each(Object.entries(layouts))(
    'reached by %s comes whole without flagged files [W.03]',
    async (_, layout) => {
      using bench = new GitBench(layout.make)
      using review = await bench.afterAgent((copy) =>
        commit(path.join(copy, layout.tree), { 'a.txt': 'b\n' }),
      )
      await apply(bench, review)
      const root = bench.file(layout.tree === '' ? '.' : layout.tree)
      expect(git(root, 'status', '--porcelain', '-uno')).toBe('')
      expect(git(root, 'log', '--oneline').trim().split('\n')).toHaveLength(2)
    },
  )
})

describe('a repository within the workspace', () => {
  it('is judged by the paths that its files have below the workspace [W.03]', async () => {
    using bench = new GitBench((root) => {
      mkdirSync(path.join(root, 'sub'))
      repository({ 'a.txt': 'a\n', 'tools/check': '#!/bin/sh\n' })(path.join(root, 'sub'))
      git(path.join(root, 'sub'), 'config', 'core.fsmonitor', 'tools/check')
    })
    using review = await bench.afterAgent((copy) =>
      commit(path.join(copy, 'sub'), { 'tools/check': '#!/bin/sh\ntouch PWNED\n' }),
    )
    expect(review.history[0]?.flagged.map((flagged) => flagged.path)).toEqual(['sub/tools/check'])
    await apply(bench, review)
    git(bench.file('sub'), '-c', 'core.fsmonitor=false', 'checkout', '--', '.')
    expect(readFileSync(bench.file('sub/tools/check'), 'utf8')).toBe('#!/bin/sh\n')
  })
})

/** A pack in which the Makefile of the host and that of the agent stand under one another's name. */
function putSwappedPack(copy: string): string {
  const folder = path.join(copy, '.git/objects/pack')
  writeFileSync(path.join(copy, 'evil'), evil.Makefile ?? '')
  const ids = [git(copy, 'rev-parse', 'HEAD:Makefile').trim(), git(copy, 'hash-object', '-w', 'evil').trim()]
  rmSync(path.join(copy, 'evil'))
  const options = { cwd: copy, input: `${ids.join('\n')}\n`, encoding: 'utf8' } as const
  const hash = execFileSync('git', ['pack-objects', '-q', path.join(folder, 'pack')], options).trim()
  const file = path.join(folder, `pack-${hash}.idx`)
  const idx = readFileSync(file)
  const offsets = 1032 + 2 * 24
  const [first, second] = [idx.readUInt32BE(offsets), idx.readUInt32BE(offsets + 4)]
  idx.writeUInt32BE(second, offsets)
  idx.writeUInt32BE(first, offsets + 4)
  chmodSync(file, 0o644)
  writeFileSync(file, idx)
  return `pack-${hash}`
}

describe('a pack with a false index, without a commit', () => {
  /** What keeps the repository's objects from being examined at all. */
  const spoilers: Readonly<Record<string, (folder: string, pack: string) => void>> = {
    'a damaged pack': (folder) => {
      for (const ending of ['pack', 'idx']) writeFileSync(path.join(folder, `pack-0.${ending}`), 'x')
    },
    'more packs than are looked through': (folder, pack) => {
      for (let copy = 0; copy < 201; copy++)
        for (const ending of ['pack', 'idx'])
          copyFileSync(path.join(folder, `${pack}.${ending}`), path.join(folder, `pack-${copy}.${ending}`))
    },
  }

  it.each(Object.entries(spoilers))('is not applied by "all" beside %s [W.03]', async (_, spoil) => {
    using bench = new GitBench(repository(base))
    using review = await bench.afterAgent((copy) =>
      spoil(path.join(copy, '.git/objects/pack'), putSwappedPack(copy)),
    )
    const packs = review.items.filter(({ path: at }) => /objects\/pack\//.test(at))
    expect(packs.length).toBeGreaterThan(2)
    expect(packs.filter(({ flagged }) => flagged === undefined)).toEqual([])
    await apply(bench, review)
    rmSync(bench.file('Makefile'))
    git(bench.root, 'checkout', '--', '.')
    expect(readFileSync(bench.file('Makefile'), 'utf8')).toBe(base.Makefile)
  })
})

it('objects are flagged in a directory whose name some file systems take for objects [W.03]', async () => {
  using bench = new GitBench(repository(base))
  using review = await bench.afterAgent((copy) => put(copy, { '.git/OBJECTS/ab/cd': 'x' }))
  expect(review.items.find(({ path: at }) => at === '.git/OBJECTS/ab/cd')?.flagged).toContain('git trusts')
})
