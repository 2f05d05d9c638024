import { existsSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { DirectoryBlobs } from '../../fleet/blob-store.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { type CarriedRun, FleetRuns, type Segment } from '../../fleet-runs/fleet-runs.ts'
import { findFleetMark } from '../../journal/fleet-mark.ts'
import { newRunId, RunStore } from '../../journal/run-store.ts'
import { RunLock } from '../../workspace/run-lock.ts'
import { headOf, newDatabase, noteOf, rowsBehind } from './fleet-place.ts'

let server: PostgresServer
let fleet: Fleet

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

beforeEach(async () => {
  const options = { name: 'host', version: '1', slots: 2, warn: () => undefined }
  fleet = await Fleet.open(await newDatabase(server), options)
  return () => fleet[Symbol.asyncDispose]()
})

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

/** A host whose runs are in a folder of the test. */
async function openRuns(): Promise<{ runs: RunStore; fences: FleetRuns }> {
  const folder = await temporaryFolder('fleet-runs')
  const runs = new RunStore({ runs: path.join(folder, 'runs'), locks: path.join(folder, 'locks') })
  return { runs, fences: new FleetRuns(fleet, new DirectoryBlobs(path.join(folder, 'blobs'))) }
}

it('a host that gets its own run again waits until the part before has let go of the folder', async () => {
  const { runs, fences } = await openRuns()
  const runId = newRunId()
  const own = path.join(runs.paths(runId).directory, 'in-use')
  const begun: Segment[] = []
  const cancelled: number[] = []
  const firstEnd = Promise.withResolvers<void>()
  await fences.work(runs, async (segment) => {
    begun.push(segment)
    const part = begun.length
    const fence = fences.of(runId)
    const [line] = rowsBehind(runId, await headOf(fleet.runs, runId), [noteOf(`part ${part}`)])
    if (fence === undefined || line === undefined) throw new Error('the run has no fence')
    if (part === 1) {
      await mkdir(path.dirname(own), { recursive: true })
      await writeFile(own, 'in use')
    }
    await fence.append(line, { event: noteOf(''), isBarrier: true })
    if (part > 1) await end(runId)
    const cancel = async () => void cancelled.push(part)
    return { ended: part === 1 ? firstEnd.promise : Promise.resolve(), cancel } satisfies CarriedRun
  })
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  await expect.poll(() => existsSync(own)).toBe(true)
  // As after a freeze: the queue offers the run to this host again, in its other slot.
  await fleet.database.query('DELETE FROM caisson_queue.job')
  await fleet.jobs.addLost()
  await expect.poll(() => cancelled, { timeout: 10_000 }).toEqual([1])
  expect(begun).toHaveLength(1)
  expect(existsSync(own)).toBe(true)
  firstEnd.resolve()
  await expect.poll(async () => (await headOf(fleet.runs, runId)).hasEnded, { timeout: 10_000 }).toBe(true)
  expect(begun).toEqual([
    { runId, isNew: true },
    { runId, isNew: false },
  ])
  expect(existsSync(own)).toBe(false)
  await fleet.jobs.drain()
  expect(fences.of(runId)).toBeUndefined()
})

it('a run that this host has taken and not begun is reached by its rows, and then by its process', async () => {
  const { runs, fences } = await openRuns()
  const runId = newRunId()
  const paths = runs.paths(runId)
  const [taken, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const over = Promise.withResolvers<void>()
  await fences.work(runs, async () => {
    taken.resolve()
    await go.promise
    return { ended: over.promise, cancel: async () => undefined }
  })
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  await taken.promise
  const handle = await fences.elsewhere(paths, { orBeginning: true })
  expect(handle?.id).toBe(runId)
  // Who continues it in this process meets no other one.
  expect(await fences.elsewhere(paths)).toBeUndefined()
  go.resolve()
  await expect.poll(() => fences.elsewhere(paths, { orBeginning: true })).toBeUndefined()
  await end(runId)
  over.resolve()
  await expect.poll(() => fences.elsewhere(paths, { orBeginning: true })).toBeNull()
  await handle?.detach()
  await fleet.jobs.drain()
})

it('a run without a line in the fleet begins without what this host has left of it', async () => {
  const { runs, fences } = await openRuns()
  const runId = newRunId()
  const { directory } = runs.paths(runId)
  await mkdir(directory, { recursive: true })
  await writeFile(path.join(directory, 'journal.jsonl'), 'a line that was never stored\n')
  const found: boolean[] = []
  await fences.work(runs, async () => {
    found.push(existsSync(directory))
    await end(runId)
    return { ended: Promise.resolve(), cancel: async () => undefined }
  })
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  await expect.poll(() => found).toEqual([false])
  await fleet.jobs.drain()
})

it('a run that waits for the limit of its model server uses up no try of its host, and is begun again once the time has passed', async () => {
  const { runs, fences } = await openRuns()
  const runId = newRunId()
  let begun = 0
  const message = 'the model server takes requests again after 18:00'
  const away = { end: { reason: 'model_unreachable', message } }
  await fences.work(runs, async () => {
    begun += 1
    const isLast = begun > 9
    if (isLast) await end(runId)
    const ended = Promise.resolve(isLast ? undefined : away)
    return { ended, cancel: async () => undefined }
  })
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  await expect.poll(() => fleet.whyWaits(runId)).toMatch(/^Its model server takes no requests for now/)
  const counted = begun
  await expect.poll(() => fleet.requests.failures(runId)).toEqual([])
  expect(begun).toBe(counted)
  for (let round = 1; round < 10; round += 1) {
    // Five minutes later; the pause of the queue, which may begin a moment later, has passed too.
    await fleet.database.query('UPDATE caisson.runs SET not_before = now() WHERE run_id = $1', [runId])
    const begunAfterPause = async () => {
      await fleet.database.query('UPDATE caisson_queue.job SET start_after = now() WHERE start_after > now()')
      return begun
    }
    await expect.poll(begunAfterPause, { timeout: 10_000 }).toBe(round + 1)
    if (round < 9)
      await expect.poll(() => fleet.whyWaits(runId), { timeout: 10_000 }).toMatch(/^Its model server/)
  }
  await expect.poll(async () => (await headOf(fleet.runs, runId)).hasEnded, { timeout: 10_000 }).toBe(true)
  expect(await fleet.requests.failures(runId)).toEqual([])
}, 60_000)

it('a run whose lock another call has, such as to fork it, keeps its folder, uses up no try of its host, and begins once the lock is free [V.05]', async () => {
  const { runs, fences } = await openRuns()
  const runId = newRunId()
  const { directory, locks } = runs.paths(runId)
  const inUse = path.join(directory, 'in-use')
  await mkdir(directory, { recursive: true })
  await writeFile(inUse, 'in use')
  const lock = await RunLock.take(locks, runId)
  let begun = 0
  await fences.work(runs, async () => {
    begun += 1
    // Somebody has taken it since the folder was made.
    if (begun < 5) throw new CaissonError('run_busy', `${runId} is in use`)
    await end(runId)
    return { ended: Promise.resolve(), cancel: async () => undefined }
  })
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  const epochAfterPause = async () => {
    await fleet.database.query('UPDATE caisson_queue.job SET start_after = now() WHERE start_after > now()')
    return (await headOf(fleet.runs, runId)).epoch
  }
  // More often than a host tries a run that fails.
  await expect.poll(epochAfterPause, { timeout: 20_000 }).toBeGreaterThan(4)
  expect([begun, existsSync(inUse)]).toEqual([0, true])
  await lock[Symbol.asyncDispose]()
  const hasEnded = async () => {
    await epochAfterPause()
    return (await headOf(fleet.runs, runId)).hasEnded
  }
  await expect.poll(hasEnded, { timeout: 20_000 }).toBe(true)
  expect([begun, existsSync(inUse)]).toEqual([5, false])
  expect(await fleet.requests.failures(runId)).toEqual([])
}, 60_000)

it('a run that a host takes while the store of files is away uses up no try, goes to other hosts first, and begins once the store is back', async () => {
  const { runs, fences } = await openRuns()
  const runId = newRunId()
  let begun = 0
  await fences.work(runs, async () => {
    begun += 1
    if (begun < 10)
      throw new CaissonError('state_unavailable', 'reading a file failed 6 times', {
        cause: new Error('ECONNREFUSED'),
      })
    await end(runId)
    return { ended: Promise.resolve(), cancel: async () => undefined }
  })
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  const avoided = async () => {
    const [row] = await fleet.database.query<{ host: string | null }>(
      'SELECT avoids_host AS host FROM caisson.runs WHERE run_id = $1 AND tag IS NOT NULL',
      [runId],
    )
    return row?.host
  }
  await expect.poll(avoided).toBe(fleet.hostId)
  const hasEnded = async () => {
    // The time for other hosts, and the pause of the queue, have passed.
    await fleet.database.query('UPDATE caisson.runs SET wants_until = now() WHERE wants_until > now()')
    await fleet.database.query('UPDATE caisson_queue.job SET start_after = now() WHERE start_after > now()')
    return (await headOf(fleet.runs, runId)).hasEnded
  }
  await expect.poll(hasEnded, { timeout: 40_000 }).toBe(true)
  expect(begun).toBe(10)
  expect(await fleet.requests.failures(runId)).toEqual([])
}, 60_000)

it('what is left of a folder that could not be made is known as one of a run of the fleet, which is listed once', async () => {
  const { fences, runs } = await openRuns()
  const runId = newRunId()
  const paths = runs.paths(runId)
  await fleet.add(runId, { priority: 'normal', isContinued: false })
  // Another host began it, and the store has lost a file of it.
  const taker = { hostId: 'other-1', name: 'other', message: 'm' }
  const hold = await fleet.runs.take(runId, await headOf(fleet.runs, runId), taker)
  if (hold === undefined) throw new Error('the run was not taken')
  const files = [{ name: 'run.json', sha256: 'a'.repeat(64), bytes: 2 }]
  await fleet.runs.append(hold, rowsBehind(runId, await headOf(fleet.runs, runId), [noteOf('a line')]))
  await fleet.database.query('UPDATE caisson.runs SET files = $2::jsonb WHERE run_id = $1', [
    runId,
    JSON.stringify(files),
  ])
  await fleet.database.transaction(async (tx) => {
    await fleet.runs.release(hold, false, tx)
    await fleet.jobs.enterAgain(tx, runId)
  })
  await fences.work(runs, async () => {
    throw new Error('it has no files')
  })
  await expect.poll(async () => (await fleet.requests.failures(runId)).length).toBeGreaterThan(0)
  await fleet.jobs.drain()
  expect(existsSync(paths.journal)).toBe(true)
  expect(await findFleetMark(paths.journal)).toEqual({ fleet: fleet.database.address.shown })
  const folders = { runs: path.dirname(paths.directory), locks: paths.locks }
  const listed = await new RunStore(folders, () => undefined, fences.source).list()
  expect(listed.map(({ id }) => id)).toEqual([runId])
}, 30_000)

/** Ends a run, as whoever has it. */
async function end(runId: string): Promise<void> {
  const head = await headOf(fleet.runs, runId)
  const hold = { runId, hostId: fleet.hostId, epoch: head.epoch }
  await fleet.runs.append(hold, rowsBehind(runId, head, [noteOf('end')]), { ends: true })
}
