/**
 * The database that the hosts of a fleet share: its form, connections, transactions, notices. Waits for nobody without an end:
 * a host that freezes within a transaction loses it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { CaissonError } from '#specs/errors.ts'
import { checkFilesOf, type FleetAddress } from './address.ts'
import { isConnectionLost, isReadOnly, knownError } from './database-errors.ts'
import { fleetMigrations, formTable, oldestForm } from './migrations.ts'

export { isConnectionLost, knownError } from './database-errors.ts'

/** Statements of a transaction, or of none. */
export interface Queries {
  /** @param values of `$1`, `$2` */
  query<Row extends object>(text: string, values?: readonly unknown[]): Promise<readonly Row[]>
}

/** A connection that hears notices until it breaks or is disposed. */
export interface Listening extends AsyncDisposable {
  readonly ended: Promise<void>
  /** Another channel. */
  hear(channel: string): Promise<void>
}

export interface FleetDatabaseOptions {
  /** The form that this host knows; absent: the newest of this version. For tests of two versions side by side. */
  readonly migrations?: readonly string[]
  readonly oldestForm?: number
  /** Makes no tables, and changes none. Default: false. */
  readonly mustExist?: boolean
}

/** Any number that no other program takes as an advisory lock: the bytes of "caisson". */
const migrationLock = '27971974926757742'
const connectMs = 10_000
const statementMs = 30_000
/** A host that is stopped within a transaction gives its locks up after this time. */
const idleInTransactionMs = 5_000
const connectionsMax = 8
const againMs = 500

export class FleetDatabase implements AsyncDisposable, Queries {
  readonly address: FleetAddress
  readonly #pool: pg.Pool
  readonly #newClient: () => pg.Client

  private constructor(address: FleetAddress, pool: pg.Pool, newClient: () => pg.Client) {
    this.address = address
    this.#pool = pool
    this.#newClient = newClient
  }

  /**
   * Connects, and brings the database to the form of this version where it has an older one.
   * @throws {CaissonError} `state_unavailable`, `permission_denied`, `version_mismatch`
   */
  static async open(address: FleetAddress, options: FleetDatabaseOptions = {}): Promise<FleetDatabase> {
    const database = await FleetDatabase.connect(address)
    try {
      await migrate(database, options)
      return database
    } catch (error) {
      await database[Symbol.asyncDispose]()
      throw error
    }
  }

  /** Takes the database as it is, whatever its form. */
  static async connect(address: FleetAddress): Promise<FleetDatabase> {
    await checkFilesOf(address)
    // Loaded by a host of a fleet alone.
    const { default: driver } = await import('pg')
    const config = { ...connectionOf(address), max: connectionsMax }
    const pool = new driver.Pool(config)
    // An idle connection that breaks is replaced by the pool.
    pool.on('error', () => undefined)
    return new FleetDatabase(address, pool, () => new driver.Client(connectionOf(address)))
  }

  async query<Row extends object>(text: string, values: readonly unknown[] = []): Promise<readonly Row[]> {
    return await this.#known(
      async () => (await this.#pool.query<Row & pg.QueryResultRow>(text, [...values])).rows,
    )
  }

  /** All of the work, or none of it. @throws what the work throws */
  async transaction<T>(work: (tx: Queries) => Promise<T>): Promise<T> {
    return await this.#known(async () => {
      const client = await this.#pool.connect()
      // A connection that breaks between two statements fails the next one.
      const onError = () => undefined
      client.on('error', onError)
      let failure: Error | undefined
      try {
        await client.query('BEGIN')
        const value = await work({
          query: async <Row extends object>(text: string, values: readonly unknown[] = []) =>
            (await client.query<Row & pg.QueryResultRow>(text, [...values])).rows,
        })
        await client.query('COMMIT')
        return value
      } catch (error) {
        // The pool would keep the connection to a primary that became a replica.
        if (isReadOnly(error) && error instanceof Error) failure = error
        await client.query('ROLLBACK').catch((second: unknown) => {
          failure = second instanceof Error ? second : new Error(String(second))
        })
        throw error
      } finally {
        client.off('error', onError)
        // A connection that could not roll back is not used again.
        client.release(failure)
      }
    })
  }

  /**
   * Hears the notices of the channels over another connection than those of the pool.
   * @param act receives the payload of each, and its channel
   */
  async listen(
    channels: readonly string[],
    act: (payload: string, channel: string) => void,
  ): Promise<Listening> {
    const client = this.#newClient()
    const ended = new Promise<void>((resolve) => {
      client.on('error', () => resolve()).on('end', () => resolve())
    })
    client.on('notification', ({ payload = '', channel }) => act(payload, channel))
    const hear = async (channel: string) => void (await client.query(`LISTEN ${channel}`))
    const end = async () => await client.end().catch(() => undefined)
    try {
      await client.connect()
      for (const channel of channels) await hear(channel)
    } catch (error) {
      await end()
      throw knownError(error, this.address)
    }
    return { ended, hear, [Symbol.asyncDispose]: end }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool.end()
  }

  async #known<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw knownError(error, this.address)
    }
  }
}

