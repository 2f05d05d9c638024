import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { describe, expect, it } from 'vitest'
import { diffItem } from '../../workspace/diff.ts'
import { changesPackageScripts, flagOf, leadsOutside } from '../../workspace/flagged.ts'
import type { ReviewItem } from '../../workspace/review.ts'
import { selectChanges } from '../../workspace/selection.ts'
import { Bench, type Sketch, treeOf } from './support.ts'

async function itemsOf(before: Sketch, after: Sketch, meddle: (bench: Bench) => void = () => {}) {
  using bench = new Bench(treeOf(before))
  using review = await (async () => {
    const made = await bench.review(treeOf(before), treeOf(after))
    made[Symbol.dispose]()
    meddle(bench)
    return bench.again(made)
  })()
  return new Map(review.items.map((item) => [item.path, item]))
}

const standingOf = (items: Map<string, ReviewItem>, path: string) => {
  const standing = items.get(path)?.standing
  return standing?.kind === 'conflict' ? standing.reason : standing?.kind
}

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
    expect(diffs.get('a.txt')).toEqual({
      kind: 'text',
      added: 1,
      removed: 1,
      text: '--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\r\n-two\r\n+2\r\n',
    })
    expect(diffs.get('bin')).toEqual({ kind: 'none', why: 'binary (2 bytes)' })
    expect(diffs.get('big')).toEqual({ kind: 'none', why: 'too large to show (600000 bytes)' })
    expect(diffs.get('caf\udce9')).toEqual({ kind: 'none', why: 'not UTF-8 text (1 bytes)' })
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

