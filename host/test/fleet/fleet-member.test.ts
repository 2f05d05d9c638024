import path from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import type { FleetAddress } from '../../fleet/address.ts'
import { DirectoryBlobs } from '../../fleet/blob-store.ts'
import { FleetBlobs, referTo } from '../../fleet/blobs.ts'
import { FleetDatabase, formOf } from '../../fleet/database.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { readRows } from '../../fleet/journal-rows.ts'
import { hostChannel } from '../../fleet/lanes.ts'
import { prepareFleet } from '../../fleet/prepare.ts'
import { FleetMember, type FleetSubmission } from '../../fleet-member.ts'
import { Host } from '../../host.ts'
import { newDatabase } from './fleet-place.ts'

let server: PostgresServer
let address: FleetAddress
/** Looks at what members do. */
let fleet: Fleet

beforeAll(async () => {
  server = await PostgresServer.start()
}, 120_000)

beforeEach(async () => {
  address = await newDatabase(server)
  await prepareFleet(address, undefined)
  fleet = await Fleet.look(address, '1')
  return () => fleet[Symbol.asyncDispose]()
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

const warned: string[] = []

async function openMember(name: string, slots = 1, store?: string): Promise<FleetMember> {
  const files = store ?? path.join(await temporaryFolder('fleet-member'), 'files')
  return await FleetMember.open({
    address,
    files,
    name,
    version: '1',
    slots,
    warn: (text) => warned.push(text),
  })
}

const submission: FleetSubmission = {
  about: { prompt: 'Count the files', workspace: '/srv/project', model: '', metadata: { ticket: 'T-1' } },
  start: { anything: true },
}

async function eventsOf(runId: string): Promise<JournalEvent['event'][]> {
  const events: JournalEvent['event'][] = []
  for await (const { event } of readRows(fleet.database, fleet.runs, runId)) events.push(event.event)
  return events
}

it('whoever looks at a fleet is no host of it, and makes no tables where there are none', async () => {
  await using member = await openMember('first')
  const again = await Fleet.look(address, '1')
  // Its connection for notices is there, and hears what is for a host.
  await again.database.query('SELECT pg_notify($1, $2)', [hostChannel, again.hostId])
  await again.notices.wait('anything')
  expect((await fleet.hosts()).map(({ hostId }) => hostId)).toEqual([member.hostId])
  await again[Symbol.asyncDispose]()
  const empty = await newDatabase(server)
  await expect(Fleet.look(empty, '1')).rejects.toMatchObject({
    code: 'state_unavailable',
    message: expect.stringContaining('has no tables of a fleet'),
    remedy: expect.stringContaining('caisson fleet prepare'),
  })
  await using database = await FleetDatabase.connect(empty)
  expect(await formOf(database)).toBe(undefined)
})

it('a host whose store has nothing of what runs need warns that all hosts have to use one', async () => {
  const files = path.join(await temporaryFolder('fleet-member'), 'files')
  await using first = await openMember('first', 0, files)
  const { runId } = await first.submit(submission)
  const blobs = new FleetBlobs(fleet.database, new DirectoryBlobs(files))
  const { sha256 } = await blobs.put(async function* () {
    yield Buffer.from('a disk')
  })
  await fleet.database.transaction((tx) => referTo(tx, runId, 'files', [sha256]))
  warned.length = 0
  await using _second = await openMember('second', 0, files)
  expect(warned).toEqual([])
  await using _other = await openMember('other', 0)
  expect(warned).toEqual([expect.stringMatching(/has no file that runs of the fleet need; .+ --fleet-files/)])
}, 120_000)

it('requests with one key to two hosts at once start one run, and another request with the key starts none', async () => {
  await using first = await openMember('first')
  await using second = await openMember('second')
  const key = { key: 'a key of a caller', body: 'a digest' }
  const started = await Promise.all(
    [first, second, first, second].map((one) => one.submit({ ...submission, key })),
  )
  expect(new Set(started.map(({ runId }) => runId)).size).toBe(1)
  expect(started.filter(({ isNew }) => isNew)).toHaveLength(1)
  const other = await second.submit({ ...submission, key: { ...key, body: 'another digest' } })
  expect(other).toEqual({ runId: started[0]?.runId, isNew: false, body: 'a digest' })
  expect(await first.findByKey(key.key)).toEqual({ runId: started[0]?.runId, body: 'a digest' })
  expect(await fleet.status()).toMatchObject({ waiting: 1 })
}, 120_000)

it('a run that waits for a host is listed as queued by a host that does not have it', async () => {
  await using member = await openMember('first', 0)
  const { runId } = await member.submit(submission)
  const home = await temporaryFolder('fleet-member-home')
  await using host = new Host({ env: { CAISSON_HOME: home }, fences: member })
  const { about } = submission
  const { workspace, prompt, metadata } = about
  expect(await host.runs.summary(runId)).toMatchObject({ status: 'queued', workspace, prompt, metadata })
}, 120_000)

it('a run whose options no host takes fails at once, behind a start that says what it was', async () => {
  await using member = await openMember('first')
  const home = await temporaryFolder('fleet-member-home')
  await using host = new Host({ env: { CAISSON_HOME: home }, fences: member })
  let tries = 0
  await member.work(host, async ({ start }) => {
    tries += 1
    expect(start).toEqual(submission.start)
    throw new CaissonError('invalid_options', 'the option vm cannot be used')
  })
  const { runId } = await member.submit(submission)
  const hasEnded = async () => (await fleet.runs.head(runId))?.hasEnded
  await expect.poll(hasEnded, { timeout: 60_000 }).toBe(true)
  expect(tries).toBe(1)
  expect(await eventsOf(runId)).toMatchObject([
    { type: 'run-start', prompt: 'Count the files', directory: '/srv/project', metadata: { ticket: 'T-1' } },
    { type: 'run-end', outcome: 'failed', reason: 'environment', message: 'the option vm cannot be used' },
  ])
  await member.leave()
}, 120_000)

it('a run that hosts cannot start goes to hosts with tries left, and fails with the reason of each when none has', async () => {
  await using first = await openMember('first')
  await using second = await openMember('second')
  const { runId } = await first.submit(submission)
  const { requests } = fleet
  const failOn = async ({ hostId }: FleetMember, host: string, times: number): Promise<void> => {
    for (let time = 0; time < times; time += 1)
      await requests.addFailure(runId, { hostId, host, message: `no KVM on ${host}\nmore` })
  }
  await failOn(first, 'first', 2)
  expect(await requests.judge(runId, first.hostId)).toBe('try')
  await failOn(first, 'first', 1)
  expect(await requests.judge(runId, first.hostId)).toBe('others')
  expect(await requests.judge(runId, second.hostId)).toBe('try')
  await failOn(second, 'second', 3)
  expect(await requests.judge(runId, first.hostId)).toBe('end')
  const home = await temporaryFolder('fleet-member-home')
  await using host = new Host({ env: { CAISSON_HOME: home }, fences: first })
  let tries = 0
  await first.work(host, async () => {
    tries += 1
    throw new CaissonError('vm_failed', 'no KVM')
  })
  const hasEnded = async () => (await fleet.runs.head(runId))?.hasEnded
  await expect.poll(hasEnded, { timeout: 60_000 }).toBe(true)
  expect(tries).toBe(0)
  const [, end] = await eventsOf(runId)
  expect(end).toMatchObject({ type: 'run-end', outcome: 'failed', reason: 'environment' })
  expect(end).toHaveProperty(
    'message',
    'no host of the fleet can carry the run out, after 6 tries: first: no KVM on first; second: no KVM on second; correct what the hosts lack (caisson doctor on each), and start the run again',
  )
  await first.leave()
}, 120_000)