/** Tries again while the database is away. @param signal then it fails instead */
export async function untilReached<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (signal.aborted || !isConnectionLost(error)) throw error
    }
    await sleep(againMs, undefined, { signal }).catch(() => undefined)
  }
}

function connectionOf({ connection }: FleetAddress): pg.ClientConfig {
  return {
    connectionString: connection,
    application_name: 'caisson',
    connectionTimeoutMillis: connectMs,
    query_timeout: statementMs,
    statement_timeout: statementMs,
    idle_in_transaction_session_timeout: idleInTransactionMs,
    keepAlive: true,
    // A role may have it off: then a line that counts could be lost.
    options: '-c synchronous_commit=on',
  }
}

async function migrate(
  database: FleetDatabase,
  { migrations = fleetMigrations, oldestForm: oldest = oldestForm, mustExist = false }: FleetDatabaseOptions,
): Promise<void> {
  const found = await formOf(database)
  if (mustExist) requireTables(found, migrations.length, database)
  if (found !== undefined) requireKnown(found, migrations.length, database)
  if (found !== undefined && found.form >= migrations.length) return
  await database.transaction(async (tx) => {
    await tx.query('SELECT pg_advisory_xact_lock($1::bigint)', [migrationLock])
    const [encoding] = await tx.query<{ server_encoding: string }>('SHOW server_encoding')
    if (encoding?.server_encoding !== 'UTF8')
      throw new CaissonError(
        'state_unavailable',
        `the database has the encoding ${encoding?.server_encoding}`,
        {
          remedy: 'create it with ENCODING UTF8',
        },
      )
    // Another host may have done it meanwhile.
    const now = (await formOf(tx))?.form ?? 0
    if (now >= migrations.length) return
    for (const statement of formTable) await tx.query(statement)
    for (const statements of migrations.slice(now)) await tx.query(statements)
    await tx.query('DELETE FROM caisson.form')
    await tx.query('INSERT INTO caisson.form VALUES ($1, $2, now())', [migrations.length, oldest])
  })
}

export interface Form {
  readonly form: number
  /** Hosts that know an older one must not use it. */
  readonly oldest: number
}

/** Undefined: there are no tables. */
export async function formOf(queries: Queries): Promise<Form | undefined> {
  // to_regclass would answer from the cache of the connection, which may not know of another host's work yet.
  const there = await queries.query(
    "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'caisson' AND tablename = 'form'",
  )
  if (there.length === 0) return undefined
  const [row] = await queries.query<{ form: number; oldest: number }>('SELECT form, oldest FROM caisson.form')
  return row
}

function requireTables(found: Form | undefined, known: number, { address }: FleetDatabase): void {
  if (found !== undefined && found.form >= known) return
  const seen = found === undefined ? 'has no tables of a fleet' : `has the older form ${found.form}`
  throw new CaissonError('state_unavailable', `the database at ${address.shown} ${seen}`, {
    remedy: 'check the address, and run as the owner of the tables: caisson fleet prepare',
  })
}

function requireKnown({ form, oldest }: Form, known: number, { address }: FleetDatabase): void {
  if (oldest <= known) return
  throw new CaissonError(
    'version_mismatch',
    `the fleet at ${address.shown} has the form ${form}, which needs hosts that know ${oldest}; this version of Caisson knows ${known}`,
    { remedy: 'use the newer version on this host' },
  )
}
