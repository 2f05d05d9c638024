import { rmSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { colorsFor } from '../../../cli/render/colors.ts'
import { changeLine, diffLines, foldObjects, objectsLine } from '../../../cli/render/review-lines.ts'
import { diffItem } from '../../../workspace/review/diff.ts'
import { hunksOf } from '../../../workspace/review/hunks.ts'
import type { Review } from '../../../workspace/review/review.ts'
import { commit, GitBench, git, put, repository } from '../../workspace/git-history/git-bench.ts'
import { Bench, type Sketch, treeOf } from '../../workspace/support.ts'

const colors = colorsFor({ isTTY: false }, {})

/** What is shown of the one change from `before` to `after`. */
async function shown(before: Sketch, after: Sketch): Promise<string[]> {
  using bench = new Bench(treeOf(before))
  using review = await bench.review(treeOf(before), treeOf(after))
  return review.items.flatMap((item) => {
    const diff = diffItem(review, item)
    const change =
      diff.kind === 'text'
        ? { ...item, diff: diff.text, hunks: hunksOf(diff.patch) }
        : { ...item, diff: null, hunks: [] }
    return diffLines(change, colors, { maxLines: 40, maxChars: 160 }).lines
  })
}

describe('the lines of a review', () => {
  it('hide no line of the content, though it looks like the head of a diff [W.01 H.01]', async () => {
    const lines = await shown({ 'a.sql': '-- drop nothing\nx\n' }, { 'a.sql': '++ drop all\nx\n' })
    expect(lines).toEqual([
      '  M a.sql (14 B)',
      '    │ @@ -1,2 +1,2 @@',
      '    │ --- drop nothing',
      '    │ +++ drop all',
      '    │  x',
    ])
  })

  it('are one line of names and all content behind the margin, whatever a file is called [W.01 H.01]', async () => {
    const lines = await shown({}, { 'two\n+lines\u001b[2J\u202e': 'hello\n' })
    expect(lines).toEqual(['  A two\\n+lines\\e[2J\\u{202e} (6 B)', '    │ @@ -0,0 +1,1 @@', '    │ +hello'])
  })

  it('mark an added or changed file that is executable [W.01]', async () => {
    const script = (content: string) => ({ kind: 'file', mode: 0o755, content }) as const
    const [added] = await shown({}, { 'run.sh': script('a') })
    const [changed] = await shown({ 'run.sh': script('a') }, { 'run.sh': script('bb') })
    expect([added, changed]).toEqual(['  A run.sh (executable, 1 B)', '  M run.sh (executable, 2 B)'])
  })
})

describe('what git keeps, in a review', () => {
  const list = ({ items, history }: Review) =>
    foldObjects(items, history).map((entry) =>
      'items' in entry ? objectsLine(entry, colors) : changeLine(entry, colors, history),
    )

  it('is for objects one line with their number and size, and the change set keeps each [W.01 W.03]', async () => {
    using bench = new GitBench(repository({ 'a.txt': 'a' }))
    using review = await bench.afterAgent((copy) => commit(copy, { 'b.txt': 'b', 'd/c.txt': 'c' }))
    const objects = review.items.filter(({ path }) => path.startsWith('.git/objects/'))
    const files = objects.filter(({ after }) => after?.kind === 'file')
    // Two contents, two directories, one commit.
    expect(files).toHaveLength(5)
    const bytes = files.reduce((sum, { after }) => sum + (after?.size ?? 0), 0)
    const lines = list(review)
    expect(lines.filter((line) => line.includes('object'))).toEqual([
      `  A 5 git objects in .git (${bytes} B)`,
    ])
    expect(lines).toHaveLength(review.items.length - objects.length + 1)
  })

  it('leaves the reason of a history that could not be examined to the history above [W.03]', async () => {
    using bench = new GitBench(repository({ 'a.txt': 'a' }))
    using review = await bench.afterAgent((copy) => {
      commit(copy, { 'b.txt': 'b' })
      const tree = git(copy, 'rev-parse', 'HEAD^{tree}').trim()
      rmSync(path.join(copy, '.git/objects', tree.slice(0, 2), tree.slice(2)))
    })
    const reason = review.history[0]?.reason ?? ''
    expect(reason).toContain('could not be examined')
    const lines = list(review)
    expect(lines.join('\n')).not.toContain(reason)
    expect(lines.filter((line) => /refs\/heads\/main|index/.test(line))).toEqual(
      Array(3).fill(expect.stringMatching(/flagged: see the git history above$/)),
    )
  })

  it('is listed file by file where a file is no object of its name [W.03]', async () => {
    using bench = new GitBench(repository({ 'a.txt': 'a' }))
    const named = `objects/${'ab'}/${'0'.repeat(38)}`
    using review = await bench.afterAgent((copy) => {
      put(copy, { [named]: 'x', '.git/objects/info/alternates': '/other\n', [`.git/${named}`]: 'x' })
    })
    const lines = list(review).join('\n')
    expect(lines).not.toContain('git object')
    for (const shown of [`A ${named} (`, 'A .git/objects/info/alternates (', `A .git/${named} (`])
      expect(lines).toContain(shown)
  })
})
