/** What several tests of a fleet share: a database of its own in one server, hosts, and lines of a journal. */
import { beforeAll, beforeEach } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { type FleetAddress, parseFleetAddress } from '../../fleet/address.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { Fleet, type FleetOptions, type NewRun } from '../../fleet/fleet.ts'
import type { Hold, RunHead } from '../../fleet/run-table.ts'
import { RunTable } from '../../fleet/run-table.ts'
import type { ChainedLine } from '../../journal/journal.ts'
import { chainLine } from '../../journal/journal-lines.ts'
import { newRunId } from '../../journal/run-store.ts'

let count = 0

/** An empty database of the server. */
export async function newDatabase(server: PostgresServer): Promise<FleetAddress> {
  count += 1
  const name = `fleet_${count}`
  const admin = await FleetDatabase.open(parseFleetAddress(server.address, 'the test'), { migrations: [] })
  await admin.query(`CREATE DATABASE ${name}`)
  await admin[Symbol.asyncDispose]()
  return parseFleetAddress(server.addressWith({}, name), 'the test')
}

/** One server for the tests of a file, and an empty database for each of them. */
export function useDatabases() {
  let server: PostgresServer
  let address: FleetAddress

  beforeAll(async () => {
    server = await PostgresServer.start()
    return () => server[Symbol.asyncDispose]()
  }, 60_000)

  beforeEach(async () => {
    address = await newDatabase(server)
  }, 60_000)

  return {
    server: () => server,
    /** Of the test's database. */
    address: () => address,
    /** Another host of it. */
    openFleet: async (name: string, options: Partial<FleetOptions> = {}) =>
      await Fleet.open(address, { name, version: '1', slots: 1, warn: () => undefined, ...options }),
  }
}

/** How runs of tests start. */
export const start = { priority: 'normal', isContinued: false } as const

/** Puts a new run into the queue. @returns its ID */
export async function addRun(fleet: Fleet, run: Partial<NewRun> = {}): Promise<string> {
  const runId = newRunId()
  await fleet.add(runId, { ...start, ...run })
  return runId
}

/** A run that nobody has taken. */
export async function newRun(database: FleetDatabase, table = new RunTable(database)): Promise<string> {
  const runId = newRunId()
  await database.transaction((tx) => table.create(tx, runId))
  return runId
}

export async function headOf(table: RunTable, runId: string): Promise<RunHead> {
  const head = await table.head(runId)
  if (head === undefined) throw new Error(`the fleet has no run ${runId}`)
  return head
}

export async function takeNow(table: RunTable, runId: string, name: string): Promise<Hold> {
  const hold = await table.take(runId, await headOf(table, runId), takerOf(name))
  if (hold === undefined) throw new Error(`${name} did not get ${runId}`)
  return hold
}

export function takerOf(name: string) {
  return { hostId: `${name}-1`, name, message: 'the test says so' }
}

/** The next lines behind a head. @param at of the host's clock, ms since 1970 */
export function rowsBehind(
  runId: string,
  { seq, hash }: Pick<RunHead, 'seq' | 'hash'>,
  events: readonly HostEvent[],
  at = 0,
): ChainedLine[] {
  let prev = hash
  return events.map((event, index) => {
    const before = prev
    const chained = chainLine({ seq: seq + index + 1, at, runId, source: 'host', event, prev: before })
    prev = chained.hash
    return { seq: seq + index + 1, prev: before, hash: chained.hash, body: chained.line }
  })
}

/** An event that says nothing. */
export function noteOf(message: string): HostEvent {
  return { type: 'vm-keep-failed', message }
}
