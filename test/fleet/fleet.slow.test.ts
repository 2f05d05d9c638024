// Two host processes with state folders of their own, which share PostgreSQL and a directory of files: real host, real agent,
// with a program in the place of QEMU.
import { type ChildProcess, fork } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, open, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { encodeSparse, findExtents } from '../../host/archive/sparse.ts'
import { parseFleetAddress } from '../../host/fleet/address.ts'
import { DirectoryBlobs } from '../../host/fleet/blob-store.ts'
import { Fleet } from '../../host/fleet/fleet.ts'
import { readRows } from '../../host/fleet/journal-rows.ts'
import { FleetRuns } from '../../host/fleet-runs/fleet-runs.ts'
import { forkRun } from '../../host/forks/fork-run.ts'
import { Host } from '../../host/host.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import { headOf, rowsBehind, takeNow } from '../../host/test/fleet/fleet-place.ts'
import { Worlds } from '../recovery/kills.ts'
import { installMachine } from '../recovery/machine/install.ts'
import { expectedFiles, expectedOrders } from '../recovery/scenario.ts'
import { changesOf, workOf } from '../recovery/verdict.ts'
import type { World } from '../recovery/world.ts'
import { PostgresServer } from '../support/postgres.ts'
import type { FleetOrder } from './host-program.ts'

const program = fileURLToPath(new URL('./host-program.ts', import.meta.url))
let folder: string
let worlds: Worlds
let server: PostgresServer
let fleet: Fleet

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-fleet-'))
  worlds = await Worlds.open(await installMachine(folder), folder)
  server = await PostgresServer.start()
  const options = { name: 'test', version: 'test', slots: 0, warn: () => undefined }
  fleet = await Fleet.open(parseFleetAddress(server.address, 'the test'), options)
}, 120_000)

