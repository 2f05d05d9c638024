import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, rmSync } from 'node:fs'
import path from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { apply } from './apply-support.ts'
import { Bench, itemsOf, type Sketch, treeOf } from './support.ts'

/** What proves that a program of the configuration ran. */
const marker = path.join('/tmp', `caisson-ran-${process.pid}`)
afterAll(() => rmSync(marker, { force: true }))

const program = `touch ${marker}; false`
const runsProgram = `\tfsmonitor = "${program}"\n\tsshCommand = "${program}"\n\tpager = "${program}"\n`
const head = 'ref: refs/heads/main\n'
const remote =
  '[remote "origin"]\n\turl = ssh://127.0.0.1:1/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
const own = `[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n${runsProgram}${remote}`
const shared = `[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n${remote}`
const worktree = `[core]\n\tworktree = ..\n${runsProgram}`

/** Each splits a repository that runs a program over the files of one more way in which git finds such a one. */
const forms: Readonly<Record<string, Sketch>> = {
  'in one directory': {
    'docs/HEAD': head,
    'docs/objects/.keep': '',
    'docs/refs/.keep': '',
    'docs/config': own,
  },
  'with empty directories': {
    'docs/HEAD': head,
    'docs/objects': null,
    'docs/refs': null,
    'docs/config': own,
  },
  'with configuration of its own for the worktree': {
    'docs/HEAD': head,
    'docs/objects/.keep': '',
    'docs/refs/.keep': '',
    'docs/config': shared,
    'docs/config.worktree': worktree,
  },
  'with its shared part elsewhere': {
    'docs/HEAD': head,
    'docs/commondir': 'x\n',
    'docs/config.worktree': worktree,
    'docs/x/config': shared,
    'docs/x/objects/.keep': '',
    'docs/x/refs/.keep': '',
  },
  'by a .git file': {
    'docs/.git': 'gitdir: store\n',
    'docs/store/HEAD': head,
    'docs/store/objects/.keep': '',
    'docs/store/refs/.keep': '',
    'docs/store/config': own,
  },
  'by a .git link': {
    'docs/.git': '-> store',
    'docs/store/HEAD': head,
    'docs/store/objects/.keep': '',
    'docs/store/refs/.keep': '',
    'docs/store/config': own,
  },
}

/** Whether plain commands of git, given in the directory, run the program. */
function gitRuns(bench: Bench): boolean {
  rmSync(marker, { force: true })
  const env = { PATH: process.env.PATH, HOME: bench.home, GIT_CONFIG_NOSYSTEM: '1' }
  for (const args of [['status'], ['fetch', 'origin']]) {
    const cwd = bench.file('docs')
    if (!existsSync(cwd)) continue
    try {
      execFileSync('git', args, {
        cwd,
        env: { ...env, GIT_CEILING_DIRECTORIES: bench.home },
        stdio: 'ignore',
        timeout: 20_000,
      })
    } catch {
      // Not a repository, or the program said no: only the mark counts.
    }
  }
  return existsSync(marker)
}

function* splits(names: readonly string[]): Generator<ReadonlySet<string>> {
  for (let bits = 0; bits < 2 ** names.length; bits++)
    yield new Set(names.filter((_, at) => (bits >> at) % 2 === 1))
}

const only = (sketch: Sketch, names: (name: string) => boolean): Sketch =>
  Object.fromEntries(Object.entries(sketch).filter(([name]) => names(name)))