describe('flagged paths', () => {
  const exists = () => false
  it.each([
    '.git/config',
    '.git/hooks/pre-commit',
    '.GIT/Config',
    '.g\u200cit/config',
    'sub/.git/hooks/x',
    '.gitattributes',
    'vendor/.gitmodules',
    '.github/workflows/ci.yml',
    '.gitlab-ci.yml',
    '.vscode/tasks.json',
    '.idea/workspace.xml',
    '.bashrc',
    'home/.zshrc',
    '.envrc',
    'Makefile',
    'sub/makefile',
    'rules.mk',
    '.husky/pre-commit',
    '.pre-commit-config.yaml',
    'Dockerfile',
    'setup.py',
    '.npmrc',
    '.cargo/config.toml',
    '.git/modules/x/config',
    '.git/modules/x/hooks/y',
    '.mcp.json',
    '.git',
  ])('hold %j [W.03]', (path) => {
    expect(flagOf({ path, kind: 'file', exists })).toBeTypeOf('string')
  })

  it.each([
    'src/main.ts',
    '.git/index',
    '.git/objects/ab/cdef',
    '.git/refs/heads/main',
    'config',
    'docs/hooks.md',
    'report.md',
    '.gitignore',
    'package.json',
  ])('do not hold %j [W.03]', (path) => {
    expect(flagOf({ path, kind: 'file', exists })).toBeUndefined()
  })

  it.each(['\uff0fx', '\u2025/x', '\u2024/x', '\u200b', 'a/\u2025/\uff0f'])(
    'do not stop a review over the name %j, which folds to no plain path [W.03]',
    (path) => {
      expect(flagOf({ path, kind: 'file', exists: () => false })).toBeUndefined()
    },
  )

  it('include links that climb behind a name, for that name may be a link itself [S1.08 W.03]', () => {
    const link = (target: string) => flagOf({ path: 'a', kind: 'link', target, exists: () => false })
    // With a link `d -> .` this is ../.ssh, whatever its text says.
    expect(link('d/../.ssh')).toContain('leads out')
    expect(link('d/d/../x')).toContain('leads out')
    expect(link('./d/x')).toBeUndefined()
    expect(flagOf({ path: 'x/y/a', kind: 'link', target: '../../b', exists: () => false })).toBeUndefined()
    expect(flagOf({ path: 'gradle', kind: 'link', target: 'b', exists: () => false })).toContain('folder')
  })

  it("include all in git's directory but history, submodules and worktrees too [W.03]", () => {
    const isFlagged = (path: string) => flagOf({ path, kind: 'file', exists: () => false }) !== undefined
    const sha = 'ab/'.padEnd(41, '0')
    const settings = ['rebase-merge/git-rebase-todo', 'modules/a/commondir', 'modules/a/info/attributes']
    const more = [
      'modules/a/refs/heads/config',
      'worktrees/w/config.worktree',
      'remotes/origin',
      'new-in-git',
    ]
    for (const path of [...settings, ...more])
      expect([path, isFlagged(`x/.git/${path}`)]).toEqual([path, true])
    const history = ['HEAD', 'index', 'refs/heads/config', 'logs/HEAD', 'COMMIT_EDITMSG', 'packed-refs']
    const below = [
      `objects/${sha}`,
      'objects/pack/pack-1.pack',
      'modules/a/b/HEAD',
      `modules/a/objects/${sha}`,
    ]
    for (const path of [...history, ...below])
      expect([path, isFlagged(`.git/${path}`)]).toEqual([path, false])
  })

  it('include a package.json that takes a dependency from elsewhere than the registry [W.03]', () => {
    const text = (value: object) => JSON.stringify(value)
    const plain = text({ dependencies: { a: '^1.0.0' } })
    expect(changesPackageScripts(plain, text({ dependencies: { a: '^1.0.0', b: '^2.0.0' } }))).toBe(false)
    for (const from of ['file:./evil', 'git+https://x.test/y', 'owner/repo', 'https://x.test/a.tgz'])
      expect(changesPackageScripts(plain, text({ dependencies: { a: from } }))).toBe(true)
    expect(changesPackageScripts(plain, text({ overrides: { a: '2.0.0' } }))).toBe(true)
  })

  it('hold links that lead out, and links in the place of hidden configuration [W.03]', () => {
    const link = (path: string, target: string) => flagOf({ path, kind: 'link', target, exists })
    expect(link('a/b', '../c')).toBeUndefined()
    expect(link('a/b', '../../c')).toContain('leads out')
    expect(link('a', '/etc/passwd')).toContain('leads out')
    expect(link('.github', 'evil')).toBeTypeOf('string')
    expect(leadsOutside('a/b', 'x/../../../y')).toBe(true)
  })

  it('hold the configuration of a directory that git would take for a repository [W.03]', () => {
    expect(
      flagOf({ path: 'x/config', kind: 'file', exists: (path) => ['x/HEAD', 'x/objects'].includes(path) }),
    ).toContain('git')
    expect(
      flagOf({ path: 'x/hooks/post-checkout', kind: 'file', exists: (path) => path === 'x/HEAD' }),
    ).toContain('git')
  })

  it('hold package.json only when what it runs changes [W.03]', async () => {
    const manifest = (scripts: object, version: string) => JSON.stringify({ version, scripts })
    const before = {
      'package.json': manifest({ test: 'a' }, '1'),
      'sub/package.json': manifest({ test: 'a' }, '1'),
    }
    const items = await itemsOf(before, {
      'package.json': manifest({ test: 'a' }, '2'),
      'sub/package.json': manifest({ test: 'evil' }, '1'),
      'new/package.json': '{}',
      'bad/package.json': '{',
    })
    expect(items.get('package.json')?.flagged).toBeUndefined()
    expect(items.get('new/package.json')?.flagged).toBeUndefined()
    expect(items.get('sub/package.json')?.flagged).toContain('scripts')
    expect(items.get('bad/package.json')?.flagged).toContain('scripts')
  })

  it('are left out of "all" and taken when named, with the directories they need [W.03]', async () => {
    const before = treeOf({ 'a.txt': 'a' })
    using bench = new Bench(before)
    mkdirSync(bench.file('z'))
    using review = await bench.review(
      before,
      treeOf({ 'a.txt': 'b', '.github/workflows/ci.yml': 'x', 'n/m/f': 'f', 'n/Makefile': 'all:' }),
    )
    const paths = (choice: ReturnType<typeof selectChanges>) => choice.chosen.map(({ path }) => path)
    const all = selectChanges(review, 'all')
    expect(paths(all)).toEqual(['a.txt', 'n', 'n/m', 'n/m/f'])
    expect(all.leftOut.map(({ path }) => path).sort()).toEqual([
      '.github',
      '.github/workflows',
      '.github/workflows/ci.yml',
      'n/Makefile',
    ])
    const named = selectChanges(review, { paths: ['./.github/workflows/ci.yml', 'n/m/', 'ghost'] })
    expect(paths(named)).toEqual([
      '.github',
      '.github/workflows',
      '.github/workflows/ci.yml',
      'n',
      'n/m',
      'n/m/f',
    ])
    expect(named.unknown).toEqual(['ghost'])
    expect(paths(selectChanges(review, { paths: ['n'] }))).toEqual(['n', 'n/m', 'n/m/f'])
    // Chosen one by one: a folder does not bring what was left unchosen in it.
    expect(paths(selectChanges(review, { paths: ['n', 'n/m'], exact: true }))).toEqual(['n', 'n/m'])
    expect(paths(selectChanges(review, { paths: ['n/m/f'], exact: true }))).toEqual(['n', 'n/m', 'n/m/f'])
  })

  it('leave no empty directories behind when they stay away, but those that the agent left empty [W.02, W.03]', async () => {
    const before = treeOf({ 'a.txt': 'a', swap: 'a file' })
    using bench = new Bench(before)
    using review = await bench.review(
      before,
      treeOf({
        'a.txt': 'a',
        '.git/hooks/x': '1',
        'swap/Makefile': 'all:',
        'deep/er/.envrc': 'x',
        'deep/empty': null,
        bare: null,
      }),
    )
    const paths = (selection: Parameters<typeof selectChanges>[1]) =>
      selectChanges(review, selection).chosen.map(({ path }) => path)
    expect(paths('all')).toEqual(['bare', 'deep', 'deep/empty'])
    expect(paths({ paths: ['.git'] })).toEqual(['.git'])
    expect(paths({ paths: ['deep/er/.envrc'] })).toEqual(['deep', 'deep/er', 'deep/er/.envrc'])
  })
})
