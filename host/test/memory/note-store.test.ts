// The file of notes: what survives damage, hands and processes, and what is refused.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, stat, symlink, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { noteMaxChars, notesMaxCount, type StoredNote } from '../../memory/note-storage.ts'
import { NoteStore } from '../../memory/note-store.ts'

async function openStore() {
  const home = await temporaryFolder('notes')
  const locks = path.join(home, 'locks')
  await mkdir(locks)
  return { home, locks, store: new NoteStore({ home, locks }) }
}

function note(number: number, fields: Partial<StoredNote> = {}): StoredNote {
  const noteId = `mem-${number.toString(16).padStart(12, '0')}`
  return {
    kind: 'memory',
    noteId,
    workspace: '/w',
    text: `note ${number}`,
    tags: [],
    at: number,
    ...fields,
  } as StoredNote
}

describe('the notes that are kept', () => {
  it('stand in a file of this user alone, by workspace and proposal [S0.13] [S4.04]', async () => {
    const { home, store } = await openStore()
    expect(await store.list()).toEqual([])
    const proposal: StoredNote = {
      kind: 'governance',
      noteId: 'gov-000000000001',
      proposalId: 'PROP-1',
      text: 'yes',
      author: 'person',
      at: 5,
    }
    await store.change(() => [note(1), note(2), note(3, { workspace: '/other' }), proposal])
    const again = new NoteStore({ home, locks: path.join(home, 'locks') })
    expect((await again.ofWorkspace('/w')).map(({ text }) => text)).toEqual(['note 2', 'note 1'])
    expect(await again.ofProposal('PROP-1')).toEqual([proposal])
    expect(await again.ofProposal('PROP-2')).toEqual([])
    expect((await stat(store.file)).mode & 0o777).toBe(0o600)
    expect((await stat(path.dirname(store.file))).mode & 0o777).toBe(0o700)
  })

  it('keep a line that cannot be read, and say which [S0.13]', async () => {
    const { store } = await openStore()
    await store.change(() => [note(1), note(2)])
    const text = await readFile(store.file, 'utf8')
    const bad = Buffer.from([0x7b, 0xff, 0xfe, 0x7d])
    await writeFile(
      store.file,
      Buffer.concat([
        Buffer.from('# my own words\n'),
        Buffer.from(text),
        bad,
        Buffer.from('\n{"kind":"memory"}\n\n'),
      ]),
      { mode: 0o600 },
    )
    expect((await store.damaged()).map(({ line }) => line)).toEqual([1, 4, 5])
    await store.change((notes) => [...notes, note(3)])
    const now = await readFile(store.file)
    expect(now.includes(bad)).toBe(true)
    expect(now.toString('utf8')).toContain('# my own words\n')
    expect(await store.list()).toHaveLength(3)
    expect(await store.damaged()).toHaveLength(3)
  })

  it('lose nothing but the line that was cut when the file is cut in its middle [S0.13]', async () => {
    const { store } = await openStore()
    await store.change(() => [note(1), note(2)])
    const { size } = await stat(store.file)
    await truncate(store.file, size - 9)
    expect(await store.list()).toEqual([note(1)])
    expect(await store.damaged()).toMatchObject([{ line: 2 }])
    await store.change((notes) => [...notes, note(4)])
    expect(await store.list()).toEqual([note(1), note(4)])
    expect(await store.damaged()).toHaveLength(1)
  })

  it('are read from whatever bytes the file holds [S0.13]', async () => {
    const { store } = await openStore()
    await store.change(() => [])
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
      fc
        .constantFrom('\n', JSON.stringify(note(1)), '{"kind":', '[[[[', '\r\n', '\0')
        .map((text) => Buffer.from(text)),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 12 }), async (pieces) => {
        await writeFile(store.file, Buffer.concat(pieces), { mode: 0o600 })
        const lines = (await store.list()).length + (await store.damaged()).length
        expect(lines).toBeLessThanOrEqual(Buffer.concat(pieces).toString('latin1').split('\n').length)
      }),
      { seed: 6, numRuns: 200 },
    )
  })

  it('are refused behind a link, a folder, or where others may write [S0.13]', async () => {
    const { home, store } = await openStore()
    await mkdir(path.dirname(store.file), { mode: 0o700 })
    await writeFile(path.join(home, 'elsewhere'), '', { mode: 0o600 })
    await symlink(path.join(home, 'elsewhere'), store.file)
    await expect(store.list()).rejects.toThrow(expect.objectContaining({ code: 'state_unavailable' }))
    const other = await openStore()
    await mkdir(other.store.file, { recursive: true, mode: 0o700 })
    await expect(other.store.list()).rejects.toThrow('is no file')
    const open = await openStore()
    await open.store.change(() => [note(1)])
    const { chmod } = await import('node:fs/promises')
    await chmod(open.store.file, 0o666)
    await expect(open.store.list()).rejects.toThrow('can be written by others')
  })

  it('are bounded in number and length [S0.13]', async () => {
    const { store } = await openStore()
    const many = Array.from({ length: notesMaxCount + 1 }, (_, index) => note(index))
    await expect(store.change(() => many)).rejects.toThrow(`${notesMaxCount} notes are stored`)
    await expect(store.change(() => [note(1, { text: 'x'.repeat(noteMaxChars + 1) })])).rejects.toThrow()
    expect(await store.list()).toEqual([])
  })

  it('take what two processes write at once [S0.13]', async () => {
    const { home, locks, store } = await openStore()
    const program = `
      import { NoteStore } from ${JSON.stringify(path.join(import.meta.dirname, '../../memory/note-store.ts'))}
      const store = new NoteStore(${JSON.stringify({ home, locks })})
      const from = Number(process.argv[1])
      for (let number = from; number < from + 10; number++)
        await store.change((notes) => [...notes, { kind: 'memory', noteId: 'mem-' + String(number).padStart(12, '0'), workspace: '/w', text: 'n' + number, tags: [], at: 1 }])
    `
    const start = async (from: number): Promise<number | null> => {
      const child = spawn(
        process.execPath,
        ['--conditions=caisson-source', '--input-type=module', '-e', program, String(from)],
        { stdio: ['ignore', 'ignore', 'inherit'] },
      )
      const [code] = (await once(child, 'exit')) as [number | null]
      return code
    }
    expect(await Promise.all([start(100), start(200)])).toEqual([0, 0])
    expect(await store.list()).toHaveLength(20)
    expect(await store.damaged()).toEqual([])
  })
})
