import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { deflateSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import type { Review } from '../../../workspace/review/review.ts'
import { apply, undo } from '../apply-support.ts'
import { snapshot } from '../support.ts'
import { commit, type Files, GitBench, git, put, repository } from './git-bench.ts'

const base: Files = { 'a.txt': 'a\n', Makefile: 'all:\n', 'src/x.ts': 'x\n' }
const evil: Files = {
  Makefile: 'all: ; touch PWNED\n',
  '.github/workflows/ci.yml': 'on: push\n',
  'a.txt': 'agent\n',
}

function flaggedOf(review: Review): Record<string, string> {
  return Object.fromEntries(
    review.items.flatMap(({ path, flagged }) => (flagged === undefined ? [] : [[path, flagged]])),
  )
}

/** The flags of files that say where history ends. */
function historyFlags(review: Review): string[] {
  return Object.keys(flaggedOf(review)).filter((path) =>
    /\.git\/(.*\/)?(HEAD|refs|logs|index|packed-refs)/.test(path),
  )
}

describe('commits and the index from the VM', () => {
  const ways: Record<string, (root: string) => void> = {
    'git checkout -- .': (root) => git(root, 'checkout', '--', '.'),
    'git restore .': (root) => git(root, 'restore', '.'),
    'git stash': (root) => git(root, 'stash'),
    'git stash pop': (root) => {
      put(root, { 'a.txt': 'mine\n' })
      git(root, 'stash')
      git(root, 'stash', 'pop')
    },
    'git reset --hard': (root) => git(root, 'reset', '-q', '--hard'),
    'git commit -am': (root) => git(root, 'commit', '-q', '--allow-empty', '-am', 'mine'),
    'git switch': (root) => {
      git(root, 'stash')
      git(root, 'switch', '-q', 'other')
      git(root, 'switch', '-q', 'main')
    },
  }
  const deeds: Record<string, (copy: string) => void> = {
    'a commit': (copy) => commit(copy, evil),
    'an amended commit': (copy) => commit(copy, evil, '--amend'),
    'staged files': (copy) => {
      put(copy, evil)
      git(copy, 'add', '-A')
    },
    'a commit that is packed': (copy) => {
      commit(copy, evil)
      git(copy, 'gc', '-q', '--prune=now')
    },
    'a commit of packed references': (copy) => {
      commit(copy, evil)
      git(copy, 'pack-refs', '--all')
    },
    'a stash': (copy) => {
      put(copy, evil)
      git(copy, 'add', '-A')
      git(copy, 'stash', '-q')
    },
    'a commit on another branch': (copy) => {
      git(copy, 'switch', '-q', 'other')
      commit(copy, evil)
      git(copy, 'switch', '-q', 'main')
    },
    'a merge': (copy) => {
      git(copy, 'switch', '-q', '-c', 'third')
      commit(copy, evil)
      git(copy, 'switch', '-q', 'main')
      commit(copy, { 'b.txt': 'b' })
      git(copy, 'merge', '-q', '-m', 'merge', 'third')
    },
    'a commit whose files are put back': (copy) => {
      commit(copy, evil)
      put(copy, { ...base, '.github': null })
    },
  }
  const start = repository(base, (root) => git(root, 'branch', 'other'))

  it.each(Object.keys(deeds))(
    '%s brings no left-out file to the host by any git command after "all" [W.03]',
    async (deed) => {
      using bench = new GitBench(start)
      using review = await bench.afterAgent(deeds[deed] as (copy: string) => void)
      await apply(bench, review)
      git(bench.root, 'fsck', '--strict')
      for (const [way, run] of Object.entries(ways)) {
        const root = path.join(bench.home, 'host')
        cpSync(bench.root, root, { recursive: true })
        run(root)
        expect([way, readFileSync(path.join(root, 'Makefile'), 'utf8')]).toEqual([way, base.Makefile])
        expect([way, existsSync(path.join(root, '.github'))]).toEqual([way, false])
        for (const branch of ['HEAD', 'main', 'other']) {
          expect(git(root, 'show', `${branch}:Makefile`)).toBe(base.Makefile)
          expect(git(root, 'ls-tree', '-r', '--name-only', branch)).not.toContain('ci.yml')
        }
        rmSync(root, { recursive: true })
      }
    },
  )

  it('say which branches move, how many commits come and which flagged paths they hold [W.03]', async () => {
    using bench = new GitBench(start)
    using review = await bench.afterAgent((copy) => {
      commit(copy, evil)
      commit(copy, { 'src/x.ts': 'y\n' })
    })
    const [report] = review.history
    expect(report).toMatchObject({ directory: '.git', commits: 2, flaggedCount: 2, isExamined: true })
    expect(report?.moved).toMatchObject([
      { name: 'refs/heads/main', from: git(bench.root, 'rev-parse', 'main').trim() },
    ])
    expect(report?.flagged.map(({ path }) => path).sort()).toEqual(['.github/workflows/ci.yml', 'Makefile'])
    expect(historyFlags(review)).toEqual([
      '.git/index',
      '.git/logs/HEAD',
      '.git/logs/refs/heads/main',
      '.git/refs/heads/main',
    ])
    expect(flaggedOf(review)['.git/refs/heads/main']).toContain('"Makefile"')
  })

  it('come under refs/caisson with "all" where they must be named, and undo takes them back [W.03 W.01]', async () => {
    using bench = new GitBench(start)
    const before = snapshot(bench.root)
    let tip = ''
    using review = await bench.afterAgent((copy) => {
      commit(copy, evil)
      git(copy, 'switch', '-q', '-c', 'feature/one')
      commit(copy, { 'src/x.ts': 'y\n' })
      tip = git(copy, 'rev-parse', 'HEAD').trim()
    })
    expect(review.aside).toEqual([
      {
        name: 'refs/heads/feature/one',
        aside: 'refs/caisson/run/heads/feature/one',
        path: '.git/refs/caisson/run/heads/feature/one',
      },
      {
        name: 'refs/heads/main',
        aside: 'refs/caisson/run/heads/main',
        path: '.git/refs/caisson/run/heads/main',
      },
    ])
    await apply(bench, review)
    expect(git(bench.root, 'rev-parse', 'refs/caisson/run/heads/feature/one').trim()).toBe(tip)
    expect(git(bench.root, 'show', 'refs/caisson/run/heads/main:Makefile')).toBe(evil.Makefile)
    expect(git(bench.root, 'branch', '--list', 'feature/one')).toBe('')
    git(bench.root, 'gc', '-q', '--prune=now')
    git(bench.root, 'fsck', '--strict')
    git(bench.root, 'restore', '.')
    expect(git(bench.root, 'status', '--porcelain')).toBe('')

    using second = new GitBench(start)
    using again = await second.afterAgent((copy) => commit(copy, evil))
    const untouched = snapshot(second.root)
    await apply(second, again)
    expect((await undo(second)).conflicts).toEqual([])
    expect(snapshot(second.root)).toEqual(untouched)
    expect(Object.keys(before).length).toBeGreaterThan(0)
  })

  it('that set aside by an earlier run are no history of the host [W.03]', async () => {
    using bench = new GitBench(start)
    let tip = ''
    {
      using review = await bench.afterAgent((copy) => {
        commit(copy, evil)
        tip = git(copy, 'rev-parse', 'HEAD').trim()
      })
      await apply(bench, review)
    }
    using next = new GitBench((root) => execFileSync('cp', ['-a', `${bench.root}/.`, root]))
    using review = await next.afterAgent((copy) => git(copy, 'update-ref', 'refs/heads/main', tip))
    expect(historyFlags(review)).toContain('.git/refs/heads/main')
  })

  it('without flagged changes come whole with "all" [W.03 W.01]', async () => {
    const harmless: Record<string, (copy: string) => void> = {
      commit: (copy) => commit(copy, { 'a.txt': 'agent\n', 'src/new.ts': 'n\n', 'src/x.ts': null }),
      gc: (copy) => {
        commit(copy, { 'a.txt': 'agent\n' })
        git(copy, '-c', 'gc.writeCommitGraph=false', 'gc', '-q', '--prune=now')
      },
      merge: (copy) => {
        git(copy, 'switch', '-q', '-c', 'third')
        commit(copy, { 'c.txt': 'c' })
        git(copy, 'switch', '-q', 'main')
        commit(copy, { 'b.txt': 'b' })
        git(copy, 'merge', '-q', '-m', 'merge', 'third')
        git(copy, 'tag', '-a', 'v1', '-m', 'v1')
      },
      reset: (copy) => git(copy, 'reset', '-q', '--hard', 'HEAD~1'),
      deleted: (copy) => git(copy, 'branch', '-D', 'other'),
    }
    for (const [name, deed] of Object.entries(harmless)) {
      using bench = new GitBench(
        repository(base, (root) => {
          git(root, 'branch', 'other')
          commit(root, { 'a.txt': 'second\n' })
        }),
      )
      let head = ''
      using review = await bench.afterAgent((copy) => {
        deed(copy)
        head = git(copy, 'rev-parse', 'HEAD').trim()
      })
      expect([name, flaggedOf(review)]).toEqual([name, {}])
      expect(review.aside).toEqual([])
      await apply(bench, review)
      expect(git(bench.root, 'rev-parse', 'HEAD').trim()).toBe(head)
      expect(git(bench.root, 'status', '--porcelain')).toBe('')
      git(bench.root, 'fsck', '--strict')
    }
  })

  it('that hold the flagged files as the person has them are not flagged [W.03]', async () => {
    const mine: Files = { Makefile: 'mine:\n', '.envrc': 'export A=1\n' }
    using bench = new GitBench(repository(base, (root) => put(root, { Makefile: mine.Makefile ?? '' })))
    using review = await bench.afterAgent((copy) => commit(copy, { 'a.txt': 'agent\n' }))
    expect(historyFlags(review)).toEqual([])
    using fresh = new GitBench((root) => put(root, { ...base, Makefile: mine.Makefile ?? '' }))
    using made = await fresh.afterAgent((copy) => repository({})(copy))
    expect(made.history[0]).toMatchObject({ commits: 1, flaggedCount: 0 })
  })

  it('are flagged where they touch what was left out of the VM [W.03 W.02]', async () => {
    using bench = new GitBench(repository({ ...base, '.env': 'KEY=1\n' }))
    using review = await bench.afterAgent((copy) => commit(copy, { 'a.txt': 'agent\n' }))
    expect(review.history[0]?.flagged).toEqual([
      { path: '.env', reason: 'it was left out of the VM (secret)' },
    ])
    await apply(bench, review)
    git(bench.root, 'reset', '-q', '--hard')
    expect(readFileSync(bench.file('.env'), 'utf8')).toBe('KEY=1\n')
  })

  it.each(['--assume-unchanged', '--skip-worktree'])(
    'are flagged where the index hides changes by %s [W.03]',
    async (option) => {
      using bench = new GitBench(start)
      using review = await bench.afterAgent((copy) => git(copy, 'update-index', option, 'src/x.ts'))
      expect(flaggedOf(review)).toEqual({
        '.git/index': 'the index hides changes of "src/x.ts" from git status',
      })
      using own = new GitBench(repository(base, (root) => git(root, 'update-index', option, 'src/x.ts')))
      using kept = await own.afterAgent((copy) => commit(copy, { 'a.txt': 'agent\n' }))
      expect(flaggedOf(kept)).toEqual({})
    },
  )

  it('are flagged where the index keeps trees that are not those of its entries [W.03]', async () => {
    using bench = new GitBench(start)
    using review = await bench.afterAgent((copy) => {
      commit(copy, evil)
      const tree = Buffer.from(git(copy, 'rev-parse', 'HEAD^{tree}').trim(), 'hex')
      git(copy, 'reset', '-q', '--hard', 'HEAD~1')
      const old = Buffer.from(git(copy, 'rev-parse', 'HEAD^{tree}').trim(), 'hex')
      git(copy, 'write-tree')
      const file = path.join(copy, '.git/index')
      const index = readFileSync(file)
      const at = index.indexOf(old)
      expect(at).toBeGreaterThan(0)
      tree.copy(index, at)
      writeFileSync(file, index)
      rmSync(path.join(copy, '.git/logs'), { recursive: true })
      rmSync(path.join(copy, '.git/ORIG_HEAD'))
    })
    expect(flaggedOf(review)['.git/index']).toContain('not those of its entries')
  })

  it('are flagged with references that stand in for objects, and caches that git believes [W.03]', async () => {
    using bench = new GitBench(repository(base, (root) => commit(root, { 'a.txt': 'two\n' })))
    using review = await bench.afterAgent((copy) => {
      git(copy, 'replace', 'HEAD', 'HEAD~1')
      git(copy, 'commit-graph', 'write', '--reachable')
      git(copy, 'repack', '-q')
      git(copy, 'multi-pack-index', 'write')
    })
    const flagged = flaggedOf(review)
    expect(Object.keys(flagged).find((at) => at.startsWith('.git/refs/replace/'))).toBeDefined()
    expect(flagged['.git/objects/info/commit-graph']).toContain('without looking')
  })

  it('are flagged where an object has another content than its name says, loose or packed [W.03]', async () => {
    using bench = new GitBench(start)
    const blob = git(bench.root, 'rev-parse', 'HEAD:Makefile').trim()
    const loose = `.git/objects/${blob.slice(0, 2)}/${blob.slice(2)}`
    const forged = deflateSync(Buffer.from('blob 5\0evil\n'))
    using review = await bench.afterAgent((copy) => {
      rmSync(path.join(copy, loose))
      writeFileSync(path.join(copy, loose), forged)
    })
    expect(flaggedOf(review)[loose]).toContain('another content')

    using second = new GitBench(start)
    using packed = await second.afterAgent((copy) => {
      git(copy, 'gc', '-q', '--prune=now')
      const other = git(copy, 'rev-parse', 'HEAD:a.txt').trim()
      const folder = path.join(copy, '.git/objects/pack')
      const file = execFileSync('sh', ['-c', `ls ${folder}/*.idx`], { encoding: 'utf8' }).trim()
      execFileSync('chmod', ['-R', 'u+w', folder])
      const idx = readFileSync(file)
      const [a, b] = [Buffer.from(blob, 'hex'), Buffer.from(other, 'hex')]
      const count = idx.readUInt32BE(8 + 255 * 4)
      const placeOf = (id: Buffer) => (idx.indexOf(id, 1032) - 1032) / 20
      const offsets = 1032 + count * 24
      const [x, y] = [idx.readUInt32BE(offsets + placeOf(a) * 4), idx.readUInt32BE(offsets + placeOf(b) * 4)]
      idx.writeUInt32BE(y, offsets + placeOf(a) * 4)
      idx.writeUInt32BE(x, offsets + placeOf(b) * 4)
      writeFileSync(file, idx)
    })
    const at = Object.keys(flaggedOf(packed)).filter((name) => /\.pack$/.test(name))
    expect(at).toHaveLength(1)
    expect(historyFlags(packed).length).toBeGreaterThan(0)
  })

  it('do not delete objects that the host still needs [W.03]', async () => {
    using bench = new GitBench(start)
    using review = await bench.afterAgent((copy) => {
      commit(copy, evil, '--amend')
      git(copy, 'reflog', 'expire', '--expire=now', '--all')
      git(copy, 'branch', '-D', 'other')
      git(copy, 'gc', '-q', '--prune=now')
    })
    await apply(bench, review)
    git(bench.root, 'fsck', '--strict')
    expect(git(bench.root, 'show', 'main:Makefile')).toBe(base.Makefile)
  })

  it('are flagged in submodules and in repositories within the workspace alike [W.03]', async () => {
    using bench = new GitBench((root) => {
      const library = path.join(root, '../library')
      mkdirSync(library)
      repository(base)(library)
      repository({ 'a.txt': 'a' })(root)
      git(root, '-c', 'protocol.file.allow=always', 'submodule', 'add', '-q', library, 'vendor/lib')
      git(root, 'commit', '-q', '-m', 'submodule')
      mkdirSync(path.join(root, 'inner'))
      repository(base)(path.join(root, 'inner'))
    })
    using review = await bench.afterAgent((copy) => {
      commit(path.join(copy, 'vendor/lib'), evil)
      commit(path.join(copy, 'inner'), evil)
    })
    const reports = Object.fromEntries(
      review.history.map((report) => [report.directory, report.flaggedCount]),
    )
    expect(reports).toEqual({ '.git/modules/vendor/lib': 2, 'inner/.git': 2 })
    await apply(bench, review)
    for (const name of ['vendor/lib', 'inner']) {
      git(bench.file(name), 'checkout', '--', '.')
      expect(readFileSync(bench.file(`${name}/Makefile`), 'utf8')).toBe(base.Makefile)
    }
    using quiet = new GitBench((root) => execFileSync('cp', ['-a', `${bench.root}/.`, root]))
    using none = await quiet.afterAgent((copy) =>
      commit(path.join(copy, 'vendor/lib'), { 'a.txt': 'agent\n' }),
    )
    expect(historyFlags(none)).toEqual([])
  })

  it('are undone after a git status has refreshed the index, and not after a git add [W.01]', async () => {
    for (const [command, isUndone] of [
      ['status', true],
      ['add', false],
    ] as const) {
      using bench = new GitBench(start)
      const before = snapshot(bench.root)
      using review = await bench.afterAgent((copy) => commit(copy, { 'a.txt': 'agent\n' }))
      await apply(bench, review)
      const index = readFileSync(bench.file('.git/index'))
      if (command === 'add') put(bench.root, { 'mine.txt': 'm\n' })
      git(bench.root, command, '.')
      expect(readFileSync(bench.file('.git/index')).equals(index)).toBe(false)
      const { conflicts } = await undo(bench)
      expect(conflicts.map(({ path: at }) => at)).toEqual(isUndone ? [] : ['.git/index'])
      if (isUndone) expect(snapshot(bench.root)).toEqual(before)
    }
  })

  it('have no index that was only refreshed, in the VM or on the host, and no conflict by it [W.01]', async () => {
    const refresh = (root: string) => {
      const later = new Date(Date.now() + 60_000)
      utimesSync(path.join(root, 'a.txt'), later, later)
      const index = readFileSync(path.join(root, '.git/index'))
      git(root, 'status')
      expect(readFileSync(path.join(root, '.git/index')).equals(index)).toBe(false)
    }
    using bench = new GitBench(start)
    using none = await bench.afterAgent(refresh)
    expect(none.items.map((item) => item.path)).toEqual([])
    using staged = await bench.afterAgent((copy) => {
      put(copy, { 'new.txt': 'n\n' })
      git(copy, 'add', 'new.txt')
    })
    const stateOf = (review: Review) => review.items.find((item) => item.path === '.git/index')?.state
    expect(stateOf(staged)).toEqual({ kind: 'clear' })
    refresh(bench.root)
    using again = await bench.again(staged)
    expect(stateOf(again)).toEqual({ kind: 'clear' })
    expect(await apply(bench, again)).toMatchObject({ conflicts: [], failed: [] })
    expect(git(bench.root, 'diff', '--cached', '--name-only')).toBe('new.txt\n')
    refresh(bench.root)
    using applied = await bench.again(staged)
    expect(stateOf(applied)).toEqual({ kind: 'applied' })
    put(bench.root, { 'mine.txt': 'm\n' })
    git(bench.root, 'add', 'mine.txt')
    using changed = await bench.again(staged)
    expect(stateOf(changed)).toMatchObject({ kind: 'conflict' })
  })

  it.each<[string, (copy: string, blob: string) => void]>([
    [
      'a packed reference that puts another file in the place of one',
      (copy, blob) => {
        const evilBlob = execFileSync('git', ['hash-object', '-w', '--stdin'], {
          cwd: copy,
          input: 'evil:\n',
        })
        writeFileSync(
          path.join(copy, '.git/packed-refs'),
          `${String(evilBlob).trim()} refs/replace/${blob}\n`,
        )
      },
    ],
    [
      'a HEAD that leads to commits that were set aside',
      (copy) => writeFileSync(path.join(copy, '.git/HEAD'), 'ref: refs/caisson/run/heads/main\n'),
    ],
    [
      'a branch that leads to commits that were set aside',
      (copy) => writeFileSync(path.join(copy, '.git/refs/heads/main'), 'ref: refs/caisson/run/heads/main\n'),
    ],
  ])('that are only named, by %s, are flagged [W.03]', async (_, deed) => {
    using first = new GitBench(start)
    using review = await first.afterAgent((copy) => commit(copy, evil))
    await apply(first, review)
    git(first.root, 'checkout', '--', '.')
    rmSync(first.file('b.txt'), { force: true })
    using bench = new GitBench((root) => execFileSync('cp', ['-a', `${first.root}/.`, root]))
    const blob = git(bench.root, 'rev-parse', 'HEAD:Makefile').trim()
    using next = await bench.afterAgent((copy) => deed(copy, blob))
    await apply(bench, next)
    expect(historyFlags(next)).toHaveLength(1)
    git(bench.root, 'reset', '-q', '--hard')
    expect(readFileSync(bench.file('Makefile'), 'utf8')).toBe(base.Makefile)
  })
})
