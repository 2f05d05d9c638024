/**
 * Which run this host takes next: the first of the fair order that it can serve and that no bound keeps back. Choosing,
 * taking and the bounds are one transaction, so no bound is exceeded, and runs that this host cannot serve cost it nothing.
 */
import type { FleetDatabase, Queries } from './database.ts'
import { serveLane, tagStep } from './lanes.ts'
import { faultOf, HostFacts, Requires, requiresAfter } from './placement.ts'
import { awake, triesMax, triesPerHost } from './run-requests.ts'
import type { Hold, RunTable } from './run-table.ts'

/** A job of the queue that belongs to a taken run. */
export interface FetchedJob {
  readonly id: string
  readonly retryCount: number
}

export interface Claimed {
  readonly hold: Hold
  readonly job: FetchedJob
  /** Its time to begin has passed: whoever has it ends it with `queue_timeout`. */
  readonly isLate: boolean
}

export interface ClaimsOptions {
  readonly database: FleetDatabase
  readonly runs: RunTable
  readonly host: { readonly hostId: string; readonly name: string; readonly version: string }
  readonly facts: () => Partial<HostFacts>
  /** Takes the waiting job of the run; undefined where another host did. */
  readonly fetch: (tx: Queries, priority: number) => Promise<FetchedJob | undefined>
}

interface Candidate {
  readonly runId: string
  readonly epoch: number
  readonly hostId: string | null
  readonly classId: number
  /** Unique among the jobs that wait. */
  readonly priority: number
}

/** With its ID, since several hosts may have the name. */
async function nameOf(tx: Queries, hostId: string): Promise<string> {
  const [found] = await tx.query<{ name: string }>(
    'SELECT left(name, 100) AS name FROM caisson.hosts WHERE host_id = $1',
    [hostId],
  )
  return found === undefined ? hostId : `${found.name}, ${hostId}`
}

/** Undone, and tried again. */
class Raced extends Error {}

/** Tries of a run that failed on the host with this id. */
const triesOf = (id: string) =>
  `(SELECT count(*) FROM jsonb_array_elements(run.failures) AS failure WHERE failure ->> 'hostId' = ${id})`
/** As `RunRequests.judge`: a host that failed often enough leaves the run to others, while there are others. */
const mayTry = `
  (run.failures = '[]' OR jsonb_array_length(run.failures) >= ${triesMax} OR ${triesOf('($2::text[])[1]')} < ${triesPerHost}
   OR NOT EXISTS (SELECT FROM caisson.hosts AS other
                   WHERE other.slots > 0 AND other.host_id <> ($2::text[])[1] AND other.left_at IS NULL
                     AND other.seen_at > now() - interval '${awake}' AND ${triesOf('other.host_id')} < ${triesPerHost}))`
/** `$1`: classes; `$2`: id and name of this host. */
const mayTake = `
  run.tag IS NOT NULL AND NOT run.has_ended AND run.class_id = ANY($1) AND (run.not_before IS NULL OR run.not_before <= now())
  AND (run.wants_until IS NULL OR run.wants_until <= now()
       OR (coalesce(run.wants_host = ANY($2), true) AND NOT coalesce(run.avoids_host = ANY($2), false)))
  AND ${mayTry}`
/**
 * Whether a host has a job of the run, by the index of pg-boss for that. OFFSET has it looked up for each run: as a join, a
 * planner that knows little of the table reads all jobs. @param runId in SQL
 */
export const hasActiveJob = (runId: string) => `
  EXISTS (SELECT FROM caisson_queue.job AS held WHERE held.name = 'drive' AND held.state = 'active'
             AND held.policy = 'stately' AND coalesce(held.singleton_key, '') = ${runId} OFFSET 0)`
/**
 * A run can have two jobs: a host that is killed once it has given the run back, and before it has settled the job, leaves one.
 * A run whose other job is active cannot be taken yet, so it must not be the next one either.
 */
const jobOf = `
  JOIN caisson_queue.job AS job ON job.name = 'drive' AND job.singleton_key = run.run_id
   AND job.state < 'active' AND job.start_after <= now() AND NOT ${hasActiveJob('run.run_id')}`
