// What a person decides about the notes that a run proposed.
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { StoredNote } from '../../memory/note-storage.ts'
import { RunLock } from '../../workspace/run-lock.ts'
import { noteIdOf as idOf, proposed, proposingRunId as runId, runThatProposed } from '../support/proposals.ts'

describe('the notes that a run proposed', () => {
  it('are kept, changed, or dropped as a person says, once, and the journal says so [S0.13]', async () => {
    const { host, directory } = await runThatProposed([
      proposed(1, 'one'),
      proposed(2, 'two'),
      proposed(3, 'three'),
    ])
    expect(await host.notes.list()).toEqual([])
    const notes = await host.runNotes(runId)
    expect(notes.pending.map(({ note }) => note.text)).toEqual(['one', 'two', 'three'])
    const decisions = new Map([
      [idOf(1), { keep: true }],
      [idOf(2), { keep: true, text: 'two, in my words' }],
      [idOf(3), { keep: false }],
      ['mem-ffffffffffff', { keep: true }],
    ] as const)
    const outcome = { kept: [idOf(1), idOf(2)], dropped: [idOf(3)] }
    expect(await notes.decide(decisions, 'a test')).toEqual(outcome)
    expect(notes.pending).toEqual([])
    expect(await (await host.runNotes(runId)).decide(decisions, 'a test')).toEqual({ kept: [], dropped: [] })
    expect(
      (await host.notes.ofWorkspace(directory)).map(({ text, tags, runId: from }) => [text, tags, from]),
    ).toEqual([
      ['two, in my words', ['t'], runId],
      ['one', ['t'], runId],
    ])
    const journal = await host.runs.read(runId)
    expect(journal.flatMap(({ event }) => (event.type === 'notes-decide' ? [event] : []))).toEqual([
      { type: 'notes-decide', ...outcome, by: 'a test' },
    ])
    expect((await host.runs.list())[0]?.state.proposedNotes).toEqual([])
  })

  it('stand in the place of what they replace, over proposals too [S0.13]', async () => {
    const { host, directory } = await runThatProposed([
      proposed(2, 'second', idOf(1)),
      proposed(3, 'third', idOf(2)),
      proposed(4, 'fourth'),
      proposed(5, 'fifth', idOf(4)),
    ])
    const old: StoredNote = {
      kind: 'memory',
      noteId: idOf(1),
      workspace: directory,
      text: 'first',
      tags: [],
      at: 1,
    }
    const elsewhere: StoredNote = { ...old, workspace: '/elsewhere' }
    await host.notes.change(() => [old, elsewhere])
    const notes = await host.runNotes(runId)
    expect(notes.pending.map(({ note }) => note.text)).toEqual(['third', 'fifth'])
    await notes.decide(
      new Map(notes.pending.map(({ note }) => [note.noteId, { keep: true } as const])),
      'a test',
    )
    expect((await host.notes.ofWorkspace(directory)).map(({ text }) => text)).toEqual(['fifth', 'third'])
    expect(await host.notes.ofWorkspace('/elsewhere')).toEqual([elsewhere])
  })

  it('are one note where the decision was carried out but not journaled [S0.13]', async () => {
    const { host, directory } = await runThatProposed([proposed(1, 'one')])
    await host.notes.change(() => [
      { kind: 'memory', noteId: idOf(1), workspace: directory, text: 'one', tags: ['t'], at: 1, runId },
    ])
    const notes = await host.runNotes(runId)
    await notes.decide(new Map([[idOf(1), { keep: true } as const]]), 'a test')
    expect(await host.notes.ofWorkspace(directory)).toHaveLength(1)
  })

  it('of the same words as a note that a person has changed since leave that as it is [S0.13]', async () => {
    const { host, directory } = await runThatProposed([proposed(1, 'deploy on Fridays')])
    const changed: StoredNote = {
      kind: 'memory',
      noteId: idOf(1),
      workspace: directory,
      text: 'never deploy on Fridays',
      tags: [],
      at: 1,
    }
    await host.notes.change(() => [changed])
    await (await host.runNotes(runId)).decide(new Map([[idOf(1), { keep: true }]]), 'a test')
    expect(await host.notes.ofWorkspace(directory)).toEqual([changed])
  })

  it('wait where the notes cannot be written or a process works on the run [S0.13]', async () => {
    const { host } = await runThatProposed([proposed(1, 'one')])
    const keep = new Map([[idOf(1), { keep: true } as const]])
    const lock = await RunLock.take(host.folders.locks, runId)
    await expect((await host.runNotes(runId)).decide(keep, 'a test')).rejects.toThrow('in use')
    await lock[Symbol.asyncDispose]()
    await mkdir(path.dirname(host.notes.file), { recursive: true, mode: 0o700 })
    await writeFile(host.notes.file, '\n'.repeat(17 * 1024 * 1024), { mode: 0o600 })
    await expect((await host.runNotes(runId)).decide(keep, 'a test')).rejects.toThrow('larger than')
    expect((await host.runNotes(runId)).pending).toHaveLength(1)
  })

  it('of a proposal are kept under it with their author [S4.04]', async () => {
    const noteId = 'gov-000000000001'
    const note = {
      noteId,
      proposalId: 'PROP-1',
      text: 'fine',
      author: runId,
      at: 3,
      state: 'proposed',
    } as const
    const { host } = await runThatProposed([{ type: 'note-propose', agentPath: 'root/a', note }])
    const notes = await host.runNotes(runId)
    expect(notes.pending).toEqual([{ kind: 'governance', agentPath: 'root/a', note }])
    await notes.decide(new Map([[noteId, { keep: true } as const]]), 'a test')
    expect(await host.notes.ofProposal('PROP-1')).toMatchObject([{ text: 'fine', author: runId }])
  })
})
