import { describe, expect, it } from 'vitest'
import { colorsFor } from '../../../cli/render/colors.ts'
import { historyLines } from '../../../cli/render/review-lines.ts'
import { commit, GitBench, git, repository } from '../../workspace/git-history/git-bench.ts'

const colors = colorsFor({ isTTY: false }, {})

describe('what a review says of git history', () => {
  it('names branches, new commits, flagged paths and where the branches are kept [W.03 H.01]', async () => {
    using bench = new GitBench(repository({ 'a.txt': 'a' }))
    let tip = ''
    using review = await bench.afterAgent((copy) => {
      commit(copy, { Makefile: 'all:\n', '\u001b[2J/Makefile': 'all:\n' })
      tip = git(copy, 'rev-parse', 'HEAD').slice(0, 10)
    })
    const from = git(bench.root, 'rev-parse', 'HEAD').slice(0, 10)
    const lines = historyLines(review.history, review.aside, colors)
    expect(lines[0]).toBe('git history in .git: 1 new commit')
    expect(lines[1]).toBe(`  refs/heads/main: ${from} → ${tip}`)
    expect(lines.filter((line) => line.startsWith('  in commits or the index: '))).toHaveLength(2)
    expect(lines).toContain('  refs/heads/main is kept as refs/caisson/run/heads/main')
    expect(lines.join('')).not.toContain('\u001b')
  })

  it('is nothing where no branch moves', async () => {
    using bench = new GitBench(repository({ 'a.txt': 'a' }))
    using review = await bench.afterAgent((copy) => git(copy, 'hash-object', '-w', 'a.txt'))
    expect(historyLines(review.history, review.aside, colors)).toEqual([])
  })
})
