// What an owner does for a fleet by `caisson fleet prepare`, and that a host with the granted role does all of its work.
import { afterAll, beforeAll, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { type FleetAddress, parseFleetAddress } from '../../fleet/address.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { readRows } from '../../fleet/journal-rows.ts'
import { fleetMigrations } from '../../fleet/migrations.ts'
import { removeRun } from '../../fleet/upkeep.ts'
import { newRunId } from '../../journal/run-store.ts'
import { commandsIn } from '../support/run-command.ts'
import { headOf, newDatabase, noteOf, rowsBehind } from './fleet-place.ts'

let server: PostgresServer
const role = 'the "hosts"'

beforeAll(async () => {
  server = await PostgresServer.start()
  await using owner = await FleetDatabase.connect(parseFleetAddress(server.address, 'the test'))
  await owner.query(
    `CREATE ROLE "the ""hosts""" LOGIN; CREATE ROLE maker LOGIN; CREATE ROLE builder LOGIN; CREATE ROLE member LOGIN IN ROLE maker`,
  )
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

/** A database that `maker` owns, who is no superuser. */
async function place() {
  const admin = await newDatabase(server)
  await using database = await FleetDatabase.connect(admin)
  await database.query(`ALTER DATABASE ${new URL(admin.connection).pathname.slice(1)} OWNER TO maker`)
  const home = await temporaryFolder('home')
  const maker = as(admin, 'maker')
  const caisson = commandsIn({ CAISSON_HOME: home, CAISSON_FLEET: maker.connection })
  return {
    maker,
    hosts: as(admin, role),
    prepare: (...given: string[]) => caisson('fleet', 'prepare', ...given),
  }
}

function as({ connection }: FleetAddress, user: string): FleetAddress {
  const url = new URL(connection)
  url.searchParams.set('user', user)
  return parseFleetAddress(url.href, 'the test')
}

const options = { name: 'a', version: '1', slots: 1, warn: () => undefined }

it('the owner of the tables needs the right to create schemas in the database, and no other', async () => {
  const admin = await newDatabase(server)
  const database = new URL(admin.connection).pathname.slice(1)
  await using before = await FleetDatabase.connect(admin)
  const builder = as(admin, 'builder')
  const caisson = commandsIn({
    CAISSON_HOME: await temporaryFolder('home'),
    CAISSON_FLEET: builder.connection,
  })
  const refused = await caisson('fleet', 'prepare', '--role', role)
  expect([refused.code, refused.stderr]).toEqual([
    expect.any(Number),
    expect.stringMatching(/permission denied/),
  ])
  expect(refused.code).not.toBe(0)
  await before.query(`GRANT CREATE ON DATABASE ${database} TO builder`)
  expect(await caisson('fleet', 'prepare', '--role', role)).toMatchObject({ code: 0 })
  await using fleet = await Fleet.open(as(admin, role), options)
  await fleet.add(newRunId(), { priority: 'normal', isContinued: false })
  expect((await fleet.status()).waiting).toBe(1)
})

it('a host with the granted role submits, takes, appends, answers, notices, and queues what was lost', async () => {
  const { hosts, prepare } = await place()
  expect(await prepare('--role', role)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('has the rights'),
  })
  await using fleet = await Fleet.open(hosts, options)
  const runId = newRunId()
  await fleet.add(runId, { priority: 'high', isContinued: false, lane: 'somebody' })
  const noticed = fleet.notices.wait(runId)
  let segments = 0
  await fleet.work(async (hold) => {
    segments += 1
    const rows = rowsBehind(runId, await headOf(fleet.runs, runId), [noteOf('work')])
    await fleet.runs.append(hold, rows, { ends: segments === 3, files: [] })
    return segments === 3 ? 'ended' : 'waits'
  })
  await noticed
  await expect.poll(async () => (await headOf(fleet.runs, runId)).waits, { timeout: 20_000 }).toBe(true)
  const seen = await headOf(fleet.runs, runId)
  const queue = fleet.jobs.add.bind(fleet.jobs)
  const written = await fleet.runs.writeFree(runId, seen, noteOf('an answer'), (tx) =>
    queue(tx, runId, { priority: 'normal', isContinued: true }),
  )
  expect(written).toBe('written')
  await expect.poll(() => segments, { timeout: 20_000 }).toBe(2)
  await expect.poll(async () => (await headOf(fleet.runs, runId)).waits, { timeout: 20_000 }).toBe(true)
  // Its job is lost, as after a restore.
  await fleet.database.query('UPDATE caisson.runs SET waits = false WHERE run_id = $1', [runId])
  await expect.poll(async () => (await fleet.jobs.addLost()).length, { timeout: 20_000 }).toBe(1)
  await expect.poll(async () => (await headOf(fleet.runs, runId)).hasEnded, { timeout: 20_000 }).toBe(true)
  const types: string[] = []
  for await (const { event } of readRows(fleet.database, fleet.runs, runId)) types.push(event.event.type)
  expect(types.filter((type) => type === 'vm-keep-failed')).toHaveLength(4)
  expect((await fleet.hosts()).map(({ name }) => name)).toEqual(['a'])
  expect(await fleet.status()).toMatchObject({ ended: 1 })
  await fleet.jobs.drain()
}, 90_000)

it('the role of the hosts can change no line of a journal, nor tables, and reads nothing else', async () => {
  const { maker, hosts, prepare } = await place()
  await using owner = await FleetDatabase.connect(maker)
  await owner.query('CREATE SCHEMA payroll; CREATE TABLE payroll.salaries (amount integer)')
  await owner.query('CREATE TABLE public.others (amount integer)')
  await prepare('--role', role)
  await using worker = await FleetDatabase.open(hosts)
  const refused = [
    ...["UPDATE caisson.journal SET body = 'x'", 'DELETE FROM caisson.journal', 'TRUNCATE caisson.journal'],
    ...['DELETE FROM caisson.runs', 'TRUNCATE caisson.runs CASCADE', 'DROP TABLE caisson.journal'],
    ...['ALTER TABLE caisson.runs ADD COLUMN more text', 'CREATE TABLE caisson.more (x text)'],
    ...[
      'UPDATE caisson.form SET form = 10',
      'DROP SCHEMA caisson CASCADE',
      'DROP SCHEMA caisson_queue CASCADE',
    ],
    ...[
      'ALTER TABLE caisson.journal DISABLE TRIGGER ALL',
      'CREATE RULE no AS ON INSERT TO caisson.journal DO INSTEAD NOTHING',
    ],
    ...['TRUNCATE caisson_queue.job', 'ALTER TABLE caisson_queue.job ADD COLUMN more text'],
    ...['SELECT * FROM payroll.salaries', 'SELECT * FROM public.others', 'CREATE TABLE public.more (x text)'],
    ...[
      'CREATE SCHEMA more',
      'CREATE ROLE more',
      "SELECT pg_read_file('PG_VERSION')",
      'SELECT * FROM pg_catalog.pg_authid',
    ],
    "COPY caisson.journal TO PROGRAM 'cat'",
  ]
  const became: string[] = []
  for (const statement of refused)
    became.push(
      await worker.query(statement).then(
        () => `${statement}: done`,
        (error: { code: string }) => `${statement}: ${error.code}`,
      ),
    )
  expect(became).toEqual(refused.map((statement) => `${statement}: permission_denied`))
  expect(await journalRights(owner)).toEqual(['INSERT', 'SELECT'])
})

it('takes rights that the role had before, and prints what was done', async () => {
  const { maker, prepare } = await place()
  expect(await prepare()).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(
      /made the tables, form \d+\nNo right was changed\. .+ fleet prepare --role NAME\n$/,
    ),
  })
  await using owner = await FleetDatabase.connect(maker)
  await owner.query('GRANT ALL ON caisson.journal TO "the ""hosts"""')
  const { stdout } = await prepare('--role', role, '--json')
  const form = fleetMigrations.length
  expect(JSON.parse(stdout)).toMatchObject({ fleet: maker.shown, formBefore: form, form })
  expect(await journalRights(owner)).toEqual(['INSERT', 'SELECT'])
})

