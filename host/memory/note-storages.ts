/** Storages of notes besides the file: in memory, and in a SQLite database. */
import type { DatabaseSync } from 'node:sqlite'
import { CaissonError, errorMessage, requireText } from '#specs/errors.ts'
import { keyOf, type NoteStorage, type StoredNote } from './note-storage.ts'

/** Notes of this process alone, gone with it. */
export function createMemoryNotes(): NoteStorage {
  let notes: readonly StoredNote[] = Object.freeze([])
  return {
    list: () => notes,
    change: (make) => {
      notes = Object.freeze([...make(notes)])
    },
  }
}

/** Time to wait for another process that writes. */
const busyMs = 5_000

const form = `
  CREATE TABLE IF NOT EXISTS notes (
    position INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    -- As JSON.
    note TEXT NOT NULL
  ) STRICT;
`

/** Notes in a SQLite database, which several processes may use. Close it when it is no longer needed. */
export class SqliteNotes implements NoteStorage, Disposable {
  readonly #database: DatabaseSync
  #known: { readonly version: number; readonly notes: readonly StoredNote[] } | undefined

  private constructor(database: DatabaseSync) {
    this.#database = database
  }

  /**
   * Opens the database at a path, or makes it; its table is named `notes`.
   * @throws {CaissonError} `invalid_options`; `state_unavailable` when it cannot be used
   */
  static async open(file: string): Promise<SqliteNotes> {
    requireText('file', file)
    if (file === '' || file.includes('\0')) throw new CaissonError('invalid_options', 'file: must be a path')
    // Loaded by whoever needs it alone.
    const { DatabaseSync } = await import('node:sqlite')
    let database: DatabaseSync | undefined
    try {
      database = new DatabaseSync(file, { timeout: busyMs })
      database.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; ${form}`)
      return new SqliteNotes(database)
    } catch (cause) {
      database?.close()
      throw new CaissonError(
        'state_unavailable',
        `cannot open the notes in ${file}: ${errorMessage(cause)}`,
        { cause },
      )
    }
  }

  list(): readonly StoredNote[] {
    const version = Number(this.#database.prepare('PRAGMA data_version').get()?.data_version)
    if (this.#known?.version !== version) this.#known = { version, notes: this.#read() }
    return this.#known.notes
  }

  change(make: (notes: readonly StoredNote[]) => readonly StoredNote[]): void {
    const database = this.#database
    // First of all, so that no other process writes between reading and writing.
    database.exec('BEGIN IMMEDIATE')
    try {
      const made = make(this.#read())
      database.exec('DELETE FROM notes')
      const insert = database.prepare('INSERT INTO notes (key, note) VALUES (?, ?)')
      for (const note of made) insert.run(keyOf(note), JSON.stringify(note))
      database.exec('COMMIT')
    } catch (error) {
      if (database.isTransaction) database.exec('ROLLBACK')
      throw error
    } finally {
      this.#known = undefined
    }
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close()
  }

  [Symbol.dispose](): void {
    this.close()
  }

  #read(): readonly StoredNote[] {
    const rows = this.#database.prepare('SELECT note FROM notes ORDER BY position').all()
    return Object.freeze(rows.map(({ note }) => JSON.parse(String(note)) as StoredNote))
  }
}
