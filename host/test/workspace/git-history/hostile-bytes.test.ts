import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { deflateSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { NotExaminable } from '../../../workspace/git-history/budget.ts'
import { parseIndex } from '../../../workspace/git-history/index-file.ts'
import { applyDelta } from '../../../workspace/git-history/pack.ts'
import { commit, GitBench, git, repository } from './git-bench.ts'

/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** A few bytes changed, or the end cut off. */
function damaged(bytes: Buffer, random: () => number): Buffer {
  const result = Buffer.from(bytes)
  for (let count = 1 + Math.floor(random() * 4); count > 0; count--)
    result[Math.floor(random() * result.length)] = Math.floor(random() * 256)
  return random() < 0.2 ? result.subarray(0, Math.floor(random() * result.length)) : result
}

function isParsedOrRefused(work: () => unknown): boolean {
  try {
    work()
    return true
  } catch (thrown) {
    return thrown instanceof NotExaminable
  }
}

const many = Object.fromEntries(
  Array.from({ length: 40 }, (_, at) => [`d${at % 5}/f${at}.txt`, `text ${at}\n`.repeat(at)]),
)

describe('bytes of a hostile repository', () => {
  it.each(['2', '3', '4'])(
    'an index of version %s is read or refused, whatever is changed in it [T.02]',
    (version) => {
      using bench = new GitBench(
        repository(many, (root) => {
          git(root, 'update-index', '--index-version', version)
          if (version === '3') git(root, 'update-index', '--skip-worktree', 'd0/f0.txt')
        }),
      )
      const index = readFileSync(bench.file('.git/index'))
      expect(index.readUInt32BE(4)).toBe(Number(version))
      expect(parseIndex(index, 20).entries.size).toBe(40)
      const random = randomOf(7)
      for (let round = 0; round < 500; round++)
        expect(isParsedOrRefused(() => parseIndex(damaged(index, random), 20))).toBe(true)
    },
  )

  it('a delta is applied or refused, and makes no more than it says [T.02]', () => {
    const base = Buffer.from('0123456789'.repeat(10))
    const random = randomOf(3)
    for (let round = 0; round < 2_000; round++) {
      const delta = Buffer.from(
        Array.from({ length: 3 + Math.floor(random() * 20) }, () => Math.floor(random() * 256)),
      )
      delta[0] = base.length
      delta[1] = Math.floor(random() * 100)
      expect(isParsedOrRefused(() => expect(applyDelta(base, delta)).toHaveLength(delta[1] ?? 0))).toBe(true)
    }
  })

  it('a damaged file of git never passes for history that was examined [W.03]', async () => {
    using bench = new GitBench(repository(many))
    const random = randomOf(11)
    for (let round = 0; round < 25; round++) {
      const kind = ['pack', 'idx', 'index', 'loose'][round % 4] ?? 'pack'
      using review = await bench.afterAgent((copy) => {
        commit(copy, { 'new.txt': `${round}\n`, Makefile: 'evil:\n' })
        if (kind !== 'loose') git(copy, '-c', 'gc.writeCommitGraph=false', 'gc', '-q', '--prune=now')
        const list = execFileSync('find', [path.join(copy, '.git'), '-type', 'f'], {
          encoding: 'utf8',
        }).split('\n')
        const pattern = { pack: /\.pack$/, idx: /\.idx$/, index: /\.git\/index$/, loose: /objects\/../ }[kind]
        const files = list.filter((file) => pattern?.test(file) === true)
        const file = files[Math.floor(random() * files.length)] ?? ''
        execFileSync('chmod', ['u+w', file])
        writeFileSync(file, damaged(readFileSync(file), random))
      })
      expect(review.items.find((item) => item.path === '.git/index')?.flagged).toBeTypeOf('string')
      expect(review.items.find((item) => item.path.startsWith('.git/logs/HEAD'))?.flagged).toBeTypeOf(
        'string',
      )
    }
  })

  it('a small object that grows without end is refused [W.03]', async () => {
    using bench = new GitBench(repository({ 'a.txt': 'a' }))
    const bomb = deflateSync(Buffer.concat([Buffer.from('blob 90000000\0'), Buffer.alloc(90_000_000)]), {
      level: 9,
    })
    const name = `.git/objects/ab/${'c'.repeat(38)}`
    using review = await bench.afterAgent((copy) => {
      execFileSync('mkdir', ['-p', path.dirname(path.join(copy, name))])
      writeFileSync(path.join(copy, name), bomb)
    })
    expect(review.items.find((item) => item.path === name)?.flagged).toContain('too large')
    expect(readdirSync(bench.root)).toContain('a.txt')
  })

  it('a tree that holds itself many times over is refused, not walked [W.03]', async () => {
    using bench = new GitBench(repository({ 'a.txt': 'a' }))
    using review = await bench.afterAgent((copy) => {
      const hash = (input: string, ...options: string[]) =>
        execFileSync('git', options, { cwd: copy, input, encoding: 'utf8' }).trim()
      let entry = `100644 blob ${hash('x', 'hash-object', '-w', '--stdin')}`
      for (let depth = 0; depth < 12; depth++) {
        const lines = Array.from({ length: 12 }, (_, at) => `${entry}\tn${at}\n`).join('')
        entry = `040000 tree ${hash(lines, 'mktree')}`
      }
      const tree = entry.split(' ')[2] ?? ''
      const made = git(copy, 'commit-tree', '-m', 'bomb', '-p', 'HEAD', tree).trim()
      git(copy, 'update-ref', 'refs/heads/main', made)
    })
    const reference = review.items.find((item) => item.path === '.git/refs/heads/main')
    expect(reference?.flagged).toContain('could not be examined')
  })
})
