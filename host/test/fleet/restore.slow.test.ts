// A fleet on PostgreSQL 15 that is copied with pg_dump and restored with pg_restore, beside a store of files that is newer and
// older than the database. The hosts use the role that `caisson fleet prepare` grants.
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readdir, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { debianBinaries, PostgresServer } from '../../../test/support/postgres.ts'
import { type FleetAddress, parseFleetAddress } from '../../fleet/address.ts'
import { DirectoryBlobs } from '../../fleet/blob-store.ts'
import { FleetBlobs } from '../../fleet/blobs.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { readRows } from '../../fleet/journal-rows.ts'
import type { StoredFile } from '../../fleet/run-table.ts'
import { FleetRuns } from '../../fleet-runs/fleet-runs.ts'
import { RunStore } from '../../journal/run-store.ts'
import { commandsIn } from '../support/run-command.ts'
import { newRun as createRun, headOf, noteOf, rowsBehind, takeNow } from './fleet-place.ts'

const run = promisify(execFile)
let server: PostgresServer

beforeAll(async () => {
  server = await PostgresServer.start({ binaries: debianBinaries })
  await using admin = await FleetDatabase.connect(parseFleetAddress(server.address, 'the test'))
  await admin.query('CREATE ROLE caisson_owner LOGIN; CREATE ROLE caisson_host LOGIN')
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

async function createDatabase(name: string): Promise<void> {
  await using admin = await FleetDatabase.connect(parseFleetAddress(server.address, 'the test'))
  await admin.query(`CREATE DATABASE ${name} OWNER caisson_owner ENCODING 'UTF8' TEMPLATE template0`)
}

const addressOf = (user: string, database: string): FleetAddress =>
  parseFleetAddress(server.addressWith({ user }, database), 'the test')

/** As an owner does it. @returns what it says */
async function prepare(database: string): Promise<string> {
  const env = { CAISSON_HOME: await temporaryFolder('home') }
  const caisson = commandsIn({ ...env, CAISSON_FLEET: addressOf('caisson_owner', database).connection })
  const { code, stdout, stderr } = await caisson('fleet', 'prepare', '--role', 'caisson_host')
  expect([code, stderr]).toEqual([0, ''])
  return stdout
}

async function openHost(database: string, slots: number): Promise<Fleet> {
  const options = { name: 'host', version: '1', slots, warn: () => undefined }
  return await Fleet.open(addressOf('caisson_host', database), options)
}

/** The programs of Debian find their server by these arguments. */
function placeOf(database: string): string[] {
  const { searchParams } = new URL(addressOf('caisson_owner', database).connection)
  return ['-h', searchParams.get('host') ?? '', '-U', 'caisson_owner', '-d', database]
}

/** A run behind a checkpoint with one file, that waits for a host. */
async function newRun(fleet: Fleet, store: DirectoryBlobs, text: string): Promise<string> {
  const runId = await createRun(fleet.database, fleet.runs)
  const hold = await takeNow(fleet.runs, runId, 'host')
  const blob = await new FleetBlobs(fleet.database, store).put(async function* () {
    yield Buffer.from(text)
  })
  await addLine(fleet, hold, 'in the copy', [{ name: 'run.json', ...blob }])
  await fleet.runs.release(hold, false)
  const waiting = { priority: 'normal', isContinued: true } as const
  await fleet.database.transaction((tx) => fleet.jobs.add(tx, runId, waiting))
  return runId
}

async function addLine(
  fleet: Fleet,
  hold: Awaited<ReturnType<typeof takeNow>>,
  text: string,
  files?: readonly (StoredFile & { readonly name?: string })[],
): Promise<void> {
  const rows = rowsBehind(hold.runId, await headOf(fleet.runs, hold.runId), [noteOf(text)])
  await fleet.runs.append(hold, rows, files === undefined ? {} : { files })
}

async function linesOf(fleet: Fleet, runId: string): Promise<string[]> {
  const lines: string[] = []
  for await (const { body } of readRows(fleet.database, fleet.runs, runId)) lines.push(body)
  return lines
}

it('pg_dump and pg_restore bring a fleet back: its hosts continue, and a run whose file the store lacks fails and names it', async () => {
  const folder = await temporaryFolder('restore')
  const store = new DirectoryBlobs(path.join(folder, 'blobs'))
  await createDatabase('before')
  await prepare('before')
  const first = await openHost('before', 0)
  const kept = await newRun(first, store, 'whose file is there')
  const lacking = await newRun(first, store, 'whose file is lost')
  const lines = await linesOf(first, kept)
  const dump = path.join(folder, 'caisson.dump')
  const schemas = ['-n', 'caisson', '-n', 'caisson_queue']
  await run(path.join(debianBinaries, 'pg_dump'), ['-Fc', ...schemas, '-f', dump, ...placeOf('before')])
  // The store is newer than the copy of the database: with a file of a line that the copy lacks.
  const late = await takeNow(first.runs, kept, 'host')
  const put = new FleetBlobs(first.database, store)
  await addLine(first, late, 'not in the copy', [
    await put.put(async function* () {
      yield Buffer.from('of later')
    }),
  ])
  const submittedLater = await newRun(first, store, 'submitted later')
  await first[Symbol.asyncDispose]()
  // And it is older: a file that the copy names is not there.
  const lost = await fileOf(folder, 'whose file is lost')
  await rm(lost)

  await createDatabase('after')
  await run(path.join(debianBinaries, 'pg_restore'), ['--exit-on-error', ...placeOf('after'), dump])
  expect(await prepare('after')).toContain('already')
  await using fleet = await openHost('after', 2)
  expect(await linesOf(fleet, kept)).toEqual(lines)
  expect(await fleet.runs.head(submittedLater)).toBeUndefined()
  const runs = new RunStore({ runs: path.join(folder, 'runs'), locks: path.join(folder, 'locks') })
  const fences = new FleetRuns(fleet, store)
  const begun: string[] = []
  await fences.work(runs, async ({ runId }) => {
    begun.push(await readFile(runs.paths(runId).options, 'utf8'))
    const head = await headOf(fleet.runs, runId)
    const hold = { runId, hostId: fleet.hostId, epoch: head.epoch }
    await fleet.runs.append(hold, rowsBehind(runId, head, [noteOf('end')]), { ends: true })
    return { ended: Promise.resolve(), cancel: async () => undefined }
  })
  const hasEnded = async (runId: string) => (await headOf(fleet.runs, runId)).hasEnded
  await expect.poll(() => hasEnded(kept), { timeout: 30_000 }).toBe(true)
  await expect.poll(() => hasEnded(lacking), { timeout: 90_000 }).toBe(true)
  expect(begun).toEqual(['whose file is there'])
  const [said = ''] = (await linesOf(fleet, lacking)).slice(-1)
  expect(JSON.parse(said)).toMatchObject({ event: { type: 'run-end', outcome: 'failed' } })
  expect(said).toContain(`the fleet's file ${lost} cannot be read`)
  // The same content is stored again for others.
  await new FleetBlobs(fleet.database, store).put(async function* () {
    yield Buffer.from('whose file is lost')
  })
  expect(existsSync(lost)).toBe(true)
  await fleet.jobs.drain()
}, 180_000)

/** The object that has a content. */
async function fileOf(folder: string, text: string): Promise<string> {
  const blobs = path.join(folder, 'blobs')
  for (const name of await readdir(blobs, { recursive: true })) {
    const file = path.join(blobs, name)
    if ((await readFile(file, 'utf8').catch(() => '')) === text) return file
  }
  throw new Error(`no file has ${text}`)
}
