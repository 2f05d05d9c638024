// Databases of each recorded form (forms/), as an earlier version made them, are brought to the form of this one.
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import type { FleetAddress } from '../../fleet/address.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { fleetMigrations } from '../../fleet/migrations.ts'
import { newDatabase } from './fleet-place.ts'

let server: PostgresServer
const folder = path.join(import.meta.dirname, 'forms')
const recorded = (await readdir(folder)).toSorted()
const newest = fleetMigrations.length

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

async function placeOf(file: string): Promise<FleetAddress> {
  const address = await newDatabase(server)
  await using database = await FleetDatabase.connect(address)
  await database.query(await readFile(path.join(folder, file), 'utf8'))
  return address
}

/** Columns, indexes and constraints of the fleet's tables, in no order of their making. */
async function catalogOf(database: FleetDatabase): Promise<readonly string[]> {
  const rows = await database.query<{ said: string }>(
    `SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) AS said
       FROM information_schema.columns WHERE table_schema = 'caisson'
     UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'caisson'
     UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
                WHERE connamespace = 'caisson'::regnamespace
      ORDER BY 1`,
  )
  return rows.map(({ said }) => said)
}

const linesOf = (database: FleetDatabase) =>
  database.query('SELECT run_id, seq, epoch, prev, hash, body FROM caisson.journal ORDER BY run_id, seq')

it('the first form is recorded', () => {
  expect(recorded).toContain('form-1.sql')
})

/** Rows that hosts of a form write, by the form that has their tables or columns first. */
const rowsOfForms: Readonly<Record<number, string>> = {
  2: `UPDATE caisson.runs SET has_ended = true, ended_at = now() WHERE run_id = 'run-0123456789abcdef0123';
      INSERT INTO caisson.blobs VALUES (repeat('b', 64), 3, repeat('b', 64), true, now());
      INSERT INTO caisson.run_blobs VALUES ('run-0123456789abcdef0123', 'files', repeat('b', 64));
      INSERT INTO caisson.removed_blobs (name) VALUES (repeat('c', 64))`,
  3: `UPDATE caisson.runs SET outline = '{"prompt": "x"}', metadata = '{"team": "a"}', questions = 1;
      INSERT INTO caisson.acts (run_id, kind, body, made_by)
      VALUES ('run-0123456789abcdef0124', 'cancel', '{}', 'host-1')`,
  4: `UPDATE caisson.runs SET request = '{"version":  1}', start_key = 'a key', start_body = repeat('d', 64),
             failures = '[{"hostId": "host-1", "host": "first", "message": "no image"}]'
       WHERE run_id = 'run-0123456789abcdef0124';
      INSERT INTO caisson.uploads VALUES ('upload-1', repeat('b', 64), 3)`,
  5: `INSERT INTO caisson.followed VALUES ('run-0123456789abcdef0124', now())`,
  6: `INSERT INTO caisson.classes (requires) VALUES ('{"labels": ["gpu"]}');
      UPDATE caisson.runs SET class_id = 2, caller = 'key-1', tokens = 7 WHERE tag IS NOT NULL;
      UPDATE caisson.lanes SET weight = 4, max_at_work = 2;
      INSERT INTO caisson.api_keys VALUES ('key-1', 'a key', repeat('e', 64), '{}')`,
  7: `UPDATE caisson.runs SET carried_by = 'first'`,
  8: `INSERT INTO caisson.model_keys (fingerprint) VALUES ('a key');
      UPDATE caisson.acts SET begun_seq = 1, begun_epoch = 1`,
}

/** Every row of the tables and columns that are there now, for a look at the same ones later. */
async function contentOf(database: FleetDatabase): Promise<ReadonlyMap<string, unknown>> {
  const tables = await database.query<{ name: string; columns: string }>(
    `SELECT table_name AS name, string_agg(quote_ident(column_name), ', ' ORDER BY column_name) AS columns
       FROM information_schema.columns
      WHERE table_schema = 'caisson' AND table_name NOT IN ('form', 'upkeep') GROUP BY 1 ORDER BY 1`,
  )
  const content = new Map<string, unknown>()
  for (const { name, columns } of tables) {
    const select = `SELECT ${columns} FROM caisson.${name}`
    content.set(select, (await database.query(select)).map((row) => JSON.stringify(row)).toSorted())
  }
  return content
}

