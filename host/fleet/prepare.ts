/**
 * What an owner of the database does for a fleet: make or upgrade the tables, and give the role of the hosts its rights and no
 * others. Refuses a role that rights do not bind.
 */
import { CaissonError } from '#specs/errors.ts'
import type { FleetAddress } from './address.ts'
import { FleetDatabase, formOf, type Queries } from './database.ts'
import { fleetMigrations, formTable, grantsOf, oldestForm } from './migrations.ts'
import { RunJobs } from './run-jobs.ts'

export interface Prepared {
  /** Undefined: the database had none. */
  readonly formBefore?: number
  readonly form: number
  /** Statements that were carried out for the role; none without one. */
  readonly grants: readonly string[]
}

/** The role of the hosts, which has to exist. */
export interface HostRole {
  readonly name: string
  /** Whether it may remove ended runs with their journals. */
  readonly removesRuns: boolean
}

/**
 * Brings the tables to the form of this version, then gives the role its rights. May be repeated.
 * @param role undefined: rights stay as they are
 * @throws {CaissonError} `permission_denied`, `version_mismatch`, `invalid_options`
 */
export async function prepareFleet(address: FleetAddress, role?: HostRole): Promise<Prepared> {
  await using before = await FleetDatabase.connect(address)
  const found = await formOf(before)
  const grants = role === undefined ? [] : rightsOf(role)
  if (role !== undefined) await requireBindable(before, role.name)
  await using database = await FleetDatabase.open(address)
  await using _jobs = await RunJobs.open(database, () => undefined)
  await database.transaction(async (tx) => {
    for (const statement of grants) await tx.query(statement)
  })
  const form = (await formOf(database))?.form ?? 0
  return { ...(found === undefined ? {} : { formBefore: found.form }), form, grants }
}

/** Forms that a database has; 0: no tables. */
export interface Forms {
  readonly own: number
  readonly queue: number
}

/** @throws {CaissonError} the database's */
export async function formsOf(address: FleetAddress): Promise<Forms> {
  await using database = await FleetDatabase.connect(address)
  const [queue] = await database.query("SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'caisson_queue'")
  const [row] =
    queue === undefined
      ? []
      : await database.query<{ version: number }>('SELECT version FROM caisson_queue.version')
  return { own: (await formOf(database))?.form ?? 0, queue: row?.version ?? 0 }
}

/**
 * The same as SQL for `psql`, for an owner who runs no program with these rights.
 * @param role undefined: no rights
 */
export async function fleetSql({ own: form, queue }: Forms, role?: HostRole): Promise<string> {
  const parts = [ownSql(form), await queueSql(queue), role === undefined ? '' : inTransaction(rightsOf(role))]
  const said = parts.filter((part) => part !== '')
  return said.length === 0 ? '-- The tables have the form of this version.' : said.join('\n\n')
}

function ownSql(form: number): string {
  const newest = fleetMigrations.length
  if (form >= newest) return ''
  return inTransaction([
    ...(form === 0 ? formTable : []),
    ...fleetMigrations.slice(form).map((step) => step.trim().replace(/;$/, '')),
    'DELETE FROM caisson.form',
    `INSERT INTO caisson.form VALUES (${newest}, ${oldestForm}, now())`,
  ])
}

async function queueSql(version: number): Promise<string> {
  const { getConstructionPlans, getMigrationPlans } = await import('pg-boss')
  if (version === 0) return getConstructionPlans('caisson_queue').trim()
  const made = /INSERT INTO caisson_queue\.version\(version\) VALUES \('(\d+)'\)/
  const newest = Number(made.exec(getConstructionPlans('caisson_queue'))?.[1])
  return version < newest ? getMigrationPlans('caisson_queue', version).trim() : ''
}

/** What it had before is taken first, so that it has these rights alone. */
function rightsOf({ name, removesRuns }: HostRole): string[] {
  const quoted = `"${name.replaceAll('"', '""')}"`
  return [
    `REVOKE ALL ON ALL TABLES IN SCHEMA caisson, caisson_queue FROM ${quoted}`,
    ...grantsOf(name, { removesRuns }),
  ]
}

const inTransaction = (statements: readonly string[]): string =>
  ['BEGIN', ...statements, 'COMMIT'].map((one) => `${one};`).join('\n')

/** @throws {CaissonError} `invalid_options` when there is no such role, or it may do anything with the tables */
async function requireBindable(queries: Queries, role: string): Promise<void> {
  const [found] = await queries.query<{ isSuperuser: boolean; isOwner: boolean; isSelf: boolean }>(
    `SELECT rolsuper AS "isSuperuser", rolname = current_user AS "isSelf",
            oid = current_user::regrole OR pg_has_role(oid, current_user::regrole, 'MEMBER') AS "isOwner"
       FROM pg_catalog.pg_roles WHERE rolname = $1`,
    [role],
  )
  if (found === undefined)
    throw new CaissonError('invalid_options', `the database has no role "${role}"`, {
      remedy: `have an administrator create it: CREATE ROLE "${role.replaceAll('"', '""')}" LOGIN PASSWORD '…'`,
    })
  if (found.isSelf && !found.isSuperuser)
    throw new CaissonError(
      'invalid_options',
      `the address connects as "${role}", which is the role of the hosts`,
      {
        remedy: 'use the address of the owner of the tables, and give the hosts a role of their own',
      },
    )
  if (found.isSuperuser || found.isOwner)
    throw new CaissonError(
      'invalid_options',
      `the role "${role}" ${found.isSuperuser ? 'is a superuser' : 'has the rights of the owner of the tables'}`,
      { remedy: 'give the hosts a role of their own, which owns nothing' },
    )
}
