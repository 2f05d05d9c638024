// Applying parts of a file: any of its hunks, in any order, against the host's file of now.
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { diffItem } from '../../../workspace/review/diff.ts'
import { chooseHunks, hunksOf } from '../../../workspace/review/hunks.ts'
import type { Review } from '../../../workspace/review/review.ts'
import { apply, undo } from '../apply-support.ts'
import { Bench, treeOf } from '../support.ts'

const file = 'a.txt'
const numbers = Array.from({ length: 40 }, (_, at) => `line ${at + 1}`)
const textOf = (lines: readonly string[]) => lines.map((line) => `${line}\n`).join('')
const old = textOf(numbers)
/** Three hunks: a changed line, two new ones, a removed one. */
const made = textOf(
  numbers.flatMap((line, at) =>
    at === 2 ? ['line three'] : at === 19 ? [line, 'new', 'newer'] : at === 36 ? [] : [line],
  ),
)
const replaced = (...at: readonly [number, string][]) => {
  const lines: string[][] = numbers.map((line) => [line])
  for (const [index, text] of at) lines[index] = text === '' ? [] : text.split('|')
  return textOf(lines.flat())
}

const benchOf = async (before: string | Buffer, after: string | Buffer) => {
  const bench = new Bench(treeOf({ [file]: before }))
  return { bench, review: await bench.review(treeOf({ [file]: before }), treeOf({ [file]: after })) }
}
const content = (bench: Bench) => readFileSync(bench.file(file), 'utf8')

function idsOf(review: Review): string[] {
  const [item] = review.items
  const diff = item === undefined ? undefined : diffItem(review, item)
  return diff?.kind === 'text' ? hunksOf(diff.patch).map(({ id }) => id) : []
}

const applyHunks = async (bench: Bench, review: Review, hunks: readonly (number | string)[]) =>
  await apply(bench, review, { paths: [], hunks: { [file]: hunks } })

describe('hunks of a file', () => {
  it('are applied by number and by ID; the others stay as they were, and undo restores the file [W.01 W.02]', async () => {
    const { bench, review } = await benchOf(old, made)
    using _ = bench
    using first = review
    const ids = idsOf(first)
    expect(ids).toHaveLength(3)
    const summary = await applyHunks(bench, first, [2])
    expect(summary).toMatchObject({
      applied: [file],
      parts: [{ path: file, hunks: 1, of: 3 }],
      conflicts: [],
    })
    expect(content(bench)).toBe(replaced([19, 'line 20|new|newer']))
    using second = await bench.again(first)
    expect(idsOf(second)).toEqual([ids[0], ids[2]])
    expect(await applyHunks(bench, second, [ids[2] ?? ''])).toMatchObject({ parts: [{ hunks: 1, of: 2 }] })
    expect(content(bench)).toBe(replaced([19, 'line 20|new|newer'], [36, '']))
    using third = await bench.again(second)
    expect(await applyHunks(bench, third, [1])).toMatchObject({ applied: [file], parts: [] })
    expect(content(bench)).toBe(made)
    await undo(bench)
    expect(content(bench)).toBe(old)
  })

  it('are refused when the diff does not have them now: a number too high, one that is applied, any of a binary file [W.01]', async () => {
    const { bench, review } = await benchOf(old, made)
    using _ = bench
    using first = review
    const [id = ''] = idsOf(first)
    expect(chooseHunks(first, { [file]: [4] }).problems).toEqual([
      '"a.txt" has no hunk 4 now; it has 3 hunks',
    ])
    await applyHunks(bench, first, [id])
    using second = await bench.again(first)
    expect(chooseHunks(second, { [file]: [id] }).problems).toEqual([
      `"a.txt" has no hunk "${id}" now; it has 2 hunks`,
    ])
    const binary = await benchOf(Buffer.from([0, 1]), Buffer.from([0, 2]))
    using __ = binary.bench
    using third = binary.review
    expect(chooseHunks(third, { [file]: [1] }).problems).toEqual(['"a.txt" has no hunks: binary (2 bytes)'])
  })

  it('leave a file alone that was edited, before or after the diff was read [W.01]', async () => {
    const { bench, review } = await benchOf(old, made)
    using _ = bench
    using first = review
    const { parts } = chooseHunks(first, { [file]: [1] })
    expect(parts.size).toBe(1)
    await applyHunks(bench, first, [1])
    const mine = `${content(bench)}mine\n`
    writeFileSync(bench.file(file), mine)
    using second = await bench.again(first)
    const summary = await applyHunks(bench, second, [1])
    expect(summary.conflicts).toMatchObject([{ path: file }])
    expect(content(bench)).toBe(mine)
  })

  it('that were chosen before another apply are not put into its result [W.01]', async () => {
    const { bench, review } = await benchOf(old, made)
    using _ = bench
    using first = review
    const { parts } = chooseHunks(first, { [file]: [1] })
    await applyHunks(bench, first, [2])
    const before = content(bench)
    using second = await bench.again(first)
    const selection = { paths: [file] }
    const summary = await apply(bench, second, selection, undefined, parts)
    expect(summary.conflicts).toMatchObject([{ path: file }])
    expect(content(bench)).toBe(before)
  })

  it('keep the mode of the file; all of them bring that of the run [W.01]', async () => {
    const before = treeOf({ [file]: { kind: 'file', mode: 0o600, content: old } })
    const after = treeOf({ [file]: { kind: 'file', mode: 0o755, content: made } })
    using bench = new Bench(before)
    using review = await bench.review(before, after)
    await applyHunks(bench, review, [1, 3])
    expect(statSync(bench.file(file)).mode & 0o777).toBe(0o600)
    using second = await bench.again(review)
    await applyHunks(bench, second, [1])
    expect(statSync(bench.file(file)).mode & 0o777).toBe(0o755)
    chmodSync(bench.file(file), 0o755)
  })

  const line = fc.constantFrom('a', 'b', 'c', '', '}', '\r', '@@ -1 +1 @@', '--- a', '\\ No newline')
  const text = fc
    .tuple(fc.array(line, { maxLength: 60 }), fc.boolean())
    .map(([lines, isEnded]) => lines.join('\n') + (isEnded ? '\n' : ''))

  it('make the file of the run one after the other in any order, and undo restores the first one [W.01 W.02]', async () => {
    await fc.assert(
      fc.asyncProperty(text, text, fc.infiniteStream(fc.nat()), async (before, after, draw) => {
        const { bench, review } = await benchOf(before, after)
        using _ = bench
        let current = review
        let left = idsOf(current).length
        while (left > 0) {
          const at = (draw.next().value ?? 0) % left
          const summary = await applyHunks(bench, current, [at + 1])
          expect(summary).toMatchObject({ applied: [file], conflicts: [], failed: [] })
          const next = await bench.again(current)
          current[Symbol.dispose]()
          current = next
          const now = idsOf(current).length
          expect(now).toBe(left - 1)
          left = now
        }
        current[Symbol.dispose]()
        expect(content(bench)).toBe(after)
        if (before !== after) await undo(bench)
        expect(content(bench)).toBe(before)
      }),
      { numRuns: 100 },
    )
  })
})
