/** What the hosts and people of a fleet ask for, timed at the size that its tables have. */
import { PgBoss } from 'pg-boss'
import type { FleetAddress } from '../../host/fleet/address.ts'
import { Claims } from '../../host/fleet/claims.ts'
import type { FleetDatabase } from '../../host/fleet/database.ts'
import type { Fleet } from '../../host/fleet/fleet.ts'
import { RunRows } from '../../host/fleet/run-rows.ts'
import { RunTable } from '../../host/fleet/run-table.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import type { Figures } from './bench.ts'
import { figureOf, reportProgress, round } from './figures.ts'
import { stuckLane } from './fleet-rows.ts'

const waiting = { priority: 'normal', isContinued: false } as const
const urgent = { priority: 'high', isContinued: false } as const
const continued = { priority: 'normal', isContinued: true } as const
/** A statement that takes this long in all is not repeated. */
const enoughMs = 20_000
const largestSmallLane = 2_000

export async function timeStatements(fleet: Fleet, address: FleetAddress): Promise<Figures> {
  const { database } = fleet
  const queue = await openQueue(address)
  const claims = claimsOf(fleet, database, 'bench')
  try {
    return {
      submitToSmallLaneMs: await timed('submit', 20, () =>
        fleet.add(newRunId(), { ...waiting, lane: 'quiet' }),
      ),
      submitToLargeLaneMs: await timed('submit, large lane', 20, () => {
        return fleet.add(newRunId(), { ...waiting, lane: 'lane1' })
      }),
      submitHighMs: await submitBeforeAll(fleet),
      // Choosing, its job and the run: one transaction.
      takeMs: await timed('take', 50, () => claims.next()),
      takeOfStuckLaneMs: await timed('take, first of the lane that nobody serves', 3, async () => {
        // The lane is next, as after a while without work.
        await database.query('UPDATE caisson.lanes SET tag = -1 WHERE lane = $1', [stuckLane])
        await fleet.add(newRunId(), { ...waiting, lane: stuckLane })
        await claims.next()
      }),
      answerMs: await answers(fleet),
      statusMs: await timed('status', 5, () => fleet.status()),
      hostsMs: await timed('hosts', 5, () => fleet.hosts()),
      signalsMs: await timed('signals', 5, () => fleet.signals()),
      whyWaitsMs: await timed('why it waits', 5, async () => {
        const [last] = await database.query<{ runId: string }>(
          `SELECT run_id AS "runId" FROM caisson.runs WHERE lane = 'lane1' AND tag IS NOT NULL ORDER BY tag DESC LIMIT 1`,
        )
        await fleet.whyWaits(last?.runId ?? '')
      }),
      submitBoundedMs: await timed('submit with bounds', 5, () => {
        const bounds = { maxWaiting: 10_000_000, maxWaitingPerLane: 1_000_000 }
        return fleet.add(newRunId(), { ...waiting, lane: 'lane1', bounds })
      }),
      lists: await lists(database),
      lookForLostMs: await timed('look for lost runs', 3, () => fleet.jobs.addLost()),
      monitorMs: await timed('monitor of the queue', 3, () => queue.supervise('drive')),
    }
  } finally {
    await queue.stop({ graceful: false })
  }
}

/** As the service lists them. */
async function lists(database: FleetDatabase): Promise<Figures> {
  const rows = new RunRows(database)
  const kinds = ['queued', 'sleeping', 'running', 'waiting', 'completed', 'failed'] as const
  const figures: Record<string, unknown> = { allMs: await timed('list', 5, () => rows.find({ limit: 50 })) }
  for (const status of kinds)
    figures[`${status}Ms`] = await timed(`list of ${status}`, 5, () => {
      return rows.find({ filter: { status }, limit: 50 })
    })
  figures.asksMs = await timed('open questions', 5, () => rows.find({ asks: true, limit: 50 }))
  return figures
}

/** Of vacuum with its statistics, for each table that grows. */
export async function timeVacuum(database: FleetDatabase): Promise<Figures> {
  const figures: Record<string, unknown> = {}
  for (const table of ['caisson.runs', 'caisson.journal', 'caisson_queue.job']) {
    const since = performance.now()
    await database.query(`VACUUM (ANALYZE) ${table}`)
    figures[`${table}Ms`] = round(performance.now() - since)
  }
  return figures
}

/** A queue without a part in its upkeep. */
export async function openQueue({ connection }: FleetAddress): Promise<PgBoss> {
  const own = { supervise: false, schedule: false, migrate: false, createSchema: false }
  const queue = new PgBoss({ connectionString: connection, schema: 'caisson_queue', ...own })
  queue.on('error', (error) => void process.stderr.write(`${error.message}\n`))
  return await queue.start()
}

/** What a host chooses by. */
export function claimsOf(fleet: Fleet, database: FleetDatabase, hostId: string): Claims {
  return new Claims({
    ...{ database, runs: new RunTable(database), host: { hostId, name: hostId, version: '1' } },
    facts: () => ({}),
    fetch: (tx, priority) => fleet.jobs.fetch(tx, priority),
  })
}

/** Runs that come before all others of their lane, by how many wait there. */
async function submitBeforeAll(fleet: Fleet): Promise<Figures> {
  const lanes = await fleet.database.query<{ lane: string; waiting: number }>(
    `SELECT DISTINCT ON (length(waiting::text)) lane, waiting FROM (
       SELECT lane, count(*)::integer AS waiting FROM caisson.runs WHERE tag IS NOT NULL GROUP BY lane
     ) AS sizes WHERE waiting < $1 ORDER BY length(waiting::text), waiting DESC`,
    [largestSmallLane],
  )
  const figures: Record<string, unknown> = {}
  for (const { lane, waiting } of lanes)
    figures[`before${waiting}`] = await timed(`submit before ${waiting}`, 3, () => {
      return fleet.add(newRunId(), { ...urgent, lane })
    })
  return figures
}

/** The line of an answer and its job. */
async function answers(fleet: Fleet): Promise<Figures> {
  const samples: number[] = []
  for (let count = 0; count < 20; count += 1) {
    const runId = newRunId()
    await fleet.database.transaction(async (tx) => {
      await fleet.runs.create(tx, runId, 'quiet')
      await tx.query('UPDATE caisson.runs SET waits = true WHERE run_id = $1', [runId])
    })
    const seen = await fleet.runs.head(runId)
    if (seen === undefined) throw new Error(`the fleet has no run ${runId}`)
    const event = { type: 'vm-keep-failed', message: 'the answer' } as const
    const since = performance.now()
    await fleet.runs.writeFree(runId, seen, event, (tx) => fleet.jobs.add(tx, runId, continued))
    samples.push(performance.now() - since)
    if (samples.reduce((sum, one) => sum + one, 0) > enoughMs) break
  }
  return { ...figureOf(samples) }
}

async function timed(name: string, count: number, work: () => Promise<unknown>): Promise<Figures> {
  const samples: number[] = []
  for (let turn = 0; turn < count; turn += 1) {
    const since = performance.now()
    try {
      await work()
    } catch (error) {
      return { failedAfterMs: round(performance.now() - since), error: String(error).slice(0, 200) }
    }
    samples.push(performance.now() - since)
    if (samples.reduce((sum, one) => sum + one, 0) > enoughMs) break
  }
  const figure = figureOf(samples)
  reportProgress(`${name}: ${figure.p50} ms`)
  return { ...figure }
}
