/** Why runs of a fleet wait, for people and for what starts more hosts. */
import { CaissonError } from '#specs/errors.ts'
import type { RunPriority } from '#specs/protocol/host-event.ts'
import type { FleetDatabase } from './database.ts'
import type { FleetHost, HostTable } from './host-table.ts'
import { type Fault, faultOf, Requires } from './placement.ts'

/** What a fleet lacks, such as for an autoscaler. */
export interface FleetSignals {
  /** Runs that wait for a host. */
  readonly waiting: number
  /** Of those that a host could serve: for how long the oldest has waited, seconds. 0: none waits. */
  readonly oldestWaitSeconds: number
  /** Of hosts that take runs. */
  readonly slots: { readonly total: number; readonly free: number }
  /** Runs that no host serves, by the first reason. `hosts`: no host takes runs. */
  readonly unservable: Readonly<Record<Fault | 'hosts', number>>
  /** Estimate of the time until the next run starts, ms, by those of the last minute. */
  readonly nextStartMs: number
}

interface WaitingRun {
  readonly state: 'ended' | 'people' | 'atWork' | 'waiting'
  readonly lane: string
  readonly requires: unknown
  readonly wants: string | null
  readonly laneMax: number | null
  readonly laneAtWork: number
  /** Of its lane. */
  readonly before: number
  /** Of all lanes. */
  readonly waiting: number
  readonly rank: number
  /** ms since 1970. */
  readonly startBy: number | null
  /** When it is tried again, seconds from now. */
  readonly againSeconds: number | null
  /** Until its model server is asked again. */
  readonly laterSeconds: number
}

/** What the hosts lack, for people. */
export const faultWords: Readonly<Record<Fault | 'hosts', string>> = {
  hosts: 'no host takes runs',
  labels: 'no host has their labels',
  architecture: 'no host has their architecture',
  accelerator: 'no host has their accelerator',
  memory: 'no host has their memory free',
  image: 'no host has their image',
  version: 'no host has their version',
}
const noneUnservable: FleetSignals['unservable'] = {
  ...{ hosts: 0, labels: 0, architecture: 0, accelerator: 0, memory: 0, image: 0, version: 0 },
}
/** By the rank that the run has in its lane; one that continues is before the others. */
const priorities: readonly RunPriority[] = ['high', 'high', 'normal', 'low']
/** Where nothing says more. */
const firstEstimateMs = 10_000
const longestEstimateMs = 60_000
/** Beyond it, what is before a run is not counted. */
const beforeMax = 1_000

/** Where a run waits for a host. */
export interface FleetPlace {
  /** Among the runs of its lane; 1 is next. At most 1002: how many more are before it is not counted. */
  readonly place: number
  /** Runs that wait, of all lanes. */
  readonly waiting: number
  readonly priority: RunPriority
  /** ms since 1970, of the clock of the database. The run ends if no host has begun it by then. */
  readonly startBy?: number
  /** One sentence or more, for people. */
  readonly why: string
}

/** Undefined: it does not wait for a host. @throws {CaissonError} `run_not_found` */
export async function placeOf(
  database: FleetDatabase,
  table: HostTable,
  runId: string,
): Promise<FleetPlace | undefined> {
  const run = await readWaiting(database, runId)
  if (run === undefined) throw new CaissonError('run_not_found', `the fleet has no run ${runId}`)
  if (run.state !== 'waiting') return undefined
  const { before, waiting, startBy, rank } = run
  return {
    ...{ place: before + 1, waiting, priority: priorities[rank] ?? 'normal' },
    ...(startBy === null ? {} : { startBy }),
    why: whyWaits(run, takingOf(await table.list())),
  }
}

function whyWaits(run: WaitingRun, hosts: readonly FleetHost[]): string {
  const { wants, laneMax, laneAtWork, before, againSeconds, laterSeconds } = run
  if (hosts.length === 0) return 'No host that takes runs is seen.'
  const requires = Requires.safeParse(run.requires).data
  if (requires === undefined) return 'It requires something that this version does not know.'
  const faults = hosts.map((host) => [host, faultOf(requires, host.facts, host.version)] as const)
  if (faults.every(([, fault]) => fault !== undefined))
    return `No host can serve it: ${faults.map(([{ name }, fault]) => `${name} ${fault?.text}`).join('; ')}.`
  if (laterSeconds > 0)
    return `Its model server takes no requests for now, and it is tried again in ${Math.ceil(laterSeconds)} s.`
  if (againSeconds !== null)
    return `Its host gave it away or could not carry it out. It is tried again in ${Math.ceil(againSeconds)} s.`
  if (laneMax !== null && laneAtWork >= laneMax)
    return `${runsOfCaller(laneAtWork)} at work, and at most ${laneMax} may be.`
  if (wants !== null) return `It waits for the host ${wants} for up to 30 s, and then for any other.`
  const { free, total } = slotsOf(hosts)
  if (free > 0 && before === 0) return 'It is next, and a host with a free slot takes it.'
  return `${total - free} of ${total} slots are taken, and ${runsOfCaller(before)} before it.`
}

