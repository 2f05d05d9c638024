// A real PostgreSQL server with a replica, and with copies from before: what a host does that knows more of
// a run than the database that it comes back to.
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { MovingAddress, startCopy } from '../../../test/support/postgres-copies.ts'
import { parseFleetAddress } from '../../fleet/address.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { FleetFence } from '../../fleet/fence.ts'
import { Fleet } from '../../fleet/fleet.ts'
import type { RunTable } from '../../fleet/run-table.ts'
import { newRunId } from '../../journal/run-store.ts'
import { headOf, noteOf, rowsBehind, takeNow } from './fleet-place.ts'

const options = { name: 'host', version: '1', slots: 1, warn: () => undefined }
const waiting = { priority: 'normal', isContinued: false } as const
const opened: AsyncDisposable[] = []

afterEach(async () => {
  for (const one of opened.splice(0).toReversed()) await one[Symbol.asyncDispose]()
})

function use<T extends AsyncDisposable>(one: T): T {
  opened.push(one)
  return one
}

/** A run that this host has, and writes to. */
class Written {
  readonly runId: string
  readonly fence: FleetFence
  #end: { seq: number; hash: string }

  private constructor(runId: string, fence: FleetFence, end: { seq: number; hash: string }) {
    this.runId = runId
    this.fence = fence
    this.#end = end
  }

  static async begin(fleet: Fleet): Promise<Written> {
    const runId = newRunId()
    await fleet.add(runId, waiting)
    const hold = await takeNow(fleet.runs, runId, 'host')
    const head = await headOf(fleet.runs, runId)
    return new Written(runId, new FleetFence(fleet.runs, hold, head), head)
  }

