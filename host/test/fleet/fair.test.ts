import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { noteUse, useOf } from '../../fleet/caller-use.ts'
import { Fleet, type NewRun } from '../../fleet/fleet.ts'
import { newRunId } from '../../journal/run-store.ts'
import { addRun, headOf, newDatabase, noteOf, rowsBehind, useDatabases } from './fleet-place.ts'

const { openFleet, server } = useDatabases()
const soon = { timeout: 30_000 }

async function end(fleet: Fleet, hold: Parameters<Parameters<Fleet['work']>[0]>[0]): Promise<'ended'> {
  const rows = rowsBehind(hold.runId, await headOf(fleet.runs, hold.runId), [noteOf('end')])
  await fleet.runs.append(hold, rows, { ends: true })
  return 'ended'
}

/** mulberry32. */
function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

it('lanes get their shares by weight on several hosts, whatever each has added and asks for', async () => {
  for (let seed = 1; seed <= perTier(1, 5); seed += 1) {
    const random = randomOf(seed)
    const place = await newDatabase(server())
    const open = async (name: string) =>
      await Fleet.open(place, { name, version: '1', slots: 2, warn: () => undefined })
    const hosts = await Promise.all(['a', 'b', 'c'].map(open))
    const [first] = hosts
    if (first === undefined) throw new Error('no host')
    const weights: Readonly<Record<string, number>> = { gold: 4, silver: 2, bronze: 1, greedy: 1 }
    const lanes = new Map<string, string>()
    for (const [lane, weight] of Object.entries(weights)) {
      await first.setLane(lane, { weight })
      // The greedy one adds more, and all of it with a high priority.
      const count = lane === 'greedy' ? 90 : 70
      for (let index = 0; index < count; index += 1) {
        const priority = lane === 'greedy' || random() < 0.3 ? 'high' : 'normal'
        lanes.set(await addRun(first, { lane, priority }), lane)
      }
    }
    const served: string[] = []
    for (const host of hosts)
      await host.work(async (hold) => {
        served.push(lanes.get(hold.runId) ?? '')
        await sleep(random() * 10)
        return await end(host, hold)
      })
    const measured = 80
    await expect.poll(() => served.length, { timeout: 60_000 }).toBeGreaterThanOrEqual(measured)
    const counts = Map.groupBy(served.slice(0, measured), (lane) => lane)
    for (const [lane, weight] of Object.entries(weights)) {
      const share = (counts.get(lane)?.length ?? 0) / measured
      // Of 80 runs a lane may lack or have 7: 2 turns for which it is passed by, 3 hosts that choose at once and begin in any
      // order, and 2 at the ends, where its turn has just come or gone. 7 / 80 = 0.0875.
      expect(Math.abs(share - weight / 8), `${lane} with seed ${seed}`).toBeLessThanOrEqual(7 / measured)
    }
    for (const host of hosts) await host[Symbol.asyncDispose]()
  }
}, 240_000)

it('never are more runs of a lane at work than its bound, on all hosts together', async () => {
  const hosts = await Promise.all(['a', 'b', 'c', 'd'].map((name) => openFleet(name, { slots: 4 })))
  const [first] = hosts
  if (first === undefined) throw new Error('no host')
  const lanes = new Map<string, string>()
  const atWork = new Map<string, number>()
  const most = new Map<string, number>()
  let ended = 0
  for (let index = 0; index < 24; index += 1) {
    const lane = ['bounded', 'other', 'free'][index % 3] ?? ''
    const laneSettings = lane === 'free' ? {} : { maxAtWork: lane === 'bounded' ? 3 : 1 }
    lanes.set(await addRun(first, { lane, laneSettings }), lane)
  }
  for (const host of hosts)
    await host.work(async (hold) => {
      const lane = lanes.get(hold.runId) ?? ''
      atWork.set(lane, (atWork.get(lane) ?? 0) + 1)
      most.set(lane, Math.max(most.get(lane) ?? 0, atWork.get(lane) ?? 0))
      await sleep(lane === 'other' ? 50 : 1_500)
      atWork.set(lane, (atWork.get(lane) ?? 0) - 1)
      ended += 1
      return await end(host, hold)
    })
  await expect.poll(() => ended, { timeout: 90_000 }).toBe(24)
  expect(most.get('bounded')).toBeLessThanOrEqual(3)
  expect(most.get('bounded')).toBeGreaterThan(1)
  expect(most.get('other')).toBe(1)
  // What bounds nobody shows that hosts work at the same time.
  expect(most.get('free')).toBeGreaterThan(1)
  for (const host of hosts) await host[Symbol.asyncDispose]()
}, 120_000)

