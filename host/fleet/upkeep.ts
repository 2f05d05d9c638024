/**
 * What any host does for the whole fleet each minute: removes ended runs beyond a bound, and files that nothing needs, sums up
 * the counts of runs, and releases what hosts that are gone have left. A row says who does it this minute; two that do it at
 * once do no harm.
 */
import { CaissonError, hasCode } from '#specs/errors.ts'
import { type Collected, collectBlobs } from './blob-collector.ts'
import type { BlobStore } from './blob-store.ts'
import { defaultBlobTimes, keepForAWhile } from './blobs.ts'
import type { FleetDatabase, Queries } from './database.ts'
import { releaseLeft } from './run-table.ts'
import { compactTallies } from './tallies.ts'

/** What is kept of ended runs. A run that continues or waits counts nowhere, and is never removed. */
export interface EndedRunBounds {
  /** Beyond it the runs that ended first are removed. Absent: any number is kept. */
  readonly maxRuns?: number
  /** Since its end, ms. Absent: it is kept. */
  readonly maxAgeMs?: number
}

export interface UpkeepDone extends Collected {
  /** Ended runs that were removed. Undefined: the role of this host may not remove runs. */
  readonly removedRuns: readonly string[] | undefined
}

const everySeconds = 55
const runsAtOnce = 20
/** Without `prepare --removes-runs`, the role of the hosts removes no line of a journal. */
export const howToGrantRemoval =
  'have the owner of the tables run: caisson fleet prepare --role ROLE --removes-runs'
/** A host that ended a run writes its own folder still. */
const justEnded = '1 minute'

/** @returns undefined: another host does it this minute */
export async function keepUp(
  database: FleetDatabase,
  store: BlobStore,
  bounds: EndedRunBounds,
): Promise<UpkeepDone | undefined> {
  const mine = await database.query(
    `UPDATE caisson.upkeep SET at = now() WHERE at < now() - interval '${everySeconds} s' RETURNING 1`,
  )
  if (mine.length === 0) return undefined
  await compactTallies(database)
  await releaseLeft(database)
  await forgetUploads(database)
  const removedRuns = await removeEnded(database, bounds).catch((error: unknown) => {
    if (hasCode(error, 'permission_denied')) return undefined
    throw error
  })
  return { removedRuns, ...(await collectBlobs(database, store)) }
}

/** Ids of uploads whose contents were removed. */
async function forgetUploads(database: FleetDatabase): Promise<void> {
  await database.query(
    `DELETE FROM caisson.uploads AS upload WHERE made_at < now() - interval '1 day'
        AND NOT EXISTS (SELECT FROM caisson.blobs AS blob WHERE blob.sha256 = upload.sha256)`,
  )
}

/**
 * Removes ended runs beyond the bounds: journal, row, and what they refer to.
 * @returns their ids
 * @throws {CaissonError} `permission_denied` when the role may remove nothing, see `grantsOf`
 */
export async function removeEnded(database: FleetDatabase, bounds: EndedRunBounds): Promise<string[]> {
  const { maxRuns, maxAgeMs } = bounds
  if (maxRuns === undefined && maxAgeMs === undefined) return []
  const removed: string[] = []
  for (;;) {
    const some = await database.transaction((tx) => removeSome(tx, bounds))
    removed.push(...some)
    if (some.length < runsAtOnce) return removed
  }
}

async function removeSome(tx: Queries, { maxRuns, maxAgeMs }: EndedRunBounds): Promise<string[]> {
  const found = await tx.query<{ runId: string }>(
    `SELECT run_id AS "runId" FROM caisson.runs
      WHERE has_ended AND ended_at < now() - interval '${justEnded}'
        AND (ended_at < now() - $1::float8 * interval '1 ms' OR (ended_at, run_id) <= (
          SELECT ended_at, run_id FROM caisson.runs WHERE has_ended
           ORDER BY ended_at DESC, run_id DESC OFFSET $2::bigint LIMIT 1))
      ORDER BY ended_at LIMIT ${runsAtOnce} FOR UPDATE SKIP LOCKED`,
    // Without a number there is no row behind the bound, and nothing is older than no age.
    [maxAgeMs ?? null, maxRuns ?? Number.MAX_SAFE_INTEGER],
  )
  const ids = found.map(({ runId }) => runId)
  if (ids.length > 0) await removeRows(tx, ids)
  return ids
}

/** @returns whether the fleet had it @throws {CaissonError} `not_possible_now`, `run_busy`, `permission_denied` */
export async function removeRun(database: FleetDatabase, runId: string): Promise<boolean> {
  return await database
    .transaction(async (tx) => {
      await releaseLeft(tx, runId)
      const [run] = await tx.query<{ hasEnded: boolean; hostId: string | null }>(
        'SELECT has_ended AS "hasEnded", host_id AS "hostId" FROM caisson.runs WHERE run_id = $1 FOR UPDATE',
        [runId],
      )
      if (run === undefined) return false
      if (!run.hasEnded)
        throw new CaissonError('not_possible_now', `${runId} has not ended, so it is not removed`, {
          remedy: `cancel it first: POST /v1/runs/${runId}/cancel`,
        })
      if (run.hostId !== null)
        throw new CaissonError('run_busy', `a host of the fleet writes to ${runId}`, {
          remedy: 'try again in some seconds',
        })
      await removeRows(tx, [runId])
      return true
    })
    .catch((error: unknown) => {
      if (!hasCode(error, 'permission_denied')) throw error
      throw new CaissonError('permission_denied', 'the role of this host may not remove runs of the fleet', {
        cause: error,
        remedy: howToGrantRemoval,
      })
    })
}

async function removeRows(tx: Queries, ids: readonly string[]): Promise<void> {
  const left = await tx.query<{ sha256: string }>(
    'DELETE FROM caisson.run_blobs WHERE run_id = ANY ($1::text[]) RETURNING sha256',
    [ids],
  )
  const digests = left.map(({ sha256 }) => sha256)
  await keepForAWhile(tx, digests, defaultBlobTimes.graceMs)
  await tx.query('DELETE FROM caisson.journal WHERE run_id = ANY ($1::text[])', [ids])
  await tx.query('DELETE FROM caisson.runs WHERE run_id = ANY ($1::text[]) AND has_ended', [ids])
}
