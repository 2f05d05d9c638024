import { mkdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { changesPackageScripts, flagOf, leadsOutside } from '../../workspace/flagged.ts'
import { selectChanges } from '../../workspace/selection.ts'
import { Bench, itemsOf, treeOf } from './support.ts'

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
