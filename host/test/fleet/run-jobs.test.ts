import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { parseFleetAddress } from '../../fleet/address.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { grantsOf } from '../../fleet/migrations.ts'
import { newRunId } from '../../journal/run-store.ts'
import { headOf, noteOf, rowsBehind, start, useDatabases } from './fleet-place.ts'

const { address, openFleet } = useDatabases()

/** A host that notes which runs it got, and ends each at once. */
async function workAll(fleet: Fleet, order: string[]): Promise<void> {
  await fleet.work(async (hold) => {
    const { runId } = hold
    order.push(runId)
    await fleet.runs.append(hold, rowsBehind(runId, await headOf(fleet.runs, runId), [noteOf('end')]), {
      ends: true,
    })
    return 'ended'
  })
}

it('a run and its job are made in one transaction, or none of them', async () => {
  await using fleet = await openFleet('host')
  const lost = newRunId()
  const failing = fleet.add(lost, start, async () => {
    throw new Error('the rest of the transaction failed')
  })
  await expect(failing).rejects.toThrow(/the rest of the transaction failed/)
  expect(await fleet.runs.head(lost)).toBeUndefined()
  expect(await fleet.jobs.counts()).toEqual({ waiting: 0, atWork: 0 })
  const kept = newRunId()
  await fleet.add(kept, start)
  expect(await fleet.jobs.counts()).toEqual({ waiting: 1, atWork: 0 })
  // Once more, as by a second answer: it has a job that waits.
  await fleet.database.transaction((tx) => fleet.jobs.add(tx, kept, { ...start, isContinued: true }))
  expect(await fleet.jobs.counts()).toEqual({ waiting: 1, atWork: 0 })
  const order: string[] = []
  await workAll(fleet, order)
  await expect.poll(() => order).toEqual([kept])
})

it('lanes take turns, whoever asks for more, and priorities count within a lane', async () => {
  await using fleet = await openFleet('host')
  const names = new Map<string, string>()
  const add = async (lane: string, name: string, how: object = {}) => {
    const runId = newRunId()
    names.set(runId, name)
    await fleet.add(runId, { ...start, ...how, lane })
  }
  for (const name of ['a1', 'a2', 'a3', 'a4']) await add('a', name)
  for (const name of ['b1', 'b2']) await add('b', name)
  await add('a', 'a-low', { priority: 'low' })
  await add('a', 'a-high', { priority: 'high' })
  await add('a', 'a-again', { isContinued: true })
  await add('c', 'c1')
  const order: string[] = []
  await workAll(fleet, order)
  await expect.poll(() => order.length, { timeout: 30_000 }).toBe(names.size)
  const got = order.map((runId) => names.get(runId) ?? '')
  // The three first runs of the lanes, in any order of the same tag.
  expect(got.slice(0, 3).toSorted()).toEqual(['a-again', 'b1', 'c1'])
  expect(got.slice(3, 5).toSorted()).toEqual(['a-high', 'b2'])
  expect(got.slice(5)).toEqual(['a1', 'a2', 'a3', 'a4', 'a-low'])
})

it('a lane that was quiet has saved nothing for later', async () => {
  await using fleet = await openFleet('host')
  const order: string[] = []
  const lanes = new Map<string, string>()
  const add = async (lane: string) => {
    const runId = newRunId()
    lanes.set(runId, lane)
    await fleet.add(runId, { ...start, lane })
  }
  for (let index = 0; index < 5; index += 1) await add('busy')
  await workAll(fleet, order)
  await expect.poll(() => order.length, { timeout: 30_000 }).toBe(5)
  await fleet.jobs.drain()
  for (let index = 0; index < 3; index += 1) await add('busy')
  for (let index = 0; index < 3; index += 1) await add('quiet')
  await using second = await openFleet('second')
  await workAll(second, order)
  await expect.poll(() => order.length, { timeout: 30_000 }).toBe(11)
  const later = order.slice(5).map((runId) => lanes.get(runId) ?? '')
  for (const pair of [later.slice(0, 2), later.slice(2, 4)])
    expect(pair.toSorted()).toEqual(['busy', 'quiet'])
})

it('a host pulls as many runs as it has slots; one that ends hands its runs to the next', async () => {
  const leaving = await openFleet('leaving', { slots: 2 })
  await using next = await openFleet('next', { slots: 3 })
  const runIds = [newRunId(), newRunId(), newRunId()]
  for (const runId of runIds) await leaving.add(runId, start)
  const begun: string[] = []
  const leave = Promise.withResolvers<void>()
  await leaving.work(async ({ runId }) => {
    begun.push(runId)
    await leave.promise
    return 'again'
  })
  await expect.poll(() => begun.length, { timeout: 10_000 }).toBe(2)
  await sleep(1_500)
  expect(begun).toHaveLength(2)
  expect(await leaving.hosts()).toMatchObject([
    { name: 'leaving', slots: 2, runs: 2 },
    { name: 'next', slots: 3, runs: 0 },
  ])
  expect(await leaving.status()).toMatchObject({ waiting: 1, atWork: 2 })
  const drained = leaving.jobs.drain()
  leave.resolve()
  await drained
  await leaving[Symbol.asyncDispose]()
  const since = performance.now()
  const order: string[] = []
  await workAll(next, order)
  await expect.poll(() => order.toSorted(), { timeout: 15_000 }).toEqual(runIds.toSorted())
  // Without waiting for a sign of life.
  expect(performance.now() - since).toBeLessThan(9_000)
  for (const runId of begun) expect(await headOf(next.runs, runId)).toMatchObject({ epoch: 2 })
  await expect.poll(() => next.status()).toEqual({ waiting: 0, atWork: 0, waitingForPeople: 0, ended: 3 })
})