afterAll(async () => {
  await fleet[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
}, 60_000)

it('checkpoint validity, effects exactly once, fork determinism: a run whose host is killed behind a checkpoint is finished from there by another host, and two forks there do what it did [R.01, V.05]', async () => {
  await using world = await worlds.openWorld()
  const runId = newRunId()
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  const first = await startHost(world, 'first')
  await expect.poll(() => typesOf(runId), { timeout: 60_000, interval: 20 }).toContain('checkpoint')
  first.kill('SIGKILL')
  const second = await startHost(world, 'second')
  try {
    const hasEnded = async () => (await fleet.runs.head(runId))?.hasEnded
    await expect.poll(hasEnded, { timeout: 90_000, interval: 100 }).toBe(true)
    const events = await eventsOf(runId)
    const types = events.map(({ event }) => event.type)
    expect(events.at(-1)?.event).toMatchObject({ type: 'run-end', outcome: 'completed' })
    expect(types.filter((type) => type === 'run-end')).toHaveLength(1)
    const taken = events.findIndex(({ event }) => event.type === 'run-take')
    expect(events[taken]?.event).toMatchObject({
      ...{ epoch: 2, host: 'second' },
      message: expect.stringMatching(/^the host before \(first, host-[0-9a-f]+\) gave no sign of life$/),
    })
    const resumed = events.find(({ event }) => event.type === 'run-resume')?.event
    const checkpoint = events.slice(0, taken).findLast(({ event }) => event.type === 'checkpoint')?.event
    // From the last checkpoint, not from the beginning.
    expect(resumed).toMatchObject({
      checkpointId: (checkpoint as { checkpointId: string }).checkpointId,
      message: 'second took the run over',
    })
    const fences = new FleetRuns(fleet, new DirectoryBlobs(path.join(folder, 'blobs')))
    await using host = new Host({ env: { ...process.env, ...envOf(world, 'second') }, fences })
    // The folder of the second host is whole: its journal is that of the fleet.
    expect(await host.runs.read(runId)).toEqual(events)
    await expectSameForks(world, runId, host)
    // Without the fleet nothing is written to it.
    await using alone = new Host({ env: { ...process.env, ...envOf(world, 'second') } })
    await expect((await alone.changes(runId)).apply('all')).rejects.toMatchObject({
      code: 'not_possible_now',
      message: expect.stringContaining('belongs to the fleet at postgresql://'),
    })
    await (await host.changes(runId)).apply('all')
    expect(await typesOf(runId)).toContain('apply-end')
    const { workspace, ledger } = world.scene
    for (const [name, content] of Object.entries(expectedFiles))
      expect(await readFile(path.join(workspace, name), 'utf8'), name).toBe(content)
    const said = (await readFile(ledger, 'utf8')).split('\n').filter((line) => line.startsWith('ordered '))
    expect(said.toSorted()).toEqual(expectedOrders.map((order) => `ordered ${order}`).toSorted())
    await compareForks(runId, world)
  } finally {
    second.kill('SIGKILL')
  }
}, 200_000)

/** Of a run that two hosts carried out, at the step behind which the first one was lost. */
async function compareForks(runId: string, world: World): Promise<void> {
  // The host that has the disk, without slots. The process of that host carries the forks out.
  const options = { name: 'second', version: 'test', slots: 0, warn: () => undefined }
  await using again = await Fleet.open(parseFleetAddress(server.address, 'the test'), options)
  const fences = new FleetRuns(again, new DirectoryBlobs(path.join(folder, 'blobs')))
  await using host = new Host({ env: { ...process.env, ...envOf(world, 'second') }, fences })
  const { runIds } = await host.fork(runId, { at: 'first', count: 2 })
  for (const id of runIds) {
    await fences.wake(id)
    const outcomeOf = async () => (await host.runs.summary(id)).state.end?.outcome
    await expect.poll(outcomeOf, { timeout: 60_000, interval: 100 }).toBe('completed')
  }
  const [itself, ...forks] = await Promise.all(
    [runId, ...runIds].map(async (id) => ({
      work: workOf(await host.runs.read(id)),
      changes: await changesOf(host, id),
    })),
  )
  expect(forks).toEqual([itself, itself])
}

it('a run whose host journaled a cancellation and was killed is cancelled by the next host', async () => {
  await using world = await worlds.openWorld()
  const runId = newRunId()
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  const first = await startHost(world, 'first')
  await expect.poll(() => typesOf(runId), { timeout: 60_000, interval: 20 }).toContain('checkpoint')
  first.kill('SIGKILL')
  await once(first, 'exit')
  // What the killed host would have written next.
  const hold = await takeNow(fleet.runs, runId, 'first')
  const request = { type: 'cancel-request', by: 'ann' } as const
  await fleet.runs.append(hold, rowsBehind(runId, await headOf(fleet.runs, runId), [request], Date.now()))
  const second = await startHost(world, 'second')
  try {
    const hasEnded = async () => (await fleet.runs.head(runId))?.hasEnded
    await expect.poll(hasEnded, { timeout: 90_000, interval: 100 }).toBe(true)
    const events = await eventsOf(runId)
    expect(events.at(-1)?.event).toMatchObject({ outcome: 'cancelled', message: 'cancelled by ann' })
    // Changes are collected as after any cancellation.
    expect(events.map(({ event }) => event.type)).toContain('changes-ready')
  } finally {
    second.kill('SIGKILL')
  }
}, 200_000)

/**
 * Fork determinism: a fork before the move, from what the killed host left, and forks where the run is now begin with the same
 * lines and files. Another host has them made there.
 */
async function expectSameForks(world: World, runId: string, other: Host): Promise<void> {
  const options = { name: 'second', version: 'test', slots: 0, warn: () => undefined }
  await using owner = await Fleet.open(parseFleetAddress(server.address, 'the test'), options)
  const fences = new FleetRuns(owner, new DirectoryBlobs(path.join(folder, 'blobs')))
  await using there = new Host({ env: { ...process.env, ...envOf(world, 'second') }, fences })
  await using before = new Host({ env: { ...process.env, ...envOf(world, 'first') } })
  // The last checkpoint of the killed host is the moment of some step.
  const request = { at: 'end', count: 1, prompts: [], by: 'a test' }
  const fork = async () => await forkRun({ store: before.runs, runId }, request)
  const [first] = await forksOf({ fork }, runId, 'end', 1, before)
  const { moments } = (await eventsOf(runId)).reduce(reduceRun, initialRunState)
  const [step = ''] =
    Object.entries(moments).find(([, moment]) => moment?.checkpointId === first?.checkpointId) ?? []
  const others = [
    ...(await forksOf(there, runId, step, 2, there)),
    ...(await forksOf(other, runId, step, 1, there)),
  ]
  expect(first?.lines.at(-1)).toContain('"type":"checkpoint"')
  expect(Object.keys(first?.files ?? {}).length).toBeGreaterThan(2)
  for (const each of others) expect(each).toEqual(first)
  const read = (await eventsOf(runId)).slice(1, first?.lines.length)
  expect(first?.lines.slice(1)).toEqual(read.map(lineOf))
  // Of the last checkpoint, which the other host made.
  const [end, same] = await forksOf(there, runId, 'end', 2, there)
  expect(end).toEqual(same)
  expect(end?.lines.slice(1)).toEqual((await eventsOf(runId)).slice(1, end?.lines.length).map(lineOf))
}

/** What forks begin with: lines, and digests of their disk and their workspace, without what names a fork. */
async function forksOf(asked: Pick<Host, 'fork'>, runId: string, at: string, count: number, host: Host) {
  const { runIds, checkpointId } = await asked.fork(runId, { at, count })
  return await Promise.all(
    runIds.map(async (forkId) => {
      const { directory, scratch, disk, diskFiles, exchanges } = host.runs.paths(forkId)
      const files: Record<string, string> = {}
      const inScratch = (await readdir(scratch)).map((name) => path.join(scratch, name))
      for (const file of [...inScratch, disk, diskFiles])
        files[path.relative(directory, file)] = await digestOf(file)
      const recorded = (await readFile(exchanges, 'utf8').catch(() => '')).split('\n').slice(1)
      return { checkpointId, lines: (await host.runs.read(forkId)).map(lineOf), files, recorded }
    }),
  )
}

/** Of the parts that have content: a disk is larger than its content by far. */
async function digestOf(file: string): Promise<string> {
  const hash = createHash('sha256')
  await using handle = await open(file)
  const { size } = await handle.stat()
  for await (const piece of encodeSparse(handle, await findExtents(file), size)) hash.update(piece)
  return hash.digest('hex')
}

/** As journals have it, without ids and hashes of the run. */
function lineOf({ prev: _, hash: __, runId: ___, ...line }: JournalEvent): string {
  const { event } = line
  if (event.type !== 'run-start') return JSON.stringify(line)
  const { forkedFrom: ____, ...start } = event
  return JSON.stringify({ ...line, event: start })
}

async function startHost(world: World, name: string): Promise<ChildProcess> {
  const child = fork(program, {
    execArgv: ['--conditions=caisson-source'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const { scene } = world
  const places = { address: server.address, blobs: path.join(folder, 'blobs') }
  child.send({ scene, env: envOf(world, name), ...places, name } satisfies FleetOrder)
  await once(child, 'message')
  return child
}

/** A state folder of its own. */
function envOf(world: World, name: string): Record<string, string> {
  return { ...world.env, CAISSON_HOME: path.join(world.home, '..', `home-${name}`) }
}

async function eventsOf(runId: string): Promise<JournalEvent[]> {
  const events: JournalEvent[] = []
  for await (const { event } of readRows(fleet.database, fleet.runs, runId)) events.push(event)
  return events
}

async function typesOf(runId: string): Promise<string[]> {
  return (await eventsOf(runId)).map(({ event }) => event.type)
}
