// Failures of PostgreSQL that pass: a host waits and tries again, and keeps its runs.
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { isConnectionLost, knownError } from '../../fleet/database-errors.ts'
import { FleetFence } from '../../fleet/fence.ts'
import { RunTable } from '../../fleet/run-table.ts'
import { headOf, newDatabase, newRun, rowsBehind, takeNow } from './fleet-place.ts'

let server: PostgresServer
let owner: FleetDatabase

beforeAll(async () => {
  server = await PostgresServer.start({
    settings: ['max_connections=20', 'superuser_reserved_connections=3'],
  })
  owner = await FleetDatabase.open(await newDatabase(server))
}, 60_000)

afterAll(async () => {
  await owner[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
})

const barrier: HostEvent = { type: 'run-interrupt', reason: 'environment', message: 'a barrier' }

/** A fence of a run that a host has, and the next line. */
async function begin(database: FleetDatabase) {
  const table = new RunTable(database)
  const runId = await newRun(owner)
  const hold = await takeNow(new RunTable(owner), runId, 'host')
  const head = await headOf(new RunTable(owner), runId)
  const [row] = rowsBehind(runId, head, [barrier])
  if (row === undefined) throw new Error('no row')
  const fence = new FleetFence(table, hold, head)
  const append = () => fence.append(row, { event: barrier, isBarrier: true })
  return { runId, fence, append, seq: async () => (await headOf(new RunTable(owner), runId)).seq }
}

/** The line waits while the failure lasts, and is stored once behind it. */
async function waitsWhile(
  { fence, append, seq }: Awaited<ReturnType<typeof begin>>,
  forMs: number,
  end: () => Promise<unknown>,
): Promise<void> {
  let isStored = false
  const writing = append().then(() => {
    isStored = true
  })
  await Promise.race([sleep(forMs), writing])
  expect([isStored, fence.isOwn(), await seq()]).toEqual([false, true, 0])
  await end()
  await writing
  expect([fence.isOwn(), await seq()]).toEqual([true, 1])
}

it('a statement that takes too long is tried again (57014)', async () => {
  const run = await begin(owner)
  await using blocker = await FleetDatabase.open(owner.address)
  const hasLock = Promise.withResolvers<void>()
  const isOver = Promise.withResolvers<void>()
  const blocking = blocker.transaction(async (tx) => {
    await tx.query('SET LOCAL idle_in_transaction_session_timeout = 0')
    await tx.query('SELECT FROM caisson.runs WHERE run_id = $1 FOR UPDATE', [run.runId])
    hasLock.resolve()
    await isOver.promise
  })
  await hasLock.promise
  const cancelled: number[] = []
  const cancelling = setInterval(() => {
    void owner
      .query<{ done: boolean }>(
        `SELECT pg_cancel_backend(pid) AS done FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      )
      .then((rows) => cancelled.push(rows.length))
  }, 50)
  await waitsWhile(run, 800, async () => {
    await expect.poll(() => cancelled.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(1)
    clearInterval(cancelling)
    isOver.resolve()
    await blocking
  })
})

it('a database that only reads, as after a failover, is asked again by a new connection (25006)', async () => {
  await using database = await FleetDatabase.open(owner.address)
  const run = await begin(database)
  await owner.query(
    `ALTER DATABASE ${databaseOf(owner.address.connection)} SET default_transaction_read_only = on`,
  )
  // Connections that are there do not know of it yet.
  await owner.query(
    'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
  )
  await waitsWhile(run, 500, () =>
    owner.transaction(async (tx) => {
      await tx.query('SET TRANSACTION READ WRITE')
      await tx.query(
        `ALTER DATABASE ${databaseOf(owner.address.connection)} RESET default_transaction_read_only`,
      )
    }),
  )
})

it('a connection that the server ends is replaced (57P01)', async () => {
  await using database = await FleetDatabase.open(owner.address)
  const run = await begin(database)
  for (let round = 0; round < 5; round += 1) {
    await owner.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
    )
    await database.query('SELECT 1').catch(() => undefined)
  }
  await run.append()
  expect([run.fence.isOwn(), await run.seq()]).toEqual([true, 1])
})

it('a server without a free connection is asked again (53300)', async () => {
  await owner.query('CREATE ROLE crowded LOGIN CONNECTION LIMIT 2')
  await owner.query('GRANT USAGE ON SCHEMA caisson TO crowded')
  await owner.query('GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA caisson TO crowded')
  const url = new URL(owner.address.connection)
  url.searchParams.set('user', 'crowded')
  const address = { ...owner.address, connection: url.href }
  await using database = await FleetDatabase.open(address)
  const run = await begin(database)
  await owner.query('ALTER ROLE crowded CONNECTION LIMIT 0')
  await owner.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crowded'")
  await waitsWhile(run, 500, () => owner.query('ALTER ROLE crowded CONNECTION LIMIT 5'))
})

it('what does not pass ends the hold of a run at once', async () => {
  await using database = await FleetDatabase.open(owner.address)
  const run = await begin(database)
  await owner.query('ALTER TABLE caisson.journal ADD CONSTRAINT refuses CHECK (seq < 1) NOT VALID')
  try {
    await expect(run.append()).rejects.toThrow(/violates check constraint/)
    expect(run.fence.isOwn()).toBe(false)
  } finally {
    await owner.query('ALTER TABLE caisson.journal DROP CONSTRAINT refuses')
  }
})

it('each failure that passes says what to do', () => {
  const rows = [
    ['25006', /let the address lead to the primary/],
    ['53300', /raise max_connections/],
    ['53100', /make room on the disk/],
    ['57014', /slows the database down/],
    ...['57P01', '57P02', '57P03', '08006', '25P03', '40P01', '55P03'].map((code) => [
      code,
      /start the database/,
    ]),
  ] as const
  for (const [code, remedy] of rows) {
    const known = knownError(Object.assign(new Error('x'), { code }), owner.address)
    expect([code, known.code, isConnectionLost(known)]).toEqual([code, 'state_unavailable', true])
    expect(known.message, String(code)).toMatch(remedy)
  }
  for (const code of ['23505', '42P01', '22P02', ''])
    expect(isConnectionLost(knownError(Object.assign(new Error('x'), { code }), owner.address)), code).toBe(
      false,
    )
  const missing = Object.assign(new Error('database "x" does not exist'), { code: '3D000' })
  expect(knownError(missing, owner.address).message).toMatch(
    /has no database: database "x" does not exist; check the name .+ createdb -E UTF8/,
  )
  const driver = new Error('SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string')
  expect(knownError(driver, owner.address)).toMatchObject({
    code: 'permission_denied',
    message: expect.stringMatching(/asks for a password, and none is named; name it: PGPASSWORD/),
  })
  const several = new AggregateError(
    [new Error('connect ECONNREFUSED ::1'), new Error('connect ECONNREFUSED 127.0.0.1')],
    '',
  )
  const known = knownError(Object.assign(several, { code: 'ECONNREFUSED' }), owner.address)
  expect(known.message).toContain('does not answer: connect ECONNREFUSED ::1; connect ECONNREFUSED 127.0.0.1')
})

function databaseOf(connection: string): string {
  return new URL(connection).pathname.slice(1)
}