const columns = `run.run_id AS "runId", run.epoch, run.host_id AS "hostId", run.class_id AS "classId", job.priority`
/**
 * A lane that one host chooses from is locked, and others take the next lane. A lane with half of the shares would get a third
 * of the runs of three hosts that choose all the time. So it is passed by for no more turns than these.
 */
const turnsPassedBy = 2
/** Of a lane: those at work, also on a host that was lost and whose run nobody has queued again. */
const hasRoom = `
  (lane.max_at_work IS NULL OR lane.max_at_work > (
     SELECT count(*) FROM caisson.runs AS held
      WHERE held.lane = lane.lane AND held.host_id IS NOT NULL AND held.tag IS NULL))`

const chooseLane = `
  SELECT lane.lane, lane.tag FROM caisson.lanes AS lane
   WHERE lane.is_waiting AND ${hasRoom}
     AND EXISTS (SELECT FROM caisson.runs AS run ${jobOf} WHERE run.lane = lane.lane AND ${mayTake})
   ORDER BY lane.tag LIMIT 1`
/** A lane that others have locked and passed by for more than its turns: the hosts wait for it. */
const passedBy = `
  SELECT FROM caisson.lanes AS lane
   WHERE lane.is_waiting AND lane.tag + ${turnsPassedBy} * ${tagStep} / lane.weight < $3::bigint AND ${hasRoom}
     AND EXISTS (SELECT FROM caisson.runs AS run ${jobOf} WHERE run.lane = lane.lane AND ${mayTake}) LIMIT 1`
/** The first of each class, and of those the first one: it passes no run by that this host cannot serve. */
const chooseRun = `
  SELECT first.* FROM unnest($1::integer[]) AS class (id) CROSS JOIN LATERAL (
    SELECT ${columns}, run.rank, run.start_by, run.tag
      FROM caisson.lanes AS lane JOIN caisson.runs AS run USING (lane) ${jobOf}
     WHERE lane.lane = $3 AND run.class_id = class.id AND ${hasRoom} AND ${mayTake}
     ORDER BY run.rank, run.start_by, run.tag LIMIT 1 FOR UPDATE OF run SKIP LOCKED) AS first
   ORDER BY first.rank, first.start_by, first.tag LIMIT 1`
/** Whose time to begin has passed: whoever takes one ends it, so it needs no room and no fitting host. */
const chooseLate = `
  SELECT ${columns} FROM caisson.runs AS run ${jobOf}
   WHERE run.start_by <= now() AND run.seq = 0 AND run.tag IS NOT NULL AND NOT run.has_ended
   ORDER BY run.start_by LIMIT 1 FOR UPDATE OF run SKIP LOCKED`

/** Read by steps from one class to the next one, so the other runs cost nothing. `$1`: classes that are known. */
const waitingClasses = `
  WITH RECURSIVE waiting AS (
    (SELECT class_id FROM caisson.runs WHERE tag IS NOT NULL ORDER BY class_id LIMIT 1)
    UNION ALL
    SELECT (SELECT run.class_id FROM caisson.runs AS run WHERE run.tag IS NOT NULL AND run.class_id > waiting.class_id
             ORDER BY run.class_id LIMIT 1) FROM waiting WHERE waiting.class_id IS NOT NULL
  )
  SELECT class_id AS id, CASE WHEN NOT class_id = ANY($1::integer[]) THEN requires END AS requires
    FROM waiting JOIN caisson.classes USING (class_id)`
/** Classes that a host remembers. */
const classesKept = 5_000

export class Claims {
  readonly #options: ClaimsOptions
  readonly #classes = new Map<number, Requires>()
  readonly #idOf = new Map<string, number>()
  /** For `#idOf`, once it is known to be stored. */
  #found: readonly [string, number] | undefined

  constructor(options: ClaimsOptions) {
    this.#options = options
  }

