/**
 * The database that the hosts of a fleet share: its form, connections, transactions, notices. Waits for nobody without an end:
 * a host that freezes within a transaction loses it.
 */
import type pg from 'pg'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import type { FleetAddress } from './address.ts'
import { fleetMigrations, oldestForm } from './migrations.ts'

/** Statements of a transaction, or of none. */
export interface Queries {
  /** @param values of `$1`, `$2` */
  query<Row extends object>(text: string, values?: readonly unknown[]): Promise<readonly Row[]>
}

export interface FleetDatabaseOptions {
  /** The form that this host knows; absent: the newest of this version. For tests of two versions side by side. */
  readonly migrations?: readonly string[]
  readonly oldestForm?: number
}

/** Any number that no other program takes as an advisory lock: the bytes of "caisson". */
const migrationLock = '27971974926757742'
const connectMs = 10_000
const statementMs = 30_000
/** A host that is stopped within a transaction gives its locks up after this time. */
const idleInTransactionMs = 5_000
const connectionsMax = 8

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
    // Loaded by a host of a fleet alone.
    const { default: driver } = await import('pg')
    const config = { ...connectionOf(address), max: connectionsMax }
    const pool = new driver.Pool(config)
    // An idle connection that breaks is replaced by the pool.
    pool.on('error', () => undefined)
    const database = new FleetDatabase(address, pool, () => new driver.Client(connectionOf(address)))
    try {
      await migrate(database, options)
      return database
    } catch (error) {
      await pool.end()
      throw error
    }
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

  /** Another connection than those of the pool, which its user connects and ends: for LISTEN. */
  newClient(): pg.Client {
    return this.#newClient()
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

/** Whether the database or the way to it was gone: what was asked may have been done or not. */
export function isConnectionLost(error: unknown): boolean {
  return error instanceof CaissonError && error.code === 'state_unavailable' && error.cause !== undefined
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
  { migrations = fleetMigrations, oldestForm: oldest = oldestForm }: FleetDatabaseOptions,
): Promise<void> {
  const found = await formOf(database)
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
    await tx.query('CREATE SCHEMA IF NOT EXISTS caisson')
    await tx.query(
      'CREATE TABLE IF NOT EXISTS caisson.form (form integer NOT NULL, oldest integer NOT NULL, changed_at timestamptz NOT NULL)',
    )
    for (const statements of migrations.slice(now)) await tx.query(statements)
    await tx.query('DELETE FROM caisson.form')
    await tx.query('INSERT INTO caisson.form VALUES ($1, $2, now())', [migrations.length, oldest])
  })
}

interface Form {
  readonly form: number
  /** Hosts that know an older one must not use it. */
  readonly oldest: number
}

async function formOf(queries: Queries): Promise<Form | undefined> {
  // to_regclass would answer from the cache of the connection, which may not know of another host's work yet.
  const there = await queries.query(
    "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'caisson' AND tablename = 'form'",
  )
  if (there.length === 0) return undefined
  const [row] = await queries.query<{ form: number; oldest: number }>('SELECT form, oldest FROM caisson.form')
  return row
}

function requireKnown({ form, oldest }: Form, known: number, { address }: FleetDatabase): void {
  if (oldest <= known) return
  throw new CaissonError(
    'version_mismatch',
    `the fleet at ${address.shown} has the form ${form}, which needs hosts that know ${oldest}; this version of Caisson knows ${known}`,
    { remedy: 'use the newer version on this host' },
  )
}

/** SQLSTATE classes (https://www.postgresql.org/docs/current/errcodes-appendix.html) of connections that end or fail. */
const lostClasses = ['08', '57P', '53']
const systemCodes = [
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'ENOTFOUND',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EAI_AGAIN',
]
const driverTexts = [
  'Connection terminated',
  'Query read timeout',
  'timeout exceeded when trying to connect',
  'Client has',
]

/** The error of the driver as one of Caisson, without secrets. */
export function knownError(error: unknown, address: FleetAddress): CaissonError {
  if (error instanceof CaissonError) return error
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  const text = withoutSecrets(errorMessage(error), address)
  // Kept for logs, so it has no secrets either.
  const cause = new Error(text)
  const isRefused = ['28000', '28P01', '42501'].includes(code)
  if (isRefused)
    return new CaissonError('permission_denied', `the fleet at ${address.shown} refuses this host: ${text}`, {
      cause,
      remedy:
        code === '42501'
          ? 'have an owner of the tables grant the rights of a host to the role'
          : 'check user and password',
    })
  const isLost =
    lostClasses.some((start) => code.startsWith(start)) ||
    systemCodes.includes(code) ||
    driverTexts.some((start) => text.startsWith(start))
  if (isLost)
    return new CaissonError('state_unavailable', `the fleet at ${address.shown} does not answer: ${text}`, {
      cause,
      remedy: 'start the database, or check the address and the network',
    })
  return new CaissonError('internal', `the database of the fleet failed: ${text}`, { cause })
}

function withoutSecrets(text: string, { secrets }: FleetAddress): string {
  return secrets.reduce((left, secret) => left.replaceAll(secret, '[password]'), text)
}
