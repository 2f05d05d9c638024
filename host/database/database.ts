/**
 * The SQLite databases of a host. Its index is made anew from the journals where it is missing or damaged: nothing in it is
 * the only copy of a fact, but the order of runs that wait. One that has facts of its own is never made anew. One process has
 * a database open as a rule, several may.
 */
import { chmodSync, closeSync, lstatSync, openSync, renameSync, rmSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { migrations } from './migrations.ts'

/** Time to wait for another process that writes. Statements block this process, so it is short. */
const busyMs = 1_000

/** What is in a database. */
export interface DatabaseForm {
  /** For messages. */
  readonly noun: string
  /** From an empty database to its newest form. */
  readonly migrations: readonly string[]
  /** Whether the journals have all of it. */
  readonly isRemade: boolean
}

const indexForm: DatabaseForm = { noun: 'index', migrations, isRemade: true }

export interface OpenedDatabase {
  readonly database: DatabaseSync
  /** What was wrong with the file, and what was done. Absent: nothing was. */
  readonly warning?: string
}

/**
 * Opens the database at a path, and brings it to the newest form.
 * @throws {CaissonError} `version_mismatch` for a file of a newer version, `state_unavailable` where another program holds
 *   it or it cannot be read, `state_corrupted` for a damaged one that is not made anew
 */
export async function openDatabase(file: string, form: DatabaseForm = indexForm): Promise<OpenedDatabase> {
  // Loaded by whoever needs it alone.
  const { DatabaseSync } = await import('node:sqlite')
  const open = (): DatabaseSync => {
    makePrivate(file, form)
    const database = new DatabaseSync(file, { timeout: busyMs })
    try {
      database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL')
      migrate(database, file, form)
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
    if (!isDamage(error) || !form.isRemade) throw knownError(error, file, form)
    const aside = setAside(file)
    const warning = `the index ${file} is damaged (${errorMessage(error)}); it is made anew from the journals, and the old one is kept as ${aside}. Runs that waited start in the order of their requests`
    try {
      return { database: open(), warning }
    } catch (second) {
      throw knownError(second, file, form)
    }
  }
}

/** Opens a database for this work alone. @throws {CaissonError} as {@link openDatabase}, also where the work fails */
export async function useDatabase<T>(
  file: string,
  form: DatabaseForm,
  work: (database: DatabaseSync) => T,
): Promise<T> {
  const { database } = await openDatabase(file, form)
  try {
    return work(database)
  } catch (error) {
    throw knownError(error, file, form)
  } finally {
    database.close()
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

function migrate(
  database: DatabaseSync,
  file: string,
  { noun, migrations: steps, isRemade }: DatabaseForm,
): void {
  const versionNow = () => Number(database.prepare('PRAGMA user_version').get()?.user_version ?? 0)
  const found = versionNow()
  if (found > steps.length)
    throw new CaissonError(
      'version_mismatch',
      `the ${noun} ${file} has the form ${found}, and this version of Caisson knows ${steps.length}`,
      {
        remedy: isRemade
          ? 'use the newer version, or remove the file: it is made anew from the journals, and runs that wait keep the order of their requests'
          : 'use the newer version',
      },
    )
  if (found === steps.length) return
  database.exec('BEGIN IMMEDIATE')
  try {
    // Another process may have done it meanwhile.
    for (const statements of steps.slice(versionNow())) database.exec(statements)
    database.exec(`PRAGMA user_version = ${steps.length}`)
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
function makePrivate(file: string, { noun, isRemade }: DatabaseForm): void {
  const found = lstatSync(file, { throwIfNoEntry: false })
  // Not `ax`: another process may make it meanwhile.
  if (found === undefined) closeSync(openSync(file, 'a', 0o600))
  else if (found.isFile()) chmodSync(file, 0o600)
  else
    throw new CaissonError('state_unavailable', `the ${noun} ${file} is not a file`, {
      remedy: `move it away${isRemade ? ': it is made anew from the journals' : ''}`,
    })
}

function setAside(file: string): string {
  const aside = `${file}.damaged`
  rmSync(aside, { recursive: true, force: true })
  renameSync(file, aside)
  for (const end of ['-wal', '-shm']) rmSync(`${file}${end}`, { force: true })
  return aside
}

function knownError(error: unknown, file: string, { noun }: DatabaseForm): CaissonError {
  if (error instanceof CaissonError) return error
  if (isDamage(error))
    return new CaissonError('state_corrupted', `the ${noun} ${file} is damaged: ${errorMessage(error)}`, {
      cause: error,
      remedy: 'restore it from a copy, or move it away',
    })
  const isHeld = isBusy(error)
  return new CaissonError(
    'state_unavailable',
    isHeld
      ? `another program holds the ${noun} ${file}`
      : `the ${noun} ${file} cannot be used: ${errorMessage(error)}`,
    { cause: error, remedy: isHeld ? 'end it, and try again' : 'correct its rights, or free disk space' },
  )
}

/** The primary result code (https://sqlite.org/rescode.html); 0 for another error. */
function codeOf(error: unknown): number {
  const code = error instanceof Error && 'errcode' in error ? Number(error.errcode) : 0
  return code & 0xff
}
