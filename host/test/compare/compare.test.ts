import { readFile } from 'node:fs/promises'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { editsOf, hunksOf, mergeEdits } from '../../compare/merge-lines.ts'
import { beginChanging, placeOfRuns } from '../support/changed-run.ts'
import { type Sketch, treeOf } from '../workspace/support.ts'

const idOf = (number: number) => `run-${String(number).padStart(20, '0')}`
const numbered = (changed: Readonly<Record<number, string>> = {}) =>
  Array.from({ length: 30 }, (_, index) => `${changed[index + 1] ?? `line ${index + 1}`}\n`).join('')
const before: Sketch = { 'long.txt': numbered(), 'old.txt': 'old\n', 'both.txt': 'a\n' }

/** Runs that began with the same files, and left these. */
async function runsThatLeft(...afters: Sketch[]) {
  const place = await placeOfRuns(before)
  const runIds: string[] = []
  for (const [index, after] of afters.entries()) {
    const runId = idOf(index + 1)
    const end = await beginChanging(place.host, place.directory, runId)
    await end(treeOf(before), treeOf(after))
    runIds.push(runId)
  }
  return { ...place, runIds }
}

describe('runs that began with the same files', () => {
  it('are compared path by path, by kind, lines and content [V.05]', async () => {
    const { host, runIds } = await runsThatLeft(
      { 'long.txt': numbered({ 2: 'two' }), 'old.txt': 'old\n', 'both.txt': 'b\n', 'new.txt': 'one\n' },
      { 'long.txt': numbered({ 2: 'two' }), 'both.txt': 'c\n', 'new.txt': 'one\n' },
    )
    const { runs, paths } = await host.compare(runIds)
    expect(runs.map(({ runId, outcome, entries }) => [runId, outcome, entries])).toEqual([
      [idOf(1), 'completed', 3],
      [idOf(2), 'completed', 4],
    ])
    expect(paths).toEqual([
      {
        path: 'both.txt',
        isSame: false,
        runs: [1, 2].map((content) => ({ change: 'modified', added: 1, removed: 1, content })),
      },
      {
        path: 'long.txt',
        isSame: true,
        runs: [1, 1].map((content) => ({ change: 'modified', added: 1, removed: 1, content })),
      },
      {
        path: 'new.txt',
        isSame: true,
        runs: [1, 1].map((content) => ({ change: 'added', added: 1, removed: 0, content })),
      },
      {
        path: 'old.txt',
        isSame: false,
        runs: [null, { change: 'deleted', added: 0, removed: 1, content: 1 }],
      },
    ])
  })

  it('are merged into a run that is applied and undone as any other: different paths, and different lines of one [V.05 W.01]', async () => {
    const { host, directory, runIds } = await runsThatLeft(
      { 'long.txt': numbered({ 2: 'two' }), 'both.txt': 'a\n', 'old.txt': 'old\n', 'new.txt': 'one\n' },
      { 'long.txt': numbered({ 20: 'twenty' }), 'both.txt': 'a\n' },
    )
    const merged = await host.merge(runIds)
    expect(merged).toMatchObject({ entries: 3, merged: ['long.txt'], conflicts: [] })
    const changes = await host.changes(merged.runId ?? '')
    expect(await changes.apply('all')).toMatchObject({ conflicts: [], failed: [] })
    const text = (name: string) => readFile(path.join(directory, name), 'utf8')
    expect(await text('long.txt')).toBe(numbered({ 2: 'two', 20: 'twenty' }))
    expect(await text('new.txt')).toBe('one\n')
    await expect(text('old.txt')).rejects.toThrow('ENOENT')
    await changes.undo()
    expect(await text('long.txt')).toBe(numbered())
    expect((await host.runs.read(merged.runId ?? ''))[0]?.event).toMatchObject({ mergedFrom: runIds })
    await expect(host.replay(merged.runId ?? '')).rejects.toMatchObject({
      message: expect.stringContaining('no agent made it'),
      remedy: `replay the runs that it merges: ${runIds.join(', ')}`,
    })
  })

  it('that differ in the same lines give conflicts and no run, until a person takes a change or hunks of it [V.05 W.01]', async () => {
    const { host, directory, runIds } = await runsThatLeft(
      { 'long.txt': numbered({ 2: 'two', 20: 'XX' }), 'both.txt': 'b\n', 'old.txt': 'old\n' },
      { 'long.txt': numbered({ 2: 'TWO', 28: 'end' }), 'both.txt': 'c\n' },
    )
    const refused = await host.merge(runIds)
    expect(refused.runId).toBeUndefined()
    expect(refused.conflicts).toEqual([
      { path: 'both.txt', reason: `the same lines differ in ${runIds.join(', ')}` },
      { path: 'long.txt', reason: `the same lines differ in ${runIds.join(', ')}` },
    ])
    expect(await host.runs.ids()).toHaveLength(2)
    const merged = await host.merge(runIds, [
      { runId: idOf(1), path: 'both.txt' },
      { runId: idOf(1), path: 'long.txt', hunks: [1] },
      { runId: idOf(2), path: 'long.txt', hunks: [2] },
    ])
    await (await host.changes(merged.runId ?? '')).apply('all')
    const text = (name: string) => readFile(path.join(directory, name), 'utf8')
    expect(await text('long.txt')).toBe(numbered({ 2: 'two', 28: 'end' }))
    expect(await text('both.txt')).toBe('b\n')
    await expect(host.merge(runIds, [{ runId: idOf(1), path: 'long.txt', hunks: [3] }])).rejects.toThrow(
      'has 2 hunks, and no hunk 3',
    )
    await expect(host.merge(runIds, [{ runId: idOf(1), path: 'none' }])).rejects.toThrow('no change of')
  })

  it('a path below one that another run removed or replaced is a conflict [V.05]', async () => {
    const { host, runIds } = await runsThatLeft(
      { 'both.txt': 'a\n', 'old.txt': 'old\n', 'long.txt': numbered(), 'dir/in.txt': 'in\n' },
      { 'both.txt': 'a\n', 'old.txt': 'old\n', 'long.txt': numbered(), dir: 'a file\n' },
    )
    const { runId, conflicts } = await host.merge(runIds)
    expect(runId).toBeUndefined()
    expect(conflicts.map(({ path: name }) => name)).toContain('dir')
  })
})

