/** How many runs wait and have ended, without reading them: sums of the changes that a trigger notes in `caisson.tallies`. */
import type { FleetDatabase, Queries } from './database.ts'

export interface RunCounts {
  /** For a host. */
  readonly waiting: number
  readonly waitingForPeople: number
  readonly ended: number
}

export async function countRuns(queries: Queries): Promise<RunCounts> {
  const [row] = await queries.query<RunCounts>(
    `SELECT coalesce(sum(runs) FILTER (WHERE kind = 'waiting'), 0)::float AS waiting,
            coalesce(sum(runs) FILTER (WHERE kind = 'people'), 0)::float AS "waitingForPeople",
            coalesce(sum(runs) FILTER (WHERE kind = 'ended'), 0)::float AS ended FROM caisson.tallies`,
  )
  return row ?? { waiting: 0, waitingForPeople: 0, ended: 0 }
}

/** That wait for a host, of all lanes and of one. */
export async function countWaiting(
  queries: Queries,
  lane: string,
): Promise<{ readonly waiting: number; readonly ofLane: number }> {
  const [row] = await queries.query<{ waiting: number; ofLane: number }>(
    `SELECT coalesce(sum(runs), 0)::float AS waiting,
            coalesce(sum(runs) FILTER (WHERE lane = $1), 0)::float AS "ofLane"
       FROM caisson.tallies WHERE kind = 'waiting'`,
    [lane],
  )
  return row ?? { waiting: 0, ofLane: 0 }
}

/** Replaces changes by their sums. Whoever reads meanwhile sees either. */
export async function compactTallies(database: FleetDatabase): Promise<void> {
  await database.query(
    `WITH old AS (DELETE FROM caisson.tallies RETURNING *)
     INSERT INTO caisson.tallies SELECT kind, lane, class_id, sum(runs) FROM old GROUP BY kind, lane, class_id
     HAVING sum(runs) <> 0`,
  )
}
