import { createTwoFilesPatch } from 'diff'
import { expect, it } from 'vitest'
import { type Change, hunkAt, sidesOf } from '../changes/sides.ts'

const change = (kind: Change['change']): Change => ({
  ...{ path: 'a.txt', change: kind, state: { kind: 'clear' }, diff: null, hunks: [] },
})
const lines = (count: number, changed: readonly number[] = []) =>
  Array.from({ length: count }, (_, at) => `${changed.includes(at) ? 'new ' : ''}${at}\n`).join('')
const diffOf = (before: string, after: string) => createTwoFilesPatch('a/a.txt', 'b/a.txt', before, after)

it('gives both sides of a modified file, and of a new and a deleted one [H.03 W.01]', () => {
  for (const [kind, before, after] of [
    ['modified', lines(40), lines(40, [3, 30])],
    ['modified', 'no end', 'no end\nbut now\n'],
    ['modified', 'a\r\nb\r\n', 'a\r\nc\r\n'],
    ['modified', '', 'a\n'],
    ['added', '', 'a\nb'],
    ['deleted', 'a\nb', ''],
  ] as const) {
    const content = kind === 'modified' ? after : undefined
    expect(sidesOf(change(kind), diffOf(before, after), content)).toEqual({ before, after })
  }
})

it('gives no sides where the diff does not fit the content [H.03]', () => {
  const diff = diffOf(lines(9), lines(9, [4]))
  expect(sidesOf(change('modified'), diff, 'something else\n')).toBeUndefined()
  expect(sidesOf(change('modified'), diff, undefined)).toBeUndefined()
})

it('finds the hunk at a line, and none between two', () => {
  const hunk = (id: string, newStart: number, newLines: number) => ({
    ...{ id, oldStart: newStart, oldLines: 3, newStart, newLines },
  })
  const hunks = [hunk('a', 5, 3), hunk('b', 30, 0)]
  expect([4, 5, 7, 8, 29, 30, 31].map((line) => hunkAt(hunks, line)?.id)).toEqual([
    ...[undefined, 'a', 'a', undefined],
    ...[undefined, 'b', undefined],
  ])
})
