/**
 * The SQLite database of a host: an index that is made anew from the journals where it is missing or damaged. Nothing in it
 * is the only copy of a fact, but the order of runs that wait. One process has it open as a rule, several may.
 */
import { chmodSync, closeSync, lstatSync, openSync, renameSync, rmSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { migrations } from './migrations.ts'

/** Time to wait for another process that writes. Statements block this process, so it is short. */
const busyMs = 1_000

export interface OpenedDatabase {
  readonly database: DatabaseSync
  /** What was wrong with the file, and what was done. Absent: nothing was. */
  readonly warning?: string
}

/**
 * Opens the database at a path, and brings it to the newest form.
 * @throws {CaissonError} `version_mismatch` for a file of a newer version, `state_unavailable` where another program holds
 *   it or it cannot be read
 */
export async function openDatabase(file: string): Promise<OpenedDatabase> {
  // Loaded by whoever needs it alone.
  const { DatabaseSync } = await import('node:sqlite')
  const open = (): DatabaseSync => {
    makePrivate(file)
    const database = new DatabaseSync(file, { timeout: busyMs })
    try {
      database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL')
      migrate(database, file)
      checkWhole(database)
      return database
    } catch (error) {
      database.close()
      throw error
    }
  }
  try {
    return { database: open() }
  } catch (error) {
    if (!isDamage(error)) throw knownError(error, file)
    const aside = setAside(file)
    const warning = `the index ${file} is damaged (${errorMessage(error)}); it is made anew from the journals, and the old one is kept as ${aside}. Runs that waited start in the order of their requests`
    try {
      return { database: open(), warning }
    } catch (second) {
      throw knownError(second, file)
    }
  }
}

/** Whether a file is no database, or not what was written. SQLite: result codes 11 (corrupt) and 26 (not a database). */
function isDamage(error: unknown): boolean {
  return error instanceof Damage || [11, 26].includes(codeOf(error))
}

/** Whether another program writes. SQLite: result codes 5 (busy) and 6 (locked). */
export function isBusy(error: unknown): boolean {
  return [5, 6].includes(codeOf(error))
}

class Damage extends Error {}

function migrate(database: DatabaseSync, file: string): void {
  const version = Number(database.prepare('PRAGMA user_version').get()?.user_version ?? 0)
  if (version > migrations.length)
    throw new CaissonError(
      'version_mismatch',
      `the index ${file} has the form ${version}, and this version of Caisson knows ${migrations.length}`,
      {
        remedy:
          'use the newer version, or remove the file: it is made anew from the journals, and runs that wait keep the order of their requests',
      },
    )
  if (version === migrations.length) return
  database.exec('BEGIN IMMEDIATE')
  try {
    for (const statements of migrations.slice(version)) database.exec(statements)
    database.exec(`PRAGMA user_version = ${migrations.length}`)
    database.exec('COMMIT')
  } catch (error) {
    database.exec('ROLLBACK')
    throw error
  }
}

function checkWhole(database: DatabaseSync): void {
  const found = Object.values(database.prepare('PRAGMA quick_check(1)').get() ?? {})[0]
  if (found !== 'ok') throw new Damage(String(found))
}

/** For this user alone, whatever the umask. SQLite gives its other files the same mode. */
function makePrivate(file: string): void {
  const found = lstatSync(file, { throwIfNoEntry: false })
  if (found === undefined) closeSync(openSync(file, 'ax', 0o600))
  else if (found.isFile()) chmodSync(file, 0o600)
  else
    throw new CaissonError('state_unavailable', `the index ${file} is not a file`, {
      remedy: 'move it away: it is made anew from the journals',
    })
}

function setAside(file: string): string {
  const aside = `${file}.damaged`
  rmSync(aside, { recursive: true, force: true })
  renameSync(file, aside)
  for (const end of ['-wal', '-shm']) rmSync(`${file}${end}`, { force: true })
  return aside
}

function knownError(error: unknown, file: string): CaissonError {
  if (error instanceof CaissonError) return error
  const isHeld = isBusy(error)
  return new CaissonError(
    'state_unavailable',
    isHeld
      ? `another program holds the index ${file}`
      : `the index ${file} cannot be used: ${errorMessage(error)}`,
    { cause: error, remedy: isHeld ? 'end it, and try again' : 'correct its rights, or free disk space' },
  )
}

/** The primary result code (https://sqlite.org/rescode.html); 0 for another error. */
function codeOf(error: unknown): number {
  const code = error instanceof Error && 'errcode' in error ? Number(error.errcode) : 0
  return code & 0xff
}