/** The fast tier begins at the first and the last of them. */
const earlier = Array.from({ length: newest - 1 }, (_, index) => index + 1)

it.each(perTier([1, newest - 1], earlier))(
  'a database of form %i with rows in its tables keeps them all on the way to the newest',
  async (form) => {
    const address = await placeOf('form-1.sql')
    for (let at = 1; at <= form; at += 1) {
      const step = { migrations: fleetMigrations.slice(0, at), oldestForm: 1 }
      await using database = await FleetDatabase.open(address, step)
      expect(await database.query('SELECT form FROM caisson.form')).toEqual([{ form: at }])
      if (at > 1) await database.query(rowsOfForms[at] ?? '')
    }
    await using before = await FleetDatabase.connect(address)
    const content = await contentOf(before)
    await (await FleetDatabase.open(address))[Symbol.asyncDispose]()
    expect(await before.query('SELECT form FROM caisson.form')).toEqual([{ form: newest }])
    for (const [select, rows] of content)
      expect((await before.query(select)).map((row) => JSON.stringify(row)).toSorted(), select).toEqual(rows)
    // What a step counted of the rows that it found.
    const counted = await before.query(
      'SELECT kind, sum(runs)::integer AS runs FROM caisson.tallies GROUP BY 1 HAVING sum(runs) <> 0 ORDER BY 1',
    )
    const ended = form > 1 ? [{ kind: 'ended', runs: 1 }] : []
    expect(counted).toEqual([...ended, { kind: 'waiting', runs: 1 }])
  },
)

it('each form has rows of its own in that test', () => {
  expect(Object.keys(rowsOfForms).map(Number)).toEqual(earlier.slice(1))
})

describe.each(recorded)('a database of %s', (file) => {
  it('becomes one like a new one, by hosts that start at once, and keeps its runs', async () => {
    const address = await placeOf(file)
    await using before = await FleetDatabase.connect(address)
    const lines = await linesOf(before)
    const runs = await before.query(
      'SELECT run_id, epoch, host_id, seq, head, tag FROM caisson.runs ORDER BY 1',
    )
    expect(lines.length).toBeGreaterThan(0)
    const opened = await Promise.all(Array.from({ length: 4 }, () => FleetDatabase.open(address)))
    for (const one of opened) await one[Symbol.asyncDispose]()
    await using fresh = await FleetDatabase.open(await newDatabase(server))
    expect(await catalogOf(before)).toEqual(await catalogOf(fresh))
    expect(await before.query('SELECT form FROM caisson.form')).toEqual([{ form: newest }])
    expect(await linesOf(before)).toEqual(lines)
    expect(
      await before.query('SELECT run_id, epoch, host_id, seq, head, tag FROM caisson.runs ORDER BY 1'),
    ).toEqual(runs)
  })

  it('is as before when a later step fails, and the next try succeeds', async () => {
    const address = await placeOf(file)
    await using database = await FleetDatabase.connect(address)
    const before = [await catalogOf(database), await database.query('SELECT * FROM caisson.form')]
    const broken = [...fleetMigrations, 'CREATE TABLE caisson.more (x text); SELECT 1 / 0']
    await expect(FleetDatabase.open(address, { migrations: broken })).rejects.toThrow(/division by zero/)
    expect([await catalogOf(database), await database.query('SELECT * FROM caisson.form')]).toEqual(before)
    const whole = [...fleetMigrations, 'CREATE TABLE caisson.more (x text)']
    await (await FleetDatabase.open(address, { migrations: whole }))[Symbol.asyncDispose]()
    expect(await database.query('SELECT form FROM caisson.form')).toEqual([{ form: newest + 1 }])
  })

  it('is refused to a host that is too old for the form that follows', async () => {
    const address = await placeOf(file)
    const excluding = [...fleetMigrations, 'ALTER TABLE caisson.lanes ADD COLUMN more text']
    const next = { migrations: excluding, oldestForm: newest + 1 }
    await (await FleetDatabase.open(address, next))[Symbol.asyncDispose]()
    await expect(FleetDatabase.open(address)).rejects.toMatchObject({ code: 'version_mismatch' })
    const beside = await placeOf(file)
    await (await FleetDatabase.open(beside, { ...next, oldestForm: newest }))[Symbol.asyncDispose]()
    await (await FleetDatabase.open(beside))[Symbol.asyncDispose]()
  })
})