  /** A line that starts an effect: resolves once it counts. */
  async write(text: string): Promise<void> {
    const event: HostEvent = noteOf(text)
    const [row] = rowsBehind(this.runId, this.#end, [event])
    if (row === undefined) throw new Error('no row')
    this.#end = row
    await this.fence.append(row, { event, isBarrier: true })
  }
}

const seqOf = async (table: RunTable, runId: string) => (await headOf(table, runId)).seq
const admin = async (server: PostgresServer) =>
  await FleetDatabase.connect(parseFleetAddress(server.address, 'the test'))

/** The replica gets nothing more of the primary. */
async function cutOff(replica: PostgresServer): Promise<void> {
  await using database = await admin(replica)
  await database.query("ALTER SYSTEM SET primary_conninfo = ''")
  await database.query('SELECT pg_reload_conf()')
  const count = async () => (await database.query('SELECT FROM pg_stat_wal_receiver')).length
  await expect.poll(count, { timeout: 20_000 }).toBe(0)
}

async function promote(replica: PostgresServer): Promise<void> {
  await using database = await admin(replica)
  expect(await database.query('SELECT pg_promote() AS done')).toEqual([{ done: true }])
}

it('a host that comes back to a promoted replica without its last lines is refused, and says so', async () => {
  const primary = use(await PostgresServer.start())
  const address = new MovingAddress(await temporaryFolder('failover'))
  await address.moveTo(primary)
  const fleet = use(await Fleet.open(parseFleetAddress(address.of('postgres'), 'the test'), options))
  const replica = use(await startCopy(primary, true))
  const ahead = await Written.begin(fleet)
  const level = await Written.begin(fleet)
  await ahead.write('on both')
  await level.write('on both')
  await using follower = await admin(replica)
  const arrived = async () =>
    await follower.query('SELECT FROM caisson.runs WHERE run_id = $1 AND seq = 1', [level.runId])
  await expect.poll(async () => (await arrived()).length, { timeout: 20_000 }).toBe(1)
  await cutOff(replica)
  await ahead.write('on the primary alone')
  await primary.kill()
  // What comes now waits.
  const refused = expect(ahead.write('an effect')).rejects.toMatchObject({
    code: 'run_busy',
    message: expect.stringMatching(/its journal ends at line 1 with another hash/),
  })
  const continued = level.write('an effect')
  await sleep(300)
  expect([ahead.fence.isOwn(), level.fence.isOwn()]).toEqual([true, true])
  await promote(replica)
  await address.moveTo(replica)
  await refused
  await continued
  expect([ahead.fence.isOwn(), level.fence.isOwn()]).toEqual([false, true])
  expect(await seqOf(fleet.runs, ahead.runId)).toBe(1)
  // The next host has it at an epoch that the refused one cannot pass for.
  await takeNow(fleet.runs, ahead.runId, 'next')
  await expect(ahead.write('once more')).rejects.toMatchObject({ code: 'run_busy' })
  expect(await seqOf(fleet.runs, ahead.runId)).toBe(2)
}, 120_000)

it('with a synchronous replica no line counts that the replica lacks', async () => {
  const primary = use(await PostgresServer.start())
  const address = new MovingAddress(await temporaryFolder('failover'))
  await address.moveTo(primary)
  const fleet = use(await Fleet.open(parseFleetAddress(address.of('postgres'), 'the test'), options))
  const replica = use(await startCopy(primary, true))
  await using server = await admin(primary)
  await server.query("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
  await server.query('SELECT pg_reload_conf()')
  const states = async () => await server.query('SELECT sync_state FROM pg_stat_replication')
  await expect.poll(states, { timeout: 20_000 }).toEqual([{ sync_state: 'sync' }])
  const run = await Written.begin(fleet)
  await run.write('on both')
  await cutOff(replica)
  let isStored = false
  const effect = run.write('an effect').then(() => {
    isStored = true
  })
  await sleep(1_500)
  expect(isStored).toBe(false)
  await primary.kill()
  await promote(replica)
  await address.moveTo(replica)
  await effect
  expect([run.fence.isOwn(), await seqOf(fleet.runs, run.runId)]).toEqual([true, 2])
}, 120_000)

it('after a restore of an older copy, hosts that are ahead are refused, and runs without a job are queued', async () => {
  const server = use(await PostgresServer.start())
  const address = new MovingAddress(await temporaryFolder('restore'))
  await address.moveTo(server)
  const fleet = use(await Fleet.open(parseFleetAddress(address.of('postgres'), 'the test'), options))
  const ahead = await Written.begin(fleet)
  const idle = newRunId()
  await fleet.add(idle, waiting)
  await ahead.write('in the copy')
  const copy = use(await startCopy(server, false))
  await ahead.write('not in the copy')
  const later = newRunId()
  await fleet.add(later, waiting)
  await server.kill()
  await address.moveTo(copy)
  await expect(ahead.write('an effect')).rejects.toMatchObject({ code: 'run_busy' })
  expect(await seqOf(fleet.runs, ahead.runId)).toBe(1)
  // A submission that the copy lacks is not there: whoever made it sees that, and sends it again.
  expect(await fleet.runs.head(later)).toBeUndefined()
  // As where only the rows were restored.
  await fleet.database.query('DELETE FROM caisson_queue.job')
  expect((await fleet.jobs.addLost()).toSorted()).toEqual([ahead.runId, idle].toSorted())
  const order: string[] = []
  const restarted = use(await Fleet.open(parseFleetAddress(address.of('postgres'), 'the test'), options))
  await restarted.work(async (hold) => {
    order.push(hold.runId)
    await restarted.runs.append(
      hold,
      rowsBehind(hold.runId, await headOf(restarted.runs, hold.runId), [noteOf('end')]),
      { ends: true },
    )
    return 'ended'
  })
  await expect.poll(() => order.toSorted(), { timeout: 30_000 }).toEqual([ahead.runId, idle].toSorted())
  await expect.poll(() => restarted.status(), { timeout: 30_000 }).toMatchObject({ ended: 2, waiting: 0 })
}, 120_000)