it('runs that did not begin with the same files, or brought nothing, are not compared [V.05]', async () => {
  const one = await runsThatLeft({ 'both.txt': 'b\n' })
  const [runId = ''] = one.runIds
  await expect(one.host.compare([runId, runId])).rejects.toMatchObject({ code: 'invalid_options' })
  await expect(one.host.compare([runId])).rejects.toMatchObject({ code: 'invalid_options' })
  await expect(one.host.merge([runId, 'run-none'])).rejects.toMatchObject({ code: 'run_not_found' })
})

describe('lines', () => {
  const Text = fc
    .array(fc.constantFrom('a\n', 'b\n', 'c\n', 'd'), { maxLength: 20 })
    .map((lines) => lines.join(''))

  it('of one change give the text after it, alone and twice [V.05]', () => {
    fc.assert(
      fc.property(Text, Text, (base, after) => {
        const edits = editsOf(base, after) ?? []
        expect(mergeEdits(base, [edits])).toBe(after)
        expect(mergeEdits(base, [edits, edits])).toBe(after)
        expect(hunksOf(edits).flat()).toEqual(edits)
      }),
    )
  })

  it('that two changes touch are never chosen by the machine, and the order of the changes means nothing [V.05]', () => {
    fc.assert(
      fc.property(Text, Text, Text, (base, one, other) => {
        const [a, b] = [editsOf(base, one) ?? [], editsOf(base, other) ?? []]
        expect(mergeEdits(base, [a, b])).toBe(mergeEdits(base, [b, a]))
      }),
    )
    const edits = (after: string) => editsOf('1\n2\n3\n', after) ?? []
    expect(mergeEdits('1\n2\n3\n', [edits('x\n2\n3\n'), edits('1\ny\n3\n')])).toBeUndefined()
    expect(mergeEdits('1\n2\n3\n', [edits('x\n2\n3\n'), edits('1\n2\nz\n')])).toBe('x\n2\nz\n')
  })
})
