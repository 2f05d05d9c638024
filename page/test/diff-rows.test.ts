// The rows of a unified diff.
import { expect, it } from 'vitest'
import { diffHunks, hasDiff } from '../changes/diff-rows.ts'

it('rows have the numbers of both sides, and names of files are no rows [W.01]', () => {
  const diff =
    '--- a.txt\n+++ a.txt\n@@ -3,3 +3,3 @@\n same\n-old\n+new\n same\n@@ -9 +9,2 @@\n-x\n+-- y\n+z\n\\ No newline at end of file\n'
  expect(diffHunks(diff)).toEqual([
    {
      header: '@@ -3,3 +3,3 @@',
      rows: [
        { kind: 'context', text: 'same', old: 3, new: 3 },
        { kind: 'removed', text: 'old', old: 4 },
        { kind: 'added', text: 'new', new: 4 },
        { kind: 'context', text: 'same', old: 5, new: 5 },
      ],
    },
    {
      header: '@@ -9 +9,2 @@',
      rows: [
        { kind: 'removed', text: 'x', old: 9 },
        { kind: 'added', text: '-- y', new: 9 },
        { kind: 'added', text: 'z', new: 10 },
        { kind: 'note', text: 'No newline at end of file' },
      ],
    },
  ])
  expect([hasDiff(diff), hasDiff('delete a.txt'), diffHunks('no diff')]).toEqual([true, false, []])
})