it('a run that waits for people is no job; its answer makes one, with the line, in one transaction', async () => {
  await using fleet = await openFleet('host')
  const runId = newRunId()
  await fleet.add(runId, start)
  let segments = 0
  await fleet.work(async (hold) => {
    segments += 1
    const head = await headOf(fleet.runs, runId)
    await fleet.runs.append(hold, rowsBehind(runId, head, [noteOf(`segment ${segments}`)]), {
      ends: segments === 2,
    })
    return segments === 2 ? 'ended' : 'waits'
  })
  await expect.poll(() => fleet.status()).toEqual({ waiting: 0, atWork: 0, waitingForPeople: 1, ended: 0 })
  expect(await fleet.jobs.addLost()).toEqual([])
  await using other = await openFleet('elsewhere', { slots: 0 })
  const seen = await headOf(other.runs, runId)
  const answer = () =>
    other.runs.writeFree(runId, seen, noteOf('answer'), (tx) =>
      other.jobs.add(tx, runId, { ...start, isContinued: true }),
    )
  const said = await Promise.all([answer(), answer(), answer()])
  expect(said.filter((one) => one === 'written')).toHaveLength(1)
  await expect.poll(() => fleet.status()).toMatchObject({ ended: 1, waiting: 0 })
  expect(segments).toBe(2)
})

it('a run whose job was lost is queued again', async () => {
  await using fleet = await openFleet('host')
  const runId = newRunId()
  await fleet.add(runId, start)
  expect(await fleet.jobs.addLost()).toEqual([])
  await fleet.database.query('DELETE FROM caisson_queue.job')
  expect(await fleet.jobs.addLost()).toEqual([runId])
  expect(await fleet.jobs.addLost()).toEqual([])
  const order: string[] = []
  await workAll(fleet, order)
  await expect.poll(() => order).toEqual([runId])
})

it('a run that fails on its hosts is tried again later and later, and each says so', async () => {
  const warnings: string[] = []
  const warn = (text: string) => void warnings.push(text)
  await using fleet = await openFleet('host', { warn })
  const runId = newRunId()
  await fleet.add(runId, start)
  await fleet.work(async () => {
    throw new Error('its image is not on this host')
  })
  await expect.poll(() => warnings.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(2)
  expect(warnings[0]).toBe(`${runId} failed on this host, and is tried again: its image is not on this host`)
  const waitingMs = async () => {
    const [row] = await fleet.database.query<{ ms: number }>(
      `SELECT extract(epoch FROM start_after - now())::float * 1000 AS ms FROM caisson_queue.job WHERE state = 'retry'`,
    )
    return row?.ms ?? 0
  }
  // The host warns before its job waits again.
  const hurry = async () =>
    (
      await fleet.database.query(
        `UPDATE caisson_queue.job SET retry_count = 1000, start_after = now() WHERE state = 'retry' RETURNING id`,
      )
    ).length
  await expect.poll(hurry, { timeout: 20_000 }).toBe(1)
  await expect.poll(waitingMs, { timeout: 20_000 }).toBeGreaterThan(10_000)
  expect(await waitingMs()).toBeLessThan(16_000)
})

it('what a job says besides its run changes nothing, and a job without a run starts none', async () => {
  await using fleet = await openFleet('host')
  const [runId, lost] = [newRunId(), newRunId()]
  await fleet.add(lost, start)
  await fleet.add(runId, start)
  await fleet.database.query('DELETE FROM caisson.runs WHERE run_id = $1', [lost])
  await fleet.database.query('UPDATE caisson_queue.job SET data = $1', [JSON.stringify({ runId: lost })])
  const order: string[] = []
  await workAll(fleet, order)
  await expect.poll(() => fleet.status(), { timeout: 10_000 }).toMatchObject({ ended: 1 })
  expect(order).toEqual([runId])
})

it('hosts that start at once share one queue, also with a role that may change no table', async () => {
  const fleets = await Promise.all(['a', 'b', 'c'].map((name) => openFleet(name, { slots: 1 })))
  for (const fleet of fleets) await fleet[Symbol.asyncDispose]()
  const owner = await FleetDatabase.open(address())
  await owner.query('CREATE ROLE host LOGIN')
  for (const grant of grantsOf('host')) await owner.query(grant)
  await owner[Symbol.asyncDispose]()
  const asHost = new URL(address().connection)
  asHost.searchParams.set('user', 'host')
  await using fleet = await Fleet.open(parseFleetAddress(asHost.href, 'the test'), {
    ...{ name: 'limited', version: '1', slots: 1, warn: () => undefined },
  })
  const runId = newRunId()
  await fleet.add(runId, start)
  const order: string[] = []
  await workAll(fleet, order)
  await expect.poll(() => order).toEqual([runId])
  await expect.poll(() => fleet.status()).toMatchObject({ ended: 1, atWork: 0 })
})