it('a run that its lane keeps back says so, and begins when another has ended', async () => {
  await using fleet = await openFleet('host', { slots: 3 })
  const begun: string[] = []
  const over = Promise.withResolvers<void>()
  await fleet.work(async (hold) => {
    begun.push(hold.runId)
    await over.promise
    return await end(fleet, hold)
  })
  const run = { lane: 'one', laneSettings: { maxAtWork: 1 } }
  const first = await addRun(fleet, run)
  await expect.poll(() => begun, soon).toEqual([first])
  const second = await addRun(fleet, run)
  expect(await fleet.whyWaits(second)).toBe('1 run of its caller is at work, and at most 1 may be.')
  expect(await fleet.whyWaits(first)).toBeUndefined()
  expect(await fleet.signals()).toMatchObject({ waiting: 1, slots: { total: 3, free: 2 } })
  await expect(fleet.whyWaits(newRunId())).rejects.toMatchObject({ code: 'run_not_found' })
  over.resolve()
  await expect.poll(() => begun, soon).toEqual([first, second])
})

it('of 32 that submit at once, exactly as many get in as may wait', async () => {
  const hosts = await Promise.all(['a', 'b'].map((name) => openFleet(name, { slots: 0 })))
  const bounds = { maxWaiting: 12, maxWaitingPerLane: 5 }
  const submit = async (index: number): Promise<string> => {
    const host = hosts[index % 2]
    if (host === undefined) throw new Error('no host')
    return await addRun(host, { bounds, lane: `lane ${index % 4}` }).then(
      () => 'in',
      (error: { code: string; message: string }) => `${error.code} ${error.message}`,
    )
  }
  const said = await Promise.all(Array.from({ length: 32 }, (_, index) => submit(index)))
  expect(said.filter((one) => one === 'in')).toHaveLength(12)
  const refused = said.filter((one) => one !== 'in')
  for (const one of refused) expect(one).toMatch(/^queue_full the queue is full: \d+ of at most 12 runs wait/)
  expect(await hosts[0]?.jobs.counts()).toEqual({ waiting: 12, atWork: 0 })
  await hosts[0]?.database.query('DELETE FROM caisson.runs')
  const ofOne = await Promise.all(
    Array.from({ length: 32 }, () =>
      addRun(hosts[0] as Fleet, { bounds, lane: 'one' }).then(
        () => 1,
        () => 0,
      ),
    ),
  )
  expect(ofOne.reduce((sum: number, one) => sum + one, 0)).toBe(5)
  for (const host of hosts) await host[Symbol.asyncDispose]()
}, 60_000)

it('the earliest deadline of a priority is first, and a run whose deadline has passed goes to any host to be ended', async () => {
  await using fleet = await openFleet('host')
  const names = new Map<string, string>()
  const named = async (name: string, run: Partial<NewRun>) => void names.set(await addRun(fleet, run), name)
  await named('without', {})
  await named('late', { startWithinMs: 3_600_000 })
  await named('early', { startWithinMs: 1_800_000 })
  await named('high', { priority: 'high', startWithinMs: 7_200_000 })
  await named('passed', { startWithinMs: -1, requires: { labels: ['nowhere'] } })
  const order: string[] = []
  const late: string[] = []
  await fleet.work(async (hold, { isLate }) => {
    const name = names.get(hold.runId) ?? ''
    order.push(name)
    if (isLate) late.push(name)
    return await end(fleet, hold)
  })
  await expect.poll(() => order.length, soon).toBe(5)
  expect(late).toEqual(['passed'])
  expect(order).toEqual(['passed', 'high', 'early', 'late', 'without'])
})

it('counts what a caller uses over all hosts', async () => {
  await using fleet = await openFleet('host')
  const [one, two, other] = [
    await addRun(fleet, { caller: 'key a' }),
    await addRun(fleet, { caller: 'key a' }),
    await addRun(fleet, { caller: 'key b' }),
  ]
  await fleet.work(async (_, { lost }) => {
    await new Promise((resolve) => lost.addEventListener('abort', resolve, { once: true }))
    return 'again'
  })
  await noteUse(fleet.database, one, { tokens: 100, costUsd: 0.25 })
  await noteUse(fleet.database, one, { tokens: 50, costUsd: 0.1 })
  await noteUse(fleet.database, two, { tokens: 7, costUsd: 0 })
  await noteUse(fleet.database, other, { tokens: 1_000, costUsd: 9 })
  await expect
    .poll(() => useOf(fleet.database, 'key a'), soon)
    .toEqual({ runsAtWork: 1, runsToday: 2, tokens: 107, costUsd: 0.25 })
  await fleet.database.query(
    `UPDATE caisson.runs SET created_at = now() - interval '2 days' WHERE run_id = $1`,
    [one],
  )
  expect(await useOf(fleet.database, 'key a')).toMatchObject({ runsToday: 1, tokens: 7 })
})
