// Two host processes with state folders of their own, which share PostgreSQL and a directory of files: real host, real agent,
// with a program in the place of QEMU.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { parseFleetAddress } from '../../host/fleet/address.ts'
import { Fleet } from '../../host/fleet/fleet.ts'
import { readRows } from '../../host/fleet/journal-rows.ts'
import { Host } from '../../host/host.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import { Worlds } from '../recovery/kills.ts'
import { installMachine } from '../recovery/machine/install.ts'
import { expectedFiles, expectedOrders } from '../recovery/scenario.ts'
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

it('a run whose host is killed behind a checkpoint is finished by another host, and no effect happens twice', async () => {
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
    expect(events[taken]?.event).toMatchObject({ epoch: 2, host: 'second' })
    const resumed = events.find(({ event }) => event.type === 'run-resume')?.event
    const checkpoint = events.slice(0, taken).findLast(({ event }) => event.type === 'checkpoint')?.event
    // From the last checkpoint, not from the beginning.
    expect(resumed).toMatchObject({ checkpointId: (checkpoint as { checkpointId: string }).checkpointId })
    await using host = new Host({ env: { ...process.env, ...envOf(world, 'second') } })
    // The folder of the second host is whole: its journal is that of the fleet.
    expect(await host.runs.read(runId)).toEqual(events)
    await (await host.changes(runId)).apply('all')
    const { workspace, ledger } = world.scene
    for (const [name, content] of Object.entries(expectedFiles))
      expect(await readFile(path.join(workspace, name), 'utf8'), name).toBe(content)
    const said = (await readFile(ledger, 'utf8')).split('\n').filter((line) => line.startsWith('ordered '))
    expect(said.toSorted()).toEqual(expectedOrders.map((order) => `ordered ${order}`).toSorted())
  } finally {
    second.kill('SIGKILL')
  }
}, 200_000)

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
