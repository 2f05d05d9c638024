// Changes of a run and text that an editor has not saved: what is applied, what is held, and that nothing is lost.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Buffers } from '../../acp/buffers.ts'
import { apply, reviewChanges } from '../../acp/review.ts'
import { beginChanging, placeOfRuns } from '../support/changed-run.ts'
import { treeOf } from '../workspace/support.ts'
import { openNearEditor, words } from './support.ts'

const runId = 'run-0123456789abcdef4567'

/** A run that had the unsaved text of `a.txt` and changed it and `b.txt`; the editor has these texts by now. */
async function changed(unsavedNow: Readonly<Record<string, string>>, capabilities = {}) {
  const { host, directory } = await placeOfRuns({ 'a.txt': 'saved\n', 'b.txt': 'b\n' })
  const base = 'typed\n'
  const end = await beginChanging(
    ...([host, directory, runId, undefined, new Map([['a.txt', Buffer.from(base)]])] as const),
  )
  const { state } = await end(
    treeOf({ 'a.txt': base, 'b.txt': 'b\n' }),
    treeOf({ 'a.txt': 'typed\nby the run\n', 'b.txt': 'b, by the run\n' }),
  )
  const place = (name: string) => path.join(directory, name)
  const unsaved = new Map(Object.entries(unsavedNow).map(([name, text]) => [place(name), text]))
  const near = openNearEditor({ unsaved, capabilities })
  const parts = { host, editor: near.editor, words, by: 'test', buffers: new Buffers(near.editor, directory) }
  const onDisk = () => ['a.txt', 'b.txt'].map((name) => readFileSync(place(name), 'utf8'))
  return { ...near, host, state, parts, unsaved, place, onDisk, changes: await host.changes(runId) }
}

describe('changes of a run that had unsaved text', () => {
  it('are shown against that text, and applied through the editor [H.03 V.05]', async () => {
    const run = await changed({ 'a.txt': 'typed\n' })
    await reviewChanges(run.parts, { runId, state: run.state, isAsked: true }, new AbortController().signal)
    expect(run.permissions[0]?.toolCall.content).toMatchObject([
      { type: 'diff', oldText: 'typed\n', newText: 'typed\nby the run\n' },
      { oldText: 'b\n', newText: 'b, by the run\n' },
    ])
    await apply(run.parts, run.changes, 'all')
    await expect.poll(run.said).toContain('Applied 2 changes')
    expect(run.onDisk()).toEqual(['typed\nby the run\n', 'b, by the run\n'])
    expect([run.written, [...run.unsaved]]).toEqual([[run.place('a.txt')], []])
    // What the person typed is on the disk again.
    await run.host.undo(runId, { by: 'test' })
    expect(run.onDisk()).toEqual(['typed\n', 'b\n'])
  })

  it('stay out where the editor has newer text, which is not touched; the others are applied [H.03 V.05]', async () => {
    for (const [name, text] of [
      ['a.txt', 'typed\nand more\n'],
      ['b.txt', 'b, typed later\n'],
    ] as const) {
      const run = await changed({ 'a.txt': 'typed\n', [name]: text })
      await apply(run.parts, run.changes, 'all')
      await expect.poll(run.said).toContain('your editor has newer text')
      expect(run.said()).toContain('Applied 1 change')
      expect(run.unsaved.get(run.place(name))).toBe(text)
      expect(run.onDisk()).toEqual(
        name === 'a.txt' ? ['saved\n', 'b, by the run\n'] : ['typed\nby the run\n', 'b\n'],
      )
    }
  })

  it('stay out where another program wrote the file meanwhile, whatever older text the editor has [H.03 V.05]', async () => {
    const run = await changed({ 'a.txt': 'typed\n', 'b.txt': 'b\n' })
    writeFileSync(run.place('a.txt'), 'pulled\n')
    writeFileSync(run.place('b.txt'), 'b, pulled\n')
    await apply(run.parts, run.changes, 'all')
    expect(run.onDisk()).toEqual(['pulled\n', 'b, pulled\n'])
    expect(run.written).toEqual([])
    await expect.poll(run.said).toContain('changed on the host since the run began')
  })

  it('wait for the person to save where the editor writes no files [H.03 V.05]', async () => {
    const run = await changed({ 'a.txt': 'typed\n' }, { fs: { readTextFile: true } })
    await apply(run.parts, run.changes, 'all')
    await expect.poll(run.said).toContain('save the file, then apply again')
    expect([run.written, run.onDisk()]).toEqual([[], ['saved\n', 'b, by the run\n']])
    writeFileSync(run.place('a.txt'), 'typed\n')
    run.unsaved.clear()
    await apply(run.parts, run.changes, 'all')
    expect(run.onDisk()).toEqual(['typed\nby the run\n', 'b, by the run\n'])
  })

  it('are in the editor too where it still shows the text from before [H.03 V.05]', async () => {
    const run = await changed({})
    const stale = { 'b.txt': 'b\n' }
    writeFileSync(run.place('a.txt'), 'typed\n')
    run.unsaved.set(run.place('b.txt'), stale['b.txt'])
    await apply(run.parts, run.changes, 'all')
    expect([run.written, [...run.unsaved]]).toEqual([[run.place('b.txt')], []])
    expect(run.onDisk()).toEqual(['typed\nby the run\n', 'b, by the run\n'])
  })
})
