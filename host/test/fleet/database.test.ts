import { afterAll, beforeAll, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { type FleetAddress, parseFleetAddress } from '../../fleet/address.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { fleetMigrations, grantsOf, oldestForm } from '../../fleet/migrations.ts'
import { RunTable } from '../../fleet/run-table.ts'
import { headOf, newDatabase, newRun, noteOf, rowsBehind, takeNow } from './fleet-place.ts'

const form = fleetMigrations.length
let server: PostgresServer

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

it('hosts that start at once make the form of the database once', async () => {
  for (let round = 0; round < perTier(3, 20); round += 1) await openAtOnce(await newDatabase(server))
})

async function openAtOnce(address: FleetAddress): Promise<void> {
  const opened = await Promise.all(Array.from({ length: 6 }, () => FleetDatabase.open(address)))
  const [first] = opened
  expect(await first?.query('SELECT form, oldest FROM caisson.form')).toEqual([{ form, oldest: oldestForm }])
  for (const database of opened) await database[Symbol.asyncDispose]()
}

it('a host of the version before works beside one of a newer form, until that form excludes it', async () => {
  const address = await newDatabase(server)
  const newer = [...fleetMigrations, 'ALTER TABLE caisson.runs ADD COLUMN more text']
  await using old = await FleetDatabase.open(address)
  await using next = await FleetDatabase.open(address, { migrations: newer, oldestForm: form })
  const runId = await newRun(next)
  await takeNow(new RunTable(old), runId, 'old')
  await using again = await FleetDatabase.open(address)
  expect(await headOf(new RunTable(again), runId)).toMatchObject({ epoch: 1 })
  const excluding = [...newer, 'ALTER TABLE caisson.runs DROP COLUMN lane CASCADE']
  await using newest = await FleetDatabase.open(address, { migrations: excluding, oldestForm: form + 2 })
  expect(await newest.query('SELECT form FROM caisson.form')).toEqual([{ form: form + 2 }])
  await expect(FleetDatabase.open(address)).rejects.toThrow(
    expect.objectContaining({
      code: 'version_mismatch',
      message: expect.stringContaining(`has the form ${form + 2}, which needs hosts that know ${form + 2}; `),
    }),
  )
})

it('a step that fails leaves the form as it was', async () => {
  const address = await newDatabase(server)
  await using database = await FleetDatabase.open(address)
  const broken = [...fleetMigrations, 'ALTER TABLE caisson.runs ADD COLUMN more text; SELECT 1 / 0']
  await expect(FleetDatabase.open(address, { migrations: broken })).rejects.toThrow(/division by zero/)
  expect(await database.query('SELECT form FROM caisson.form')).toEqual([{ form }])
  await expect(database.query('SELECT more FROM caisson.runs')).rejects.toThrow(
    /column "more" does not exist/,
  )
})

it('the role of the hosts carries runs out, and can neither change a journal nor the form', async () => {
  const address = await newDatabase(server)
  await using owner = await FleetDatabase.open(address)
  await owner.query('CREATE ROLE worker LOGIN')
  await owner.query('CREATE SCHEMA caisson_queue')
  for (const grant of grantsOf('worker')) await owner.query(grant)
  const asWorker = new URL(address.connection)
  asWorker.searchParams.set('user', 'worker')
  await using worker = await FleetDatabase.open(parseFleetAddress(asWorker.href, 'the test'))
  const table = new RunTable(worker)
  const runId = await newRun(worker)
  const hold = await takeNow(table, runId, 'worker')
  await table.append(hold, rowsBehind(runId, await headOf(table, runId), [noteOf('one')]), { ends: true })
  const refused = [
    "UPDATE caisson.journal SET body = 'x'",
    'DELETE FROM caisson.journal',
    'DELETE FROM caisson.runs',
    'TRUNCATE caisson.runs CASCADE',
    'DROP TABLE caisson.hosts',
    'ALTER TABLE caisson.runs ADD COLUMN more text',
    'CREATE TABLE caisson.more (x text)',
    'UPDATE caisson.form SET form = 10',
  ]
  for (const statement of refused)
    await expect(worker.query(statement), statement).rejects.toThrow(
      expect.objectContaining({
        code: 'permission_denied',
        message: expect.stringContaining('grant the rights of a host'),
      }),
    )
})

it('says what is wrong with a connection, without the password', async () => {
  const place = new URL(server.address).searchParams.get('host') ?? ''
  const cases = [
    { address: `postgres://me:hunter2@localhost:1/runs`, code: 'state_unavailable' },
    {
      address: `postgres:///runs?host=${place}&user=nobody-there&password=hunter2`,
      code: 'permission_denied',
    },
    {
      address: `postgres:///nothing-there?host=${place}&user=owner&password=hunter2`,
      code: 'invalid_options',
    },
  ]
  for (const { address, code } of cases) {
    const error = await FleetDatabase.open(parseFleetAddress(address, 'x')).catch((thrown: unknown) => thrown)
    expect(error, address).toMatchObject({ code })
    const { message, stack, cause } = error as Error
    expect(`${message} ${stack} ${cause}`).not.toContain('password=')
    expect(`${message} ${stack} ${cause}`).not.toContain('hunter2')
  }
})
