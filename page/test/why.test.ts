// Which origin belongs to a line of a diff.
import { expect, it } from 'vitest'
import { originOf } from '../changes/why.ts'

const call = (number: number) => ({ kind: 'call' as const, call: number })

it('a line of a diff has the origin of that line, a removed one that of the nearest with its text [W.09]', () => {
  const blame = {
    lines: [{ line: 1, text: 'a', origin: call(1) }],
    removed: [
      { line: 2, text: 'x', origin: call(2) },
      { line: 9, text: 'x', origin: call(3) },
    ],
  }
  expect(originOf(blame, { kind: 'added', number: 1, text: 'a' })).toEqual(call(1))
  expect(originOf(blame, { kind: 'added', number: 2, text: 'b' })).toBeUndefined()
  expect(originOf(blame, { kind: 'removed', number: 8, text: 'x' })).toEqual(call(3))
  expect(originOf(blame, { kind: 'removed', number: 1, text: 'mine' })).toBeUndefined()
  const deleted = { lines: [], removed: [], deletion: call(4) }
  expect(originOf(deleted, { kind: 'removed', number: 1, text: 'x' })).toEqual(call(4))
})
