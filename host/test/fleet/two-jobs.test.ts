// A run with two jobs, which a host leaves that is killed between the row and the job, or thaws there: no run waits for that.
// And a job of more than a day.
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { newRunId } from '../../journal/run-store.ts'
import { headOf, newDatabase, noteOf, rowsBehind } from './fleet-place.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

afterAll(() => server[Symbol.asyncDispose]())

const start = { priority: 'normal', isContinued: false } as const

async function addTo(fleet: Fleet, lane: string): Promise<string> {
  const runId = newRunId()
  await fleet.add(runId, { ...start, lane })
  return runId
}

it.each([
  ['is tried again', `state = 'retry', start_after = now() + interval '1 second'`],
  ['seems to be at work', `state = 'active', heartbeat_on = now()`],
])(
  'a run whose earlier job %s is carried out once, and other runs start meanwhile',
  async (_, left) => {
    await using fleet = await Fleet.open(await newDatabase(server), {
      ...{ name: 'host', version: '1', slots: 3, warn: () => undefined },
    })
    const runId = await addTo(fleet, 'a')
    const begun: string[] = []
    const partsOf = (id: string) => begun.filter((one) => one === id).length
    const over = Promise.withResolvers<void>()
    await fleet.work(async (hold) => {
      begun.push(hold.runId)
      if (hold.runId === runId && partsOf(runId) === 1) return 'waits'
      if (hold.runId === runId) await over.promise
      const rows = rowsBehind(hold.runId, await headOf(fleet.runs, hold.runId), [noteOf('end')])
      await fleet.runs.append(hold, rows, { ends: true })
      return 'ended'
    })
    await expect.poll(() => fleet.status()).toMatchObject({ waitingForPeople: 1 })
    await expect.poll(() => fleet.jobs.counts()).toEqual({ waiting: 0, atWork: 0 })
    await fleet.database.query(
      `UPDATE caisson_queue.job SET ${left}, completed_on = NULL WHERE singleton_key = $1`,
      [runId],
    )
    // Its answer.
    await fleet.database.transaction((tx) => fleet.jobs.add(tx, runId, { ...start, isContinued: true }))
    const others: string[] = []
    for (let count = 0; count < 4; count += 1) others.push(await addTo(fleet, 'b'))
    await expect.poll(() => others.map(partsOf), { timeout: 5_000 }).toEqual([1, 1, 1, 1])
    await expect.poll(() => partsOf(runId), { timeout: 25_000 }).toBe(2)
    // What is left of the other job is due by now.
    await sleep(3_000)
    const later = await addTo(fleet, 'b')
    await expect.poll(() => partsOf(later), { timeout: 5_000 }).toBe(1)
    expect(await fleet.placeOf(runId)).toBeUndefined()
    expect(await headOf(fleet.runs, runId)).toMatchObject({ epoch: 2, hasEnded: false })
    over.resolve()
    await expect.poll(async () => (await headOf(fleet.runs, runId)).hasEnded).toBe(true)
    expect(partsOf(runId)).toBe(2)
  },
  60_000,
)

it('a run that is at work for longer than a day stays with its host', async () => {
  await using fleet = await Fleet.open(await newDatabase(server), {
    ...{ name: 'host', version: '1', slots: 1, warn: () => undefined },
  })
  const over = Promise.withResolvers<void>()
  const begun: string[] = []
  await fleet.work(async ({ runId }) => {
    begun.push(runId)
    await over.promise
    return 'ended'
  })
  const runId = await addTo(fleet, 'a')
  await expect.poll(() => begun).toEqual([runId])
  await fleet.database.query(
    `UPDATE caisson_queue.job SET started_on = now() - interval '23 hours' WHERE singleton_key = $1`,
    [runId],
  )
  const hoursAtWork = async () => {
    const [row] = await fleet.database.query<{ hours: number }>(
      `SELECT extract(epoch FROM now() - started_on)::float / 3600 AS hours FROM caisson_queue.job WHERE singleton_key = $1`,
      [runId],
    )
    return row?.hours
  }
  await expect.poll(hoursAtWork, { timeout: 8_000 }).toBeLessThan(1)
  over.resolve()
})