describe('a directory that git takes for a repository', () => {
  it.each(Object.entries(forms))(
    '%s, however its files are split between host and change set, runs nothing after "all" [W.03]',
    {
      timeout: 300_000,
    },
    async (_, form) => {
      const names = Object.keys(form)
      for (const there of splits(names)) {
        // What the host runs already is none of the change set's doing.
        if (there.size === names.length) continue
        const before = treeOf({ ...only(form, (name) => there.has(name)), 'docs/a': 'a' })
        using bench = new Bench(before)
        if (gitRuns(bench)) continue
        using review = await bench.review(before, treeOf({ ...form, 'docs/a': 'a', 'docs/b': 'b' }))
        const summary = await apply(bench, review)
        expect(summary.applied).toContain('docs/b')
        expect([[...there], gitRuns(bench)]).toEqual([[...there], false])
        using again = await bench.again(review)
        await apply(bench, again, { paths: again.items.map((item) => item.path) })
        expect([[...there], gitRuns(bench)]).toEqual([[...there], true])
      }
    },
  )

  it('is found in any spelling, and where a part of it was left out of the VM [W.03]', async () => {
    const upper = await itemsOf(
      { 'x/Objects/a': '1', 'x/REFS/a': '1' },
      { 'x/Objects/a': '1', 'x/REFS/a': '1', 'x/hEAD': head, 'x/Config': own },
    )
    expect([upper.get('x/hEAD')?.flagged, upper.get('x/Config')?.flagged]).toEqual([
      expect.stringContaining('repository'),
      expect.stringContaining('repository'),
    ])
    const ignored = { '.gitignore': 'HEAD\nobjects/\n', 'x/HEAD': head, 'x/objects/a': '1', 'x/b': 'b' }
    const items = await itemsOf(ignored, {
      '.gitignore': 'HEAD\nobjects/\n',
      'x/b': 'b',
      'x/config': own,
      'x/refs/r': '1',
    })
    expect(items.get('x/config')?.flagged).toContain('repository')
    expect(items.get('x/refs/r')?.flagged).toContain('repository')
  })

  it('is not any directory with a file called config, head or hooks [W.03]', async () => {
    const items = await itemsOf(
      {},
      { 'a/config': 'x', 'a/hooks/use.ts': 'x', 'b/head': 'x', 'c/objects/o': 'x', 'c/refs/r': 'x' },
    )
    for (const item of items.values()) expect([item.path, item.flagged]).toEqual([item.path, undefined])
  })

  it('is flagged where a .git file becomes a directory, or the reverse [W.03]', async () => {
    const file = await itemsOf(
      { 'w/.git': 'gitdir: ../x\n' },
      { 'w/.git/HEAD': head, 'w/.git/refs/heads/main': 'x' },
    )
    expect(file.get('w/.git')?.flagged).toContain('another kind of file')
    const directory = await itemsOf({ 'w/.git/HEAD': head }, { 'w/.git': 'gitdir: ../x\n' })
    expect(directory.get('w/.git')?.flagged).toContain('another kind of file')
  })

  it('is flagged in the configuration of a bare repository of the person, whose objects are not [W.03]', async () => {
    using bench = new Bench()
    mkdirSync(bench.file('store.git'))
    execFileSync('git', ['init', '-q', '--bare', bench.file('store.git')])
    const before = { 'store.git/HEAD': head, 'store.git/objects/info/x': '1', 'store.git/refs/heads/a': 'x' }
    const items = await itemsOf(before, {
      ...before,
      'store.git/config': own,
      'store.git/objects/info/packs': 'x',
      'store.git/refs/heads/main': 'x',
    })
    expect(items.get('store.git/config')?.flagged).toContain('git')
    expect(items.get('store.git/objects/info/packs')?.flagged).toBeUndefined()
    expect(items.get('store.git/refs/heads/main')?.flagged).toContain('could not be examined')
  })

  it('is not flagged in its history where other worktrees of the person share it [W.03]', async () => {
    const before = {
      ...{ '.bare/HEAD': head, '.bare/objects/info/x': '1', '.bare/refs/heads/a': 'x', '.bare/config': '' },
      ...{
        '.git': 'gitdir: ./.bare\n',
        '.bare/worktrees/w/commondir': '../..\n',
        '.bare/worktrees/w/HEAD': head,
      },
      'w/.git': 'gitdir: ../.bare/worktrees/w\n',
    }
    const after = {
      ...before,
      '.bare/config': own,
      '.bare/description': 'x',
      '.bare/worktrees/w/gitdir': 'x',
    }
    const items = await itemsOf(before, after)
    expect(items.get('.bare/config')?.flagged).toContain('git')
    expect(items.get('.bare/worktrees/w/gitdir')?.flagged).toContain('git')
    expect(items.get('.bare/description')?.flagged).toBeUndefined()
  })
})