it('a role removes ended runs with --removes-runs alone, and a host says so', async () => {
  const { maker, hosts, prepare } = await place()
  await using owner = await FleetDatabase.connect(maker)
  expect(await prepare('--removes-runs')).toMatchObject({
    code: 2,
    stderr: 'caisson: --removes-runs names no role; pass --role NAME too\n',
  })
  await prepare('--role', role)
  await using worker = await Fleet.open(hosts, options)
  const runId = newRunId()
  await worker.add(runId, { priority: 'normal', isContinued: false })
  await owner.query('UPDATE caisson.runs SET has_ended = true, host_id = NULL WHERE run_id = $1', [runId])
  await expect(removeRun(worker.database, runId)).rejects.toMatchObject({
    code: 'permission_denied',
    message:
      'the role of this host may not remove runs of the fleet; have the owner of the tables run: caisson fleet prepare --role ROLE --removes-runs',
  })
  const printed = (await prepare('--role', role, '--removes-runs', '--print')).stdout
  expect(printed).toContain('GRANT DELETE ON caisson.runs, caisson.journal')
  const { stdout } = await prepare('--role', role, '--removes-runs')
  expect(stdout).toContain('has the rights of a host, which may remove ended runs, and no others')
  expect(await journalRights(owner)).toEqual(['DELETE', 'INSERT', 'SELECT'])
  expect(await removeRun(worker.database, runId)).toBe(true)
  await prepare('--role', role)
  expect(await journalRights(owner)).toEqual(['INSERT', 'SELECT'])
})

