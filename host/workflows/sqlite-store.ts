/** A store in a SQLite database, which several processes may use. The file is open only while it is asked. */
import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, requireText } from '#specs/errors.ts'
import { type DatabaseForm, useDatabase } from '../database/database.ts'
import { digestOf, WorkflowError } from './workflow-file.ts'
import { type StoredWorkflow, storeMaxCount, type WorkflowStore } from './workflow-store.ts'

/** A released step of `migrations` never changes; a new form is a further step. */
const form: DatabaseForm = {
  noun: 'store of workflows',
  migrations: [
    `
    CREATE TABLE workflows (
      name TEXT NOT NULL,
      version TEXT NOT NULL,
      sha256 TEXT NOT NULL,
      text TEXT NOT NULL,
      published_at INTEGER NOT NULL,
      PRIMARY KEY (name, version)
    ) STRICT;
    `,
  ],
  isRemade: false,
}

/** That of the user. @param home the state folder */
export function userStore({ home }: { readonly home: string }): SqliteWorkflowStore {
  return new SqliteWorkflowStore(path.join(home, 'workflows.sqlite'))
}

export class SqliteWorkflowStore implements WorkflowStore {
  readonly file: string

  /** @param file made by the first `put`, for this user alone @throws {CaissonError} `invalid_options` */
  constructor(file: string) {
    requireText('file', file)
    if (file === '' || file.includes('\0')) throw new CaissonError('invalid_options', 'file: must be a path')
    this.file = path.resolve(file)
  }

  async get(name: string, version: string): Promise<string | null> {
    if (!existsSync(this.file)) return null
    const row = await useDatabase(this.file, form, (database) =>
      database
        .prepare('SELECT sha256, text FROM workflows WHERE name = ? AND version = ?')
        .get(name, version),
    )
    if (row === undefined) return null
    const text = String(row.text)
    if (digestOf(text) !== row.sha256)
      throw new CaissonError(
        'state_corrupted',
        `${name}@${version} in ${this.file} is not what was published: its SHA-256 differs`,
        { remedy: 'restore the file from a copy' },
      )
    return text
  }

  async list(): Promise<StoredWorkflow[]> {
    if (!existsSync(this.file)) return []
    const rows = await useDatabase(this.file, form, (database) =>
      database
        .prepare('SELECT name, version, sha256 FROM workflows ORDER BY name, version LIMIT ?')
        .all(storeMaxCount),
    )
    return rows.map(({ name, version, sha256 }) => ({
      name: String(name),
      version: String(version),
      sha256: String(sha256),
    }))
  }

  async remove(name: string, version: string): Promise<void> {
    if (!existsSync(this.file)) return
    await useDatabase(this.file, form, (database) =>
      database.prepare('DELETE FROM workflows WHERE name = ? AND version = ?').run(name, version),
    )
  }

  async put({ name, version, sha256, text }: StoredWorkflow & { readonly text: string }): Promise<void> {
    await mkdir(path.dirname(this.file), { recursive: true, mode: 0o700 })
    const isFull = await useDatabase(this.file, form, (database) => {
      const { changes } = database
        .prepare(
          `INSERT INTO workflows SELECT ?, ?, ?, ?, ?
           WHERE (SELECT count(*) FROM workflows) < ? ON CONFLICT DO NOTHING`,
        )
        .run(name, version, sha256, text, Date.now(), storeMaxCount)
      const known = database
        .prepare('SELECT 1 FROM workflows WHERE name = ? AND version = ?')
        .get(name, version)
      return changes === 0 && known === undefined
    })
    if (isFull) throw new WorkflowError(`the store has ${storeMaxCount} workflows, and takes no more`, [])
  }
}
