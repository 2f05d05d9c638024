import { describe, expect, it } from 'vitest'
import { coloursFor } from '../../ui/colours.ts'
import { diffLines } from '../../ui/review-lines.ts'
import { diffItem } from '../../workspace/diff.ts'
import { Bench, type Sketch, treeOf } from '../workspace/support.ts'

const colours = coloursFor({ isTTY: false }, {})

/** What is shown of the one change from `before` to `after`. */
async function shown(before: Sketch, after: Sketch): Promise<string[]> {
  using bench = new Bench(treeOf(before))
  using review = await bench.review(treeOf(before), treeOf(after))
  return review.items.flatMap((item) => {
    const diff = diffItem(review, item)
    const change = diff.kind === 'text' ? { ...item, diff: diff.text } : { ...item, diff: null }
    return diffLines(change, colours, { maxLines: 40, maxChars: 160 }).lines
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
