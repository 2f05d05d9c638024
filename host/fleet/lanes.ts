/**
 * The fair order of all hosts: start-time fair queueing of lanes. Each lane has a tag that grows by one over its weight with
 * each run that starts, and the lane with the lowest tag is next. A lane that had no waiting run begins at the tag that was
 * served last, so it has saved nothing. Priorities and deadlines count within a lane alone.
 *
 * Locks are taken in this order: the run, its lane, the bound of all lanes. Whoever chooses a run of a lane skips those
 * that are locked, so it waits for none of them.
 */
import { CaissonError } from '#specs/errors.ts'
import type { Queries } from './database.ts'
import { countWaiting } from './tallies.ts'

/** What a tag grows by for a lane of weight 1. */
export const tagStep = 1_000_000
/** Any number that no other program takes as an advisory lock: "caisson", with another first letter. */
const waitingLock = '27971974926757743'
/** A host that has the VM of a run, or is asked for, is waited for so long. */
const graceSeconds = 30

export interface LaneSettings {
  /** Share of the lane; 1 at first. Absent: as before. */
  readonly weight?: number
  /** Runs of the lane at work on all hosts. Null: no bound. Absent: as before. */
  readonly maxAtWork?: number | null
}

/** How many runs may wait. Exact, however many hosts add runs at once. */
export interface WaitingBounds {
  readonly maxWaiting: number
  readonly maxWaitingPerLane: number
}

/** Channel of notices for hosts: the id of a host, or `work`. */
export const hostChannel = 'caisson_hosts'
export const workKey = 'work'

export async function setLane(
  queries: Queries,
  lane: string,
  { weight, maxAtWork }: LaneSettings,
): Promise<void> {
  if (weight !== undefined && !(weight > 0 && weight <= 1_000))
    throw new CaissonError('invalid_options', `the weight of a lane is ${weight}; expected up to 1000`)
  await queries.query(
    `INSERT INTO caisson.lanes AS lane (lane, tag, weight, max_at_work, is_waiting)
     VALUES ($1, 0, coalesce($2::float8, 1), $3, false)
     ON CONFLICT (lane) DO UPDATE SET weight = coalesce($2, lane.weight),
       max_at_work = CASE WHEN $4 THEN $3 ELSE lane.max_at_work END`,
    [lane, weight ?? null, maxAtWork ?? null, maxAtWork !== undefined],
  )
}

/**
 * Lets the run wait for a host, as one of its lane.
 * @param rank among those of its lane; the lowest is first
 */
export async function enterLane(
  tx: Queries,
  { runId, lane, rank }: { readonly runId: string; readonly lane: string; readonly rank: number },
): Promise<void> {
  await tx.query(
    `INSERT INTO caisson.lanes AS lane (lane, tag) SELECT $1, tag FROM caisson.served
     ON CONFLICT (lane) DO UPDATE SET is_waiting = true,
       tag = CASE WHEN lane.is_waiting THEN lane.tag ELSE greatest(lane.tag, excluded.tag) END`,
    [lane],
  )
  await tx.query(
    `UPDATE caisson.runs SET rank = $2, tag = nextval('caisson.places'), waits_since = now(),
            wants_until = CASE WHEN wants_host IS NULL AND avoids_host IS NULL THEN NULL
                               ELSE now() + interval '${graceSeconds} seconds' END
      WHERE run_id = $1`,
    [runId, rank],
  )
  await tx.query('SELECT pg_notify($1, $2)', [hostChannel, workKey])
}

/** Of a transaction in which a run of the lane has entered. @throws {CaissonError} `queue_full` */
export async function requireWithin(tx: Queries, lane: string, bounds: WaitingBounds): Promise<void> {
  const { maxWaiting, maxWaitingPerLane } = bounds
  await tx.query('SELECT pg_advisory_xact_lock($1::bigint)', [waitingLock])
  // A statement of its own sees what those before have committed.
  const counted = await countWaiting(tx, lane)
  const [waiting, ofLane] = [counted.waiting - 1, counted.ofLane - 1]
  if (waiting < maxWaiting && ofLane < maxWaitingPerLane) return
  throw new CaissonError(
    'queue_full',
    `the queue is full: ${waiting} of at most ${maxWaiting} runs wait, and ${ofLane} of at most ${maxWaitingPerLane} of this caller`,
    { remedy: 'wait until one has started, or cancel one that waits' },
  )
}

/** A run of the lane starts. Of the transaction that has the lane. */
export async function serveLane(tx: Queries, lane: string): Promise<void> {
  const [before] = await tx.query<{ tag: string }>('SELECT tag FROM caisson.lanes WHERE lane = $1', [lane])
  await tx.query(
    `UPDATE caisson.lanes AS lane SET tag = tag + round($2 / weight)::bigint,
            is_waiting = EXISTS (SELECT FROM caisson.runs WHERE lane = $1 AND tag IS NOT NULL)
      WHERE lane = $1`,
    [lane, tagStep],
  )
  // All hosts change this row, so nobody waits for it: the next one brings it up to date.
  await tx.query(
    `UPDATE caisson.served SET tag = $1
      WHERE ctid = (SELECT ctid FROM caisson.served WHERE tag < $1 FOR UPDATE SKIP LOCKED)`,
    [before?.tag ?? '0'],
  )
}