it('the printed SQL makes the same database, and prints only what is missing', async () => {
  const { maker, hosts, prepare } = await place()
  const { stdout } = await prepare('--role', role, '--print')
  await using owner = await FleetDatabase.connect(maker)
  await owner.query(stdout)
  await using fleet = await Fleet.open(hosts, options)
  await fleet.add(newRunId(), { priority: 'normal', isContinued: false })
  expect((await fleet.status()).waiting).toBe(1)
  expect((await prepare('--print')).stdout).toBe('-- The tables have the form of this version.\n')
  expect((await prepare('--role', role)).stdout).toContain(
    `the tables have form ${fleetMigrations.length} already`,
  )
})

it('refuses roles that rights do not bind, and one that is not there', async () => {
  const { prepare } = await place()
  for (const [name, why] of [
    ['owner', /"owner" is a superuser/],
    ['maker', /connects as "maker", which is the role of the hosts; use the address of the owner/],
    ['member', /"member" has the rights of the owner/],
    ['nobody-there', /no role "nobody-there".*CREATE ROLE "nobody-there" LOGIN/],
    ['x'.repeat(64), /1 to 63 bytes/],
  ] as const) {
    const { code, stderr } = await prepare('--role', name)
    expect([code, stderr], name).toEqual([2, expect.stringMatching(why)])
  }
})

it('a host whose role may not upgrade the tables says what the owner has to do', async () => {
  const { maker, hosts, prepare } = await place()
  await prepare('--role', role)
  const newer = [...fleetMigrations, 'ALTER TABLE caisson.runs ADD COLUMN more text']
  await expect(FleetDatabase.open(hosts, { migrations: newer })).rejects.toThrow(
    /caisson fleet prepare --role ROLE/,
  )
  await (await FleetDatabase.open(maker, { migrations: newer }))[Symbol.asyncDispose]()
  await (await FleetDatabase.open(hosts, { migrations: newer }))[Symbol.asyncDispose]()
})

it('needs an address', async () => {
  const caisson = commandsIn({ CAISSON_HOME: await temporaryFolder('home') })
  const { code, stderr } = await caisson('fleet', 'prepare')
  expect([code, stderr]).toEqual([2, expect.stringMatching(/set CAISSON_FLEET, or pass --fleet ADDRESS/)])
})

async function journalRights(owner: FleetDatabase): Promise<string[]> {
  const rights = await owner.query<{ right: string }>(
    `SELECT privilege_type AS right FROM information_schema.table_privileges
      WHERE table_schema = 'caisson' AND table_name = 'journal' AND grantee = 'the "hosts"' ORDER BY 1`,
  )
  return rights.map(({ right }) => right)
}
