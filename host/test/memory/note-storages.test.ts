// Storages of notes that an application brings, and the two that come with the library.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { createMemoryNotes, Host, type NoteStorage, SqliteNotes, type StoredNote } from '../../index.ts'
import { noteIdOf, proposed, proposingRunId, runThatProposed } from '../support/proposals.ts'

function note(number: number, text = `note ${number}`): StoredNote {
  const noteId = `mem-${number.toString(16).padStart(12, '0')}`
  return { kind: 'memory', noteId, workspace: '/w', text, tags: ['t'], at: number }
}
const proposal: StoredNote = {
  ...{ kind: 'governance', noteId: 'gov-000000000001', proposalId: 'PROP-1', text: 'fine' },
  ...{ author: 'person', at: 1 },
}

async function hostWith(notes: NoteStorage): Promise<Host> {
  return new Host({ notes, env: { CAISSON_HOME: await temporaryFolder('notes-home') } })
}

const sqlite = async () => await SqliteNotes.open(path.join(await temporaryFolder('notes'), 'notes.sqlite'))
/** As a database on a network answers. */
const slow = async (): Promise<NoteStorage> => {
  const notes = createMemoryNotes()
  const wait = () => new Promise((resolve) => setTimeout(resolve, 1))
  return {
    list: async () => {
      await wait()
      return structuredClone(await notes.list()) as StoredNote[]
    },
    change: async (make) => {
      await wait()
      await notes.change(make)
    },
  }
}

describe.each([
  ['in memory', async () => createMemoryNotes()],
  ['in SQLite', sqlite],
  ['of an application, asynchronous', slow],
])('notes %s', (_, open) => {
  it('are kept, changed and removed as in the file [S4.09]', async () => {
    const storage = await open()
    const { notes } = await hostWith(storage)
    expect(await notes.list()).toEqual([])
    await notes.change(() => [note(1), proposal, note(2)])
    expect(await notes.ofWorkspace('/w')).toEqual([note(2), note(1)])
    expect(await notes.ofProposal('PROP-1')).toEqual([proposal])
    await notes.change((all) => all.filter(({ noteId }) => noteId !== note(1).noteId))
    expect(await notes.list()).toEqual([proposal, note(2)])
    const refused = notes.change(() => {
      throw new RangeError('not so')
    })
    await expect(refused).rejects.toThrow(RangeError)
    await expect(notes.change(() => [{ ...note(1), text: '' }])).rejects.toThrow()
    const many = Array.from({ length: 501 }, (_, index) => note(index + 1))
    await expect(notes.change(() => many)).rejects.toMatchObject({ code: 'limit_reached' })
    expect(await notes.list()).toEqual([proposal, note(2)])
    expect(await notes.damaged()).toEqual([])
    if (storage instanceof SqliteNotes) storage.close()
  })
})

describe('a storage of an application', () => {
  it('gets what a person keeps of a run [S4.09 S0.13]', async () => {
    const { host } = await runThatProposed([proposed(1, 'one')])
    const notes = createMemoryNotes()
    const other = new Host({ notes, env: { CAISSON_HOME: host.folders.home } })
    const decisions = new Map([[noteIdOf(1), { keep: true }]] as const)
    await (await other.runNotes(proposingRunId)).decide(decisions, 'a test')
    expect((await notes.list()).map(({ text }) => text)).toEqual(['one'])
    expect(await host.notes.list()).toEqual([])
  })

  it('that fails or returns no notes gives an error with a code [S4.09 E.01]', async () => {
    const fails = await hostWith({
      list: () => Promise.reject(new Error('no connection')),
      change: () => Promise.reject(new Error('no connection')),
    })
    const words = { code: 'state_unavailable', message: expect.stringContaining('no connection') }
    await expect(fails.notes.list()).rejects.toMatchObject(words)
    await expect(fails.notes.change(() => [])).rejects.toMatchObject(words)
    const wrong = await hostWith({ list: () => [{ kind: 'memory' }] as never, change: () => undefined })
    await expect(wrong.notes.ofWorkspace('/w')).rejects.toMatchObject({ code: 'state_corrupted' })
    expect(() => new Host({ notes: { list: () => [] } as never })).toThrow(
      /notes: expected a storage of notes/,
    )
  })
})

describe('notes in SQLite', () => {
  it('outlive their process, and lose nothing to another one that writes [S4.09]', async () => {
    const file = path.join(await temporaryFolder('notes'), 'notes.sqlite')
    using here = await SqliteNotes.open(file)
    const notes = (await hostWith(here)).notes
    await notes.change(() => [note(1)])
    const code = `
      import { SqliteNotes } from ${JSON.stringify(path.join(import.meta.dirname, '../../memory/note-storages.ts'))}
      const notes = await SqliteNotes.open(${JSON.stringify(file)})
      notes.change((all) => [...all, ${JSON.stringify(note(2))}])`
    const options = { encoding: 'utf8', input: code } as const
    const args = ['--conditions=caisson-source', '--input-type=module-typescript', '-']
    expect(spawnSync(process.execPath, args, options)).toMatchObject({ status: 0 })
    await notes.change((all) => [...all, note(3)])
    expect((await notes.list()).map(({ text }) => text)).toEqual(['note 1', 'note 2', 'note 3'])
  })

  it('say what keeps them from opening [S4.09]', async () => {
    const folder = await temporaryFolder('notes')
    await expect(SqliteNotes.open(folder)).rejects.toMatchObject({ code: 'state_unavailable' })
    await expect(SqliteNotes.open('')).rejects.toMatchObject({ code: 'invalid_options' })
    await expect(SqliteNotes.open(1 as never)).rejects.toMatchObject({ code: 'invalid_options' })
  })
})
