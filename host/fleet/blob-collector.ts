/**
 * Removes contents that no run refers to and no lease keeps: first the row, then the object. Any number of hosts may do it at
 * once. Who may remove what is decided by locks and the clock of the database.
 */
import type { BlobStore } from './blob-store.ts'
import type { FleetDatabase, Queries } from './database.ts'

export interface Collected {
  /** Contents that are no longer known. */
  readonly forgotten: number
  /** Objects that were removed from the store. */
  readonly removed: number
}

const forgottenAtOnce = 200
const removedAtOnce = 50
/** A host that died while it removed an object leaves it to another one after this time. */
const claimFor = '10 minutes'
/**
 * Each object is removed twice. An upload that was frozen when its lease ended may finish behind the first removal; S3 refuses
 * one whose signature is older than 15 minutes.
 */
const againAfter = '1 day'

export async function collectBlobs(database: FleetDatabase, store: BlobStore): Promise<Collected> {
  let forgotten = 0
  for (let some = forgottenAtOnce; some === forgottenAtOnce; forgotten += some)
    some = await database.transaction(forgetSome)
  let removed = 0
  for (;;) {
    const claimed = await claimSome(database)
    for (const name of claimed) {
      await store.remove(name)
      await markRemoved(database, name)
    }
    removed += claimed.length
    if (claimed.length < removedAtOnce) break
  }
  await store.removeDrafts?.(Date.now())
  return { forgotten, removed }
}

/** @returns how many rows there were */
export async function forgetSome(tx: Queries): Promise<number> {
  const found = await tx.query<{ sha256: string }>(
    `SELECT sha256 FROM caisson.blobs AS blob WHERE kept_until < now()
        AND NOT EXISTS (SELECT FROM caisson.run_blobs AS one WHERE one.sha256 = blob.sha256)
      ORDER BY sha256 LIMIT ${forgottenAtOnce} FOR UPDATE SKIP LOCKED`,
  )
  // Another statement, so that it sees what was committed before the locks were there.
  const gone = await tx.query(
    `WITH gone AS (
       DELETE FROM caisson.blobs AS blob WHERE sha256 = ANY ($1::text[]) AND kept_until < now()
          AND NOT EXISTS (SELECT FROM caisson.run_blobs AS one WHERE one.sha256 = blob.sha256)
       RETURNING name
     )
     INSERT INTO caisson.removed_blobs (name) SELECT name FROM gone RETURNING name`,
    [found.map(({ sha256 }) => sha256)],
  )
  return gone.length
}

/** @returns names whose objects this caller alone removes now */
export async function claimSome(queries: Queries): Promise<string[]> {
  const rows = await queries.query<{ name: string }>(
    `UPDATE caisson.removed_blobs SET due_at = now() + interval '${claimFor}' WHERE name IN (
       SELECT name FROM caisson.removed_blobs WHERE due_at <= now()
        ORDER BY due_at LIMIT ${removedAtOnce} FOR UPDATE SKIP LOCKED) RETURNING name`,
  )
  return rows.map(({ name }) => name)
}

export async function markRemoved(queries: Queries, name: string): Promise<void> {
  await queries.query('DELETE FROM caisson.removed_blobs WHERE name = $1 AND times >= 1', [name])
  await queries.query(
    `UPDATE caisson.removed_blobs SET times = times + 1, due_at = now() + interval '${againAfter}' WHERE name = $1`,
    [name],
  )
}