  /** Takes a run. `none`: there is none for this host; `busy`: another host is choosing, so this one tries again. */
  async next(): Promise<Claimed | 'none' | 'busy'> {
    const { database } = this.#options
    const facts = HostFacts.parse(this.#options.facts())
    const servable = await this.#servable(facts)
    this.#found = undefined
    try {
      const claimed = await database.transaction(async (tx) => {
        const [late] = await tx.query<Candidate>(chooseLate)
        if (late !== undefined) return { ...(await this.#take(tx, late, facts)), isLate: true }
        return await this.#nextOfLanes(tx, facts, servable)
      })
      this.#keepFound()
      return claimed
    } catch (error) {
      if (error instanceof Raced) return 'busy'
      throw error
    }
  }

  async #nextOfLanes(
    tx: Queries,
    facts: HostFacts,
    servable: readonly number[],
  ): Promise<Claimed | 'none' | 'busy'> {
    const { hostId, name } = this.#options.host
    const which = [servable, [hostId, name]]
    const [lane] = await tx.query<{ lane: string; tag: string }>(
      `${chooseLane} FOR UPDATE OF lane SKIP LOCKED`,
      which,
    )
    if (lane === undefined) return (await tx.query(chooseLane, which)).length === 0 ? 'none' : 'busy'
    if ((await tx.query(passedBy, [...which, lane.tag])).length > 0) return 'busy'
    // A statement of its own sees what the host before did with the lane.
    const [run] = await tx.query<Candidate>(chooseRun, [...which, lane.lane])
    if (run === undefined) return 'busy'
    const claimed = await this.#take(tx, run, facts)
    await serveLane(tx, lane.lane)
    return claimed
  }

  async #take(tx: Queries, candidate: Candidate, facts: HostFacts): Promise<Claimed> {
    const { runs, host, fetch } = this.#options
    const { runId, epoch, priority } = candidate
    const job = await fetch(tx, priority)
    if (job === undefined) throw new Raced()
    const message =
      candidate.hostId === null
        ? 'the run waited for a host'
        : `the host before (${await nameOf(tx, candidate.hostId)}) gave no sign of life`
    const hold = await runs.takeIn(tx, runId, { epoch }, { ...host, message })
    if (hold === undefined) throw new Raced()
    await this.#noteMaker(tx, candidate, facts)
    return { hold, job, isLate: false }
  }

  /** From now on the run needs this version or a newer one, and its image. */
  async #noteMaker(tx: Queries, { runId, classId }: Candidate, facts: HostFacts): Promise<void> {
    const before = this.#classes.get(classId)
    if (before === undefined) return
    const after = requiresAfter(before, facts, this.#options.host.version)
    const id = await this.#classIdOf(tx, after)
    if (id !== classId) await tx.query('UPDATE caisson.runs SET class_id = $2 WHERE run_id = $1', [runId, id])
  }

  async #classIdOf(tx: Queries, requires: Requires): Promise<number> {
    const key = JSON.stringify(Object.entries(requires).toSorted())
    const known = this.#idOf.get(key)
    if (known !== undefined) return known
    const id = await classIdOf(tx, requires)
    this.#found = [key, id]
    return id
  }

  #keepFound(): void {
    if (this.#found === undefined) return
    if (this.#idOf.size > classesKept) this.#idOf.clear()
    this.#idOf.set(...this.#found)
  }

  /** Of the classes that runs wait with: callers make any number of others. */
  async #servable(facts: HostFacts): Promise<number[]> {
    const { database, host } = this.#options
    if (this.#classes.size > classesKept) this.#classes.clear()
    const rows = await database.query<{ id: number; requires: unknown }>(waitingClasses, [
      [...this.#classes.keys()],
    ])
    return rows.flatMap(({ id, requires }) => {
      const known = this.#classes.get(id) ?? Requires.safeParse(requires).data
      // A newer version knows requirements that this one does not.
      if (known === undefined) return []
      this.#classes.set(id, known)
      return faultOf(known, facts, host.version) === undefined ? [id] : []
    })
  }
}

/** The class of runs with these requirements, which is made where there is none. */
export async function classIdOf(tx: Queries, requires: Requires): Promise<number> {
  const text = JSON.stringify(requires)
  const find = 'SELECT class_id AS id FROM caisson.classes WHERE requires = $1::jsonb'
  const [found] = await tx.query<{ id: number }>(find, [text])
  if (found !== undefined) return found.id
  await tx.query('INSERT INTO caisson.classes (requires) VALUES ($1::jsonb) ON CONFLICT DO NOTHING', [text])
  const [made] = await tx.query<{ id: number }>(find, [text])
  return made?.id ?? 1
}
