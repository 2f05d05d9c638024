import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newRunId } from '../../host/journal/run-store.ts'
import type { PostgresServer } from '../../test/support/postgres.ts'
import { HostProcesses, newDatabase, openObserver, startServer } from './fleet-place.ts'
import { addWaitingRuns, tableBytes } from './fleet-rows.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startServer()
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

describe('the benchmark of a fleet', () => {
  it('has hosts that report the first and the last line of a run, and continue one whose answer came', async () => {
    const address = await newDatabase(server)
    await using fleet = await openObserver(address)
    await using hosts = new HostProcesses(address, 1)
    await hosts.set(1, 'wait')
    const runId = newRunId()
    await fleet.add(runId, { priority: 'normal', isContinued: false })
    expect(await hosts.report(runId)).toMatchObject({ runId, host: 'host0', hasEnded: false })
    await expect.poll(async () => (await fleet.runs.head(runId))?.waits).toBe(true)
    const seen = await fleet.runs.head(runId)
    if (seen === undefined) throw new Error('the run is gone')
    const answer = { type: 'vm-keep-failed', message: 'the answer' } as const
    const queue = { priority: 'normal', isContinued: true } as const
    expect(await fleet.runs.writeFree(runId, seen, answer, (tx) => fleet.jobs.add(tx, runId, queue))).toBe(
      'written',
    )
    expect(await hosts.report(runId)).toMatchObject({ hasEnded: false })
    expect(await hosts.report(runId)).toMatchObject({ hasEnded: true })
    expect(await fleet.runs.head(runId)).toMatchObject({ hasEnded: true })
  })

  it('adds runs that wait as a submission does: with a job and a place of their lane', async () => {
    const address = await newDatabase(server)
    await using fleet = await openObserver(address)
    await addWaitingRuns(fleet, { runs: 300, lanes: 7, seed: 3, unservable: 5, people: 4, ended: 3 })
    // Two more: the run whose job the others copy, and the one behind those that no host serves.
    expect(await fleet.status()).toEqual({ waiting: 307, atWork: 0, waitingForPeople: 4, ended: 3 })
    expect(await fleet.jobs.addLost()).toEqual([])
    const [lanes] = await fleet.database.query<{ count: number }>(
      'SELECT count(DISTINCT lane)::integer FROM caisson.runs',
    )
    expect(lanes).toEqual({ count: 9 })
    expect(await tableBytes(fleet.database)).toEqual(expect.any(Object))
  })
})
