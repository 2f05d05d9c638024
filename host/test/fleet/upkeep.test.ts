import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { parseFleetAddress } from '../../fleet/address.ts'
import { DirectoryBlobs } from '../../fleet/blob-store.ts'
import { FleetBlobs, referTo } from '../../fleet/blobs.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { grantsOf } from '../../fleet/migrations.ts'
import { keepUp } from '../../fleet/upkeep.ts'
import { newRunId } from '../../journal/run-store.ts'
import { headOf, newDatabase, noteOf, rowsBehind, takeNow } from './fleet-place.ts'

const day = 86_400_000
let server: PostgresServer
let fleet: Fleet
let store: DirectoryBlobs

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

beforeEach(async () => {
  const options = { name: 'host', version: '1', slots: 0, warn: () => undefined }
  fleet = await Fleet.open(await newDatabase(server), options)
  store = new DirectoryBlobs(await temporaryFolder('blobs'))
  return () => fleet[Symbol.asyncDispose]()
})

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

/** A run with a line and a file. @param daysAgo since its end; undefined: it has not ended */
async function newRunOf(daysAgo: number | undefined): Promise<string> {
  const runId = newRunId()
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  const hold = await takeNow(fleet.runs, runId, 'host')
  const { sha256 } = await new FleetBlobs(fleet.database, store).put(async function* () {
    yield Buffer.from(runId)
  })
  const rows = rowsBehind(runId, await headOf(fleet.runs, runId), [noteOf('line')])
  await fleet.runs.append(hold, rows, { ends: daysAgo !== undefined, files: [{ sha256 }] })
  await fleet.runs.release(hold, daysAgo === undefined)
  const ago = "UPDATE caisson.runs SET ended_at = ended_at - $2 * interval '1 day' WHERE run_id = $1"
  await fleet.database.query(ago, [runId, daysAgo ?? 0])
  return runId
}

async function runIds(): Promise<string[]> {
  const rows = await fleet.database.query<{ id: string }>('SELECT run_id AS id FROM caisson.runs')
  return rows.map(({ id }) => id).toSorted()
}

it('removes ended runs beyond an age, with journal and files, and never one that waits', async () => {
  const [old, older, young, waiting] = [
    await newRunOf(31),
    await newRunOf(90),
    await newRunOf(29),
    await newRunOf(undefined),
  ]
  await fleet.database.query("UPDATE caisson.runs SET created_at = now() - interval '1 year'")
  expect(await fleet.removeEnded({ maxAgeMs: 30 * day })).toEqual([older, old])
  expect(await runIds()).toEqual([young, waiting].toSorted())
  const left = 'SELECT DISTINCT run_id AS id FROM'
  for (const table of ['journal', 'run_blobs']) {
    const rows = await fleet.database.query<{ id: string }>(`${left} caisson.${table} ORDER BY id`)
    expect(rows.map(({ id }) => id)).toEqual([young, waiting].toSorted())
  }
  // Their files stay for the grace time.
  expect(await fleet.collect(store)).toEqual({ forgotten: 0, removed: 0 })
  await fleet.database.query("UPDATE caisson.blobs SET kept_until = now() - interval '1 s'")
  expect(await fleet.collect(store)).toEqual({ forgotten: 2, removed: 2 })
})

it('removes those that ended first beyond a number, and keeps all without a bound', async () => {
  const runs = [await newRunOf(1), await newRunOf(4), await newRunOf(3), await newRunOf(2)]
  const waiting = await newRunOf(undefined)
  expect(await fleet.removeEnded({})).toEqual([])
  expect(await fleet.removeEnded({ maxRuns: 4, maxAgeMs: 5 * day })).toEqual([])
  expect(await fleet.removeEnded({ maxRuns: 2 })).toEqual([runs[1], runs[2]])
  expect(await runIds()).toEqual([runs[0], runs[3], waiting].toSorted())
  expect(await fleet.removeEnded({ maxRuns: 0 })).toEqual([runs[3], runs[0]])
  expect(await runIds()).toEqual([waiting])
})

it('a run that has just ended stays for a minute, whatever the bounds are', async () => {
  const runId = await newRunOf(0)
  expect(await fleet.removeEnded({ maxRuns: 0, maxAgeMs: 0 })).toEqual([])
  expect(await runIds()).toEqual([runId])
})

it('one host does it each minute, and removals at once by several remove each run once', async () => {
  const many: string[] = []
  for (let count = 0; count < 25; count += 1) many.push(await newRunOf(2))
  const done = await Promise.all([1, 2, 3].map(() => keepUp(fleet.database, store, { maxRuns: 24 })))
  expect(done.filter((one) => one !== undefined)).toHaveLength(1)
  expect(await keepUp(fleet.database, store, { maxRuns: 0 })).toBeUndefined()
  const removed = await Promise.all([1, 2, 3].map(() => fleet.removeEnded({ maxRuns: 0 })))
  expect(new Set(removed.flat()).size).toBe(removed.flat().length)
  await fleet.removeEnded({ maxRuns: 0 })
  expect(await runIds()).toEqual([])
})

it('a role that may add lines alone keeps ended runs, and removes files and runs once it is granted', async () => {
  const runId = await newRunOf(2)
  const [{ name = '' } = {}] = await fleet.database.query<{ name: string }>(
    'SELECT current_database() AS name',
  )
  await fleet.database.query('CREATE ROLE keeper LOGIN')
  for (const grant of grantsOf('keeper')) await fleet.database.query(grant)
  const address = parseFleetAddress(server.addressWith({ user: 'keeper' }, name), 'the test')
  await using host = await FleetDatabase.open(address)
  await new FleetBlobs(host, store).put(async function* () {
    yield Buffer.from('nobody refers to it')
  })
  await fleet.database.query("UPDATE caisson.blobs SET kept_until = now() - interval '1 s'")
  const done = await keepUp(host, store, { maxRuns: 0 })
  expect(done).toEqual({ removedRuns: undefined, forgotten: 1, removed: 1 })
  expect(await runIds()).toEqual([runId])
  for (const grant of grantsOf('keeper', { removesRuns: true })) await fleet.database.query(grant)
  await fleet.database.query("UPDATE caisson.upkeep SET at = 'epoch'")
  expect(await keepUp(host, store, { maxRuns: 0 })).toMatchObject({ removedRuns: [runId] })
})

it('a request of a run keeps its files beside those of its checkpoints', async () => {
  const runId = await newRunOf(undefined)
  const put = async (text: string) =>
    await new FleetBlobs(fleet.database, store).put(async function* () {
      yield Buffer.from(text)
    })
  const [workspace, disk] = [await put('workspace'), await put('disk')]
  await fleet.database.transaction((tx) => referTo(tx, runId, 'request', [workspace.sha256]))
  await fleet.database.transaction((tx) => referTo(tx, runId, 'files', [disk.sha256]))
  await fleet.database.query("UPDATE caisson.blobs SET kept_until = now() - interval '1 s'")
  expect(await fleet.collect(store)).toEqual({ forgotten: 1, removed: 1 })
  expect(await store.has(workspace.sha256, 1)).toBe(false)
  const rows = await fleet.database.query<{ sha256: string }>(
    'SELECT sha256 FROM caisson.blobs ORDER BY bytes',
  )
  expect(rows.map(({ sha256 }) => sha256)).toEqual([disk.sha256, workspace.sha256])
})
