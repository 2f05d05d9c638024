/**
 * The index of runs: what lists show of each, with the stamp of the files that it was made from. A row with another stamp
 * counts for nothing, so it does not matter which process changed a run.
 */
import type { DatabaseSync } from 'node:sqlite'

export interface IndexedRun {
  readonly id: string
  /** Of its journal and its summary: sizes, times and numbers of the files. */
  readonly stamp: string
  /** ms since 1970; 0: unknown. */
  readonly begunAt: number
  readonly workspace: string
  readonly model: string
  /** Null: it has not ended. */
  readonly outcome: string | null
  readonly metadata: Readonly<Record<string, string>>
  /** As JSON. */
  readonly outline: string
}

/** A run is found if it has all of these. */
export interface IndexQuery {
  readonly workspace?: string | undefined
  readonly model?: string | undefined
  /** Null: it has not ended. Absent: whatever it is. */
  readonly outcome?: string | null | undefined
  readonly metadata?: Readonly<Record<string, string>> | undefined
  /** The run before the first one that is wanted, in the order of lists. */
  readonly after?: { readonly begunAt: number; readonly id: string } | undefined
  readonly limit?: number | undefined
}

export class RunTable {
  readonly #database: DatabaseSync

  constructor(database: DatabaseSync) {
    this.#database = database
  }

  /** Stamps of all rows, by run. */
  stamps(): Map<string, string> {
    const rows = this.#database.prepare('SELECT id, stamp FROM runs').all()
    return new Map(rows.map(({ id, stamp }) => [String(id), String(stamp)]))
  }

  /** Adds and replaces rows, and removes others, all or none. */
  update(changed: readonly IndexedRun[], removed: readonly string[]): void {
    if (changed.length === 0 && removed.length === 0) return
    this.#database.exec('BEGIN IMMEDIATE')
    try {
      const remove = this.#database.prepare('DELETE FROM runs WHERE id = ?')
      for (const id of removed) remove.run(id)
      for (const run of changed) this.#put(run)
      this.#database.exec('COMMIT')
    } catch (error) {
      this.#database.exec('ROLLBACK')
      throw error
    }
  }

  /** Newest first, as lists are. */
  find({ workspace, model, outcome, metadata = {}, after, limit = -1 }: IndexQuery): {
    readonly id: string
    readonly outline: string
  }[] {
    const conditions: string[] = []
    const values: (string | number)[] = []
    const require = (condition: string, ...given: (string | number)[]): void => {
      conditions.push(condition)
      values.push(...given)
    }
    if (workspace !== undefined) require('workspace = ?', workspace)
    if (model !== undefined) require('model = ?', model)
    if (outcome === null) require('outcome IS NULL')
    else if (outcome !== undefined) require('outcome = ?', outcome)
    for (const [key, value] of Object.entries(metadata))
      require('id IN (SELECT run_id FROM run_metadata WHERE key = ? AND value = ?)', key, value)
    if (after !== undefined)
      require('(begun_at < ? OR (begun_at = ? AND id > ?))', after.begunAt, after.begunAt, after.id)
    const where = conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`
    const rows = this.#database
      .prepare(`SELECT id, outline FROM runs ${where} ORDER BY begun_at DESC, id LIMIT ?`)
      .all(...values, limit)
    return rows.map(({ id, outline }) => ({ id: String(id), outline: String(outline) }))
  }

  #put({ id, stamp, begunAt, workspace, model, outcome, metadata, outline }: IndexedRun): void {
    this.#database
      .prepare('INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)')
      .run(id, stamp, begunAt, workspace, model, outcome, outline)
    this.#database.prepare('DELETE FROM run_metadata WHERE run_id = ?').run(id)
    const add = this.#database.prepare('INSERT INTO run_metadata VALUES (?, ?, ?)')
    for (const [key, value] of Object.entries(metadata)) add.run(id, key, value)
  }
}