function runsOfCaller(count: number): string {
  if (count === 1) return '1 run of its caller is'
  return `${count > beforeMax ? `more than ${beforeMax}` : count} runs of its caller are`
}

export async function signalsOf(database: FleetDatabase, table: HostTable): Promise<FleetSignals> {
  const hosts = takingOf(await table.list())
  const classes = await database.query<{ requires: unknown; runs: number; oldest: number }>(
    `SELECT requires, runs::float AS runs, coalesce(extract(epoch FROM now() - oldest.since), 0)::float AS oldest
       FROM (SELECT class_id, sum(runs) AS runs FROM caisson.tallies WHERE kind = 'waiting' GROUP BY class_id) AS waiting
       JOIN caisson.classes USING (class_id)
       CROSS JOIN LATERAL (SELECT min(waits_since) AS since FROM caisson.runs AS run
                            WHERE run.class_id = waiting.class_id AND run.tag IS NOT NULL) AS oldest
      WHERE runs > 0`,
  )
  const unservable = { ...noneUnservable }
  let [waiting, oldestWaitSeconds] = [0, 0]
  for (const { requires, runs, oldest } of classes) {
    waiting += runs
    const why = unservedBy(hosts, requires)
    if (why === undefined) oldestWaitSeconds = Math.max(oldestWaitSeconds, oldest)
    else unservable[why] += runs
  }
  const [row] = await database.query<{ started: number }>(
    `SELECT count(*)::integer AS started FROM caisson.runs WHERE taken_at > now() - interval '1 minute'`,
  )
  const started = row?.started ?? 0
  const nextStartMs =
    started === 0
      ? firstEstimateMs
      : Math.min(longestEstimateMs, Math.max(1_000, Math.round(60_000 / started)))
  return { waiting, oldestWaitSeconds, slots: slotsOf(hosts), unservable, nextStartMs }
}

/** The reason of the host that lacks the least, which is the last one that is looked at. */
function unservedBy(hosts: readonly FleetHost[], given: unknown): Fault | 'hosts' | undefined {
  if (hosts.length === 0) return 'hosts'
  const requires = Requires.safeParse(given).data
  if (requires === undefined) return 'version'
  const faults = hosts.map((host) => faultOf(requires, host.facts, host.version)?.fault)
  if (faults.includes(undefined)) return undefined
  const order: readonly Fault[] = ['memory', 'version', 'image', 'accelerator', 'architecture', 'labels']
  return order.find((fault) => faults.includes(fault))
}

async function readWaiting(database: FleetDatabase, runId: string): Promise<WaitingRun | undefined> {
  const [row] = await database.query<WaitingRun>(
    `SELECT run.lane, run.rank, class.requires, floor(extract(epoch FROM run.start_by) * 1000)::float AS "startBy",
            (SELECT coalesce(sum(runs), 0)::float FROM caisson.tallies WHERE kind = 'waiting') AS waiting,
            lane.max_at_work AS "laneMax",
            CASE WHEN run.has_ended THEN 'ended' WHEN run.waits THEN 'people'
                 WHEN run.tag IS NULL AND run.host_id IS NOT NULL THEN 'atWork' ELSE 'waiting' END AS state,
            greatest(coalesce(extract(epoch FROM run.not_before - now()), 0), 0)::float AS "laterSeconds",
            CASE WHEN run.wants_until > now() THEN run.wants_host END AS wants,
            (SELECT count(*)::integer FROM caisson.runs AS held
              WHERE held.lane = run.lane AND held.host_id IS NOT NULL AND held.tag IS NULL) AS "laneAtWork",
            (SELECT count(*)::integer FROM (SELECT FROM caisson.runs AS other
              WHERE other.lane = run.lane AND other.tag IS NOT NULL
                AND (other.rank, coalesce(other.start_by, 'infinity'), other.tag)
                  < (run.rank, coalesce(run.start_by, 'infinity'), run.tag) LIMIT ${beforeMax + 1}) AS counted) AS before,
            (SELECT extract(epoch FROM job.start_after - now())::float FROM caisson_queue.job AS job
              WHERE job.name = 'drive' AND job.singleton_key = run.run_id AND job.state = 'retry'
                AND job.start_after > now() LIMIT 1) AS "againSeconds"
       FROM caisson.runs AS run JOIN caisson.classes AS class USING (class_id) LEFT JOIN caisson.lanes AS lane USING (lane)
      WHERE run.run_id = $1`,
    [runId],
  )
  return row
}

function takingOf(hosts: readonly FleetHost[]): FleetHost[] {
  return hosts.filter(({ isGone, isDraining, slots }) => !isGone && !isDraining && slots > 0)
}

function slotsOf(hosts: readonly FleetHost[]): FleetSignals['slots'] {
  const sum = (amount: (host: FleetHost) => number) => hosts.reduce((all, host) => all + amount(host), 0)
  return { total: sum(({ slots }) => slots), free: sum(({ slots, runs }) => Math.max(0, slots - runs)) }
}
