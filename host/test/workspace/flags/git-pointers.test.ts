import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseGitConfig } from '../../../workspace/flags/git-config.ts'
import { Bench, itemsOf, type Sketch, treeOf } from '../support.ts'

describe("what git's configuration on the host names", () => {
  /** Flags of changes to every path in `changed`, with this text in .git/config on the host. */
  async function flagsWith(config: string, changed: readonly string[], more: Sketch = {}) {
    const before = { '.git/HEAD': 'ref: refs/heads/main\n', '.git/config': config, ...more }
    const items = await itemsOf(before, {
      ...before,
      ...Object.fromEntries(changed.map((name) => [name, `changed ${name}`])),
    })
    return Object.fromEntries(changed.map((name) => [name, items.get(name)?.flagged]))
  }
  const named = (setting: string) => `git's configuration names it (${setting})`

  it('is flagged: hooks, included files, and the programs that it runs [W.03]', async () => {
    const flags = await flagsWith(
      `[core]
        hooksPath = tools/hooks ; where they lie
        fsmonitor = "tools/watch me.sh"
        sshCommand = env A=1 ./tools/ssh.sh -v
      [filter "lfs"]
        clean = tools/clean.sh %f
      [diff "img"] textconv = node tools/show.js
      [alias]
        st = status tools/status
        go = "!sh tools/go.sh && x"
      [include]
        path = ../shared.gitconfig
      [branch "tools/branch"]
        remote = origin`,
      [
        ...[
          'tools/hooks/pre-commit',
          'tools/hooks/sub/x',
          'tools/watch me.sh',
          'tools/ssh.sh',
          'tools/clean.sh',
        ],
        ...[
          'tools/show.js',
          'tools/go.sh',
          'shared.gitconfig',
          'tools/status',
          'tools/branch',
          'tools/other',
          'origin',
        ],
      ],
    )
    expect(flags).toEqual({
      'tools/hooks/pre-commit': named('core.hookspath'),
      'tools/hooks/sub/x': named('core.hookspath'),
      'tools/watch me.sh': named('core.fsmonitor'),
      'tools/ssh.sh': named('core.sshcommand'),
      'tools/clean.sh': named('filter.lfs.clean'),
      'tools/show.js': named('diff.img.textconv'),
      'tools/go.sh': named('alias.go'),
      'shared.gitconfig': named('include.path'),
      'tools/status': undefined,
      'tools/branch': undefined,
      'tools/other': undefined,
      origin: undefined,
    })
  })

  it('is flagged however a command finds it, and in settings of helpers that nobody listed [W.03]', async () => {
    const flags = await flagsWith(
      `[filter "top"]
        clean = "$(git rev-parse --show-toplevel)/tools/clean.sh"
        smudge = "$GIT_WORK_TREE/tools/smudge.sh" %f
      [filter "module"]
        process = python3 -m tools.filters.run --fast
      [alias]
        go = "!cd tools/inner && ./go.sh"
        all = "!make -C build-tools all"
      [sendemail]
        toCmd = scripts/maintainers.pl
      [gc]
        recentObjectsHook = scripts/recent
      [hook "later"]
        command = scripts/later
      [helper-of-tomorrow]
        runs = scripts/unheard-of`,
      [
        ...['tools/clean.sh', 'tools/smudge.sh', 'tools/filters/run.py', 'tools/__init__.py'],
        ...['tools/inner/go.sh', 'build-tools/Sources', 'scripts/maintainers.pl', 'scripts/recent'],
        ...['scripts/later', 'scripts/unheard-of', 'tools/filters/other.py', 'scripts/other', 'clean.sh'],
      ],
    )
    expect(flags).toEqual({
      'tools/clean.sh': named('filter.top.clean'),
      'tools/smudge.sh': named('filter.top.smudge'),
      'tools/filters/run.py': named('filter.module.process'),
      'tools/__init__.py': named('filter.module.process'),
      'tools/inner/go.sh': named('alias.go'),
      'build-tools/Sources': named('alias.all'),
      'scripts/maintainers.pl': named('sendemail.tocmd'),
      'scripts/recent': named('gc.recentobjectshook'),
      'scripts/later': named('hook.later.command'),
      'scripts/unheard-of': named('helper-of-tomorrow.runs'),
      'tools/filters/other.py': undefined,
      'scripts/other': undefined,
      'clean.sh': undefined,
    })
  })

  it('is flagged through included files, links, letter case, and absolute paths [W.03]', async () => {
    const more = {
      'shared.inc': '[core]\n\thooksPath = Husky/now\n[include]\npath = shared.inc',
      'Husky/now': '-> ../real hooks',
      'real hooks/commit-msg': 'x',
    }
    const flags = await flagsWith(
      '[includeIf "gitdir:/"]\npath = ../shared.inc',
      ['real hooks/commit-msg', 'husky/NOW/pre-push'],
      { ...more, 'husky/NOW/pre-push': 'other file where case counts' },
    )
    expect(flags).toEqual({
      'real hooks/commit-msg': named('core.hookspath'),
      'husky/NOW/pre-push': named('core.hookspath'),
    })
    using bench = new Bench(treeOf({ '.git/HEAD': 'ref: x', 'bin/x': '1' }))
    writeFileSync(bench.file('.git/config'), `[core]\n\tfsmonitor = ${bench.root}/bin/x`)
    using review = await bench.review(treeOf({ 'bin/x': '1' }), treeOf({ 'bin/x': '2' }))
    expect(review.items.map(({ path: name, flagged }) => [name, flagged])).toEqual([
      ['bin/x', named('core.fsmonitor')],
    ])
  })

  it('is flagged in worktrees, nested repositories, and directories of a repository above [W.03]', async () => {
    using bench = new Bench(
      treeOf({ 'h/pre-commit': '1', 'sub/.git/HEAD': 'r', 'sub/h/x': '1', 'wt/w/x': '1' }),
    )
    const aside = path.join(bench.home, 'aside')
    mkdirSync(path.join(aside, 'worktrees/w'), { recursive: true })
    writeFileSync(path.join(aside, 'worktrees/w/commondir'), '../..\n')
    writeFileSync(path.join(aside, 'config'), '[core]\n\thooksPath = w')
    writeFileSync(bench.file('wt/.git'), `gitdir: ${aside}/worktrees/w\n`)
    mkdirSync(path.join(bench.home, '.git'))
    writeFileSync(path.join(bench.home, '.git/config'), '[core]\n\thooksPath = project/h')
    writeFileSync(bench.file('sub/.git/config'), '[core]\n\thooksPath = h')
    const before = treeOf({ 'h/pre-commit': '1', 'sub/h/x': '1', 'wt/w/x': '1' })
    using review = await bench.review(
      before,
      treeOf({ 'h/pre-commit': '2', 'sub/h/x': '2', 'wt/w/x': '2', free: 'f' }),
    )
    const flags = Object.fromEntries(review.items.map((item) => [item.path, item.flagged]))
    const hooks = named('core.hookspath')
    expect(flags).toEqual({ 'h/pre-commit': hooks, 'sub/h/x': hooks, 'wt/w/x': hooks, free: undefined })
  })

  it('is flagged when a link takes the place of a folder on the way, or a folder of it goes [W.03]', async () => {
    const before = {
      '.git/HEAD': 'r',
      '.git/config': '[core]\nfsmonitor = a/b/watch\n',
      'a/b/watch': '1',
      'gone/x': '1',
    }
    const { 'a/b/watch': _, ...rest } = before
    const linked = await itemsOf(before, { ...rest, 'a/b': '-> ../gone' })
    expect(linked.get('a/b')?.flagged).toContain("on the way to what git's configuration names")
    const removed = await itemsOf(before, rest)
    expect(removed.get('a')?.flagged).toContain('"a/b/watch" in it')
  })

  it('is everything when the configuration is too large to look through [W.03]', async () => {
    const flags = await flagsWith(`[core]\n${'#'.repeat(5 * 1024 * 1024)}`, ['a.txt'])
    expect(flags['a.txt']).toContain('cannot be looked through')
  })

  it('is read as git reads it [W.03]', () => {
    const values = (text: string) => parseGitConfig(text).map(({ key, value }) => [key, value])
    expect(values('\ufeff[a "B\\"]"] x = 1 # c\r\n\ty="#2" ; d\n  flag\n[A.C]k=\\\n v\\\\w  \n')).toEqual([
      ['a.B"].x', '1'],
      ['a.B"].y', '#2'],
      ['a.B"].flag', 'true'],
      ['a.c.k', 'v\\w'],
    ])
    expect(values('[core\nx = y\n= z\n[ok]\n!bad\nk = " a " b "c')).toContainEqual(['ok.k', ' a  b c'])
  })

  it('is read to an end whatever the text [T.02]', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('[', ']', '"', '\\', '\n', '=', '#', 'a', ' ', '.', '\0', 'é')),
        (signs) => {
          for (const { key } of parseGitConfig(signs.join(''))) expect(key).toContain('.')
        },
      ),
      { seed: 11, numRuns: 2_000 },
    )
  })
})
