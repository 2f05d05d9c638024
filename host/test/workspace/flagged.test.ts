import { mkdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { enter, flagByPath, judge, nowhere } from '../../workspace/flags/flag-rules.ts'
import { foldFileName } from '../../workspace/flags/folded-path.ts'
import { leadsOutside } from '../../workspace/flags/link-view.ts'
import { packageReason } from '../../workspace/flags/package-files.ts'
import { selectChanges } from '../../workspace/review/selection.ts'
import { Bench, itemsOf, treeOf } from './support.ts'

/** The flag of a new path: text is a file, `-> x` a link. */
async function flagOf(path: string, content = 'x'): Promise<string | undefined> {
  return (await itemsOf({}, { [path]: content })).get(path)?.flagged
}

/** The flag of a path's place alone: what git's history says is judged by itself. */
function flagOfPlace(path: string): string | undefined {
  const tracks = path.split('/').reduce((above, name) => enter(above, foldFileName(name)), nowhere)
  return judge(tracks, 'file')?.reason
}

describe('flagged paths', () => {
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
  ])('hold %j [W.03]', async (path) => {
    expect(await flagOf(path)).toBeTypeOf('string')
  })

  it.each(['src/main.ts', 'config', 'docs/hooks.md', 'report.md', '.gitignore', 'package.json'])(
    'do not hold %j [W.03]',
    async (path) => {
      expect(await flagOf(path, path === 'package.json' ? '{}' : 'x')).toBeUndefined()
    },
  )

  it.each(['\uff0fx', '\u2025/x', '\u2024/x', '\u200b', 'a/\u2025/\uff0f'])(
    'do not stop a review over the name %j, which folds to no plain path [T.02]',
    async (path) => {
      expect(await flagOf(path)).toBeUndefined()
    },
  )

  it('include links that climb behind a name, for that name may be a link itself [W.03]', async () => {
    const link = (target: string) => flagOf('a', `-> ${target}`)
    // With a link `d -> .` this is ../.ssh, whatever its text says.
    expect(await link('d/../.ssh')).toContain('leads out')
    expect(await link('d/d/../x')).toContain('leads out')
    expect(await link('./d/x')).toBeUndefined()
    expect(await flagOf('x/y/a', '-> ../../b')).toBeUndefined()
    expect(await flagOf('gradle', '-> b')).toContain('folder')
  })

  it("include all in git's directory but history, submodules and worktrees too [W.03]", () => {
    const isFlagged = (path: string) => flagOfPlace(path) !== undefined
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

  it("hold all below a .git in git's own directory, whatever its name [W.03]", () => {
    for (const path of ['.git/modules/.git/modules/a/HEAD', '.git/refs/.git/refs/heads/x'])
      expect(flagOfPlace(path), path).toContain('where git puts none')
    expect(flagOfPlace('.git/modules/sub/modules/.git2/HEAD')).toBeUndefined()
  })

  it('are found as fast in paths of many repositories as in others [T.02 W.03]', () => {
    const costOf = (path: string): number => {
      const start = process.cpuUsage()
      for (let round = 0; round < 20; round++) flagByPath(path)
      return process.cpuUsage(start).user
    }
    const filled = (head: string, each: string) => `${(head + each.repeat(2_000)).slice(0, 4_000)}/x_head`
    const names = filled('', 'abc/')
    costOf(names)
    const plain = costOf(names)
    for (const path of [
      filled('.git/modules/'.repeat(80), 'a/'),
      filled('.git/modules/', 'refs/'),
      filled('.git/modules/', 'a_'),
      filled('.github/workflows/'.repeat(80), 'a/'),
    ])
      expect(costOf(path) / plain, path.slice(0, 60)).toBeLessThan(30)
  })

  it('include a package.json that takes a dependency from elsewhere than the registry [W.03]', () => {
    const text = (value: object) => JSON.stringify(value)
    const plain = text({ dependencies: { a: '^1.0.0' } })
    expect(packageReason(plain, text({ dependencies: { a: '^1.0.0', b: '^2.0.0' } }))).toBeUndefined()
    for (const from of ['file:./evil', 'git+https://x.test/y', 'owner/repo', 'https://x.test/a.tgz'])
      expect(packageReason(plain, text({ dependencies: { a: from } }))).toContain('dependencies')
    expect(packageReason(plain, text({ overrides: { a: '2.0.0' } }))).toContain('overrides')
  })

  it('hold links that lead out, and links in the place of hidden configuration [W.03]', async () => {
    const link = (path: string, target: string) => flagOf(path, `-> ${target}`)
    expect(await link('a/b', '../c')).toBeUndefined()
    expect(await link('a/b', '../../c')).toContain('leads out')
    expect(await link('a', '/etc/passwd')).toContain('leads out')
    expect(await link('.github', 'evil')).toBeTypeOf('string')
    expect(leadsOutside('a/b', 'x/../../../y')).toBe(true)
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
