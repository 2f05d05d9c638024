// The choice of what is applied.
import { expect, it } from 'vitest'
import { applyBody, type Change, extentOf, firstSelection, withFile, withHunk } from '../changes/selection.ts'

const hunk = (id: string) => ({ id, oldStart: 1, oldLines: 1, newStart: 1, newLines: 1 })
const change = (path: string, more: Partial<Change> = {}): Change => ({
  ...{ path, change: 'modified', state: { kind: 'clear' }, diff: '', hunks: [hunk('h1'), hunk('h2')] },
  ...more,
})

it('at first all is chosen that is neither flagged nor in conflict [W.01 W.03]', () => {
  const changes = [
    change('a'),
    change('b', { flagged: 'it runs' }),
    change('c', { state: { kind: 'conflict', reason: 'changed' } }),
  ]
  expect(applyBody(firstSelection(changes), changes)).toEqual({ select: { paths: ['a'] } })
})

it('hunks are chosen by ID, and all of them are the file [W.01]', () => {
  const file = change('a')
  const one = withHunk(new Map(), file, 'h2', true)
  expect([extentOf(one, file), applyBody(one, [file])]).toEqual([
    'some',
    { select: { hunks: { a: ['h2'] } } },
  ])
  const all = withHunk(one, file, 'h1', true)
  expect([extentOf(all, file), applyBody(all, [file])]).toEqual(['all', { select: { paths: ['a'] } }])
  expect(applyBody(withFile(all, file, false), [file])).toBeUndefined()
})

it('a hunk that is applied meanwhile is chosen no longer [W.01]', () => {
  const one = withHunk(new Map(), change('a'), 'h2', true)
  const rest = change('a', { hunks: [hunk('h1')] })
  expect([extentOf(one, rest), applyBody(one, [rest])]).toEqual(['none', undefined])
  expect(applyBody(withHunk(one, rest, 'h1', true), [rest])).toEqual({ select: { paths: ['a'] } })
})
