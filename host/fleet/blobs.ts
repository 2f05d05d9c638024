/**
 * Which contents a fleet keeps, and under which names its store has them. A row is there before its object, and a lease keeps it
 * until a run refers to it. A name whose row is gone is never used again, so a late removal or upload of it does no harm.
 */
import { createHash, randomBytes } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { CaissonError } from '#specs/errors.ts'
import { Sha256 } from '#specs/protocol/text.ts'
import { stagePrefix } from '../state/folders.ts'
import { type Blob, type BlobStore, type Content, ContentChanged } from './blob-store.ts'
import type { Queries } from './database.ts'

export interface BlobTimes {
  /** How long a content is kept for whoever stores it, until a run refers to it, ms. */
  readonly leaseMs: number
  /** How long it is kept once nothing refers to it, ms. */
  readonly graceMs: number
}

export const defaultBlobTimes: BlobTimes = { leaseMs: 60 * 60 * 1000, graceMs: 60 * 60 * 1000 }

/** Why a run refers to a content: `files` of its last checkpoint, or its `request`. Each is replaced as a whole. */
export type BlobPart = 'files' | 'request'

/** Contents to look for; the store of the fleet has at least one. */
const lookedAt = 5
/** Tries to store a content that changes meanwhile. */
const triesMax = 5

/** Contents that a run wants to refer to, and that the fleet no longer has. They must be stored again. */
export class BlobsGone extends CaissonError {
  readonly digests: readonly string[]

  constructor(digests: readonly string[]) {
    const some = digests.slice(0, 3).join(', ')
    super(
      'state_unavailable',
      `the fleet removed ${digests.length} files before a run referred to them: ${some}`,
      {
        remedy: 'store them again',
      },
    )
    this.digests = digests
  }
}

export class FleetBlobs {
  readonly store: BlobStore
  readonly #queries: Queries
  readonly #times: BlobTimes

  constructor(queries: Queries, store: BlobStore, times: BlobTimes = defaultBlobTimes) {
    this.#queries = queries
    this.store = store
    this.#times = times
  }

  /**
   * Stores a content that the fleet does not have. It is kept under a lease until {@link referTo} names it.
   * @param known its digest from an earlier time, when it is known that it has not changed
   * @throws {CaissonError} the store's
   */
  async put(content: Content, known?: Blob): Promise<Blob> {
    for (let tried = 1; ; tried += 1) {
      const blob = (tried === 1 ? known : undefined) ?? (await describeContent(content))
      try {
        if (await this.#putOnce(content, blob)) return blob
      } catch (error) {
        if (!(error instanceof ContentChanged)) throw error
        if (tried >= triesMax) throw new CaissonError('internal', `${error.message}, ${tried} times`)
      }
    }
  }

  /**
   * Like {@link put}, of a content that can be read once alone, such as an upload. It is kept for `keepMs` at least.
   * @param folder on a disk of this host with room for all of it, for the time until it is stored
   * @param check looks at the content before it is stored; what it throws refuses it
   */
  async putStream(
    content: AsyncIterable<Uint8Array>,
    folder: string,
    keepMs: number,
    check: (content: Readable) => Promise<void> = async () => undefined,
  ): Promise<Blob> {
    // `caisson clean` removes what a killed process leaves.
    const draft = await mkdtemp(path.join(folder, stagePrefix))
    const file = path.join(draft, 'content')
    try {
      await pipeline(content, createWriteStream(file, { flags: 'wx', mode: 0o600 }))
      const whole = createReadStream(file)
      await check(whole).finally(() => whole.destroy())
      const blob = await this.put(() => createReadStream(file))
      await keepForAWhile(this.#queries, [blob.sha256], keepMs)
      return blob
    } finally {
      await rm(draft, { recursive: true, force: true })
    }
  }

  /**
   * Whether the store has nothing that runs need, such as a directory that is not mounted.
   * @throws {CaissonError} the store's
   */
  async isOtherStore(): Promise<boolean> {
    const needed = await this.#queries.query<{ name: string; bytes: number }>(
      `SELECT name, bytes::float AS bytes FROM caisson.blobs AS blob WHERE is_stored
          AND EXISTS (SELECT FROM caisson.run_blobs AS need WHERE need.sha256 = blob.sha256) LIMIT ${lookedAt}`,
    )
    for (const { name, bytes } of needed) if (await this.store.has(name, bytes)) return false
    return needed.length > 0
  }

  /** @throws {CaissonError} `state_corrupted` when it is missing, or is not what was put, at its end at the latest */
  async *get(blob: Blob): AsyncGenerator<Buffer, void> {
    const sha256 = Sha256.parse(blob.sha256)
    const [row] = await this.#queries.query<{ name: string }>(
      'SELECT name FROM caisson.blobs WHERE sha256 = $1 AND is_stored',
      [sha256],
    )
    if (row === undefined)
      throw new CaissonError('state_corrupted', `the fleet has no file with the digest ${sha256}`, {
        remedy: 'restore database and files of the fleet from the same copy',
      })
    yield* this.store.read(row.name, blob)
  }

  /** @returns false: the row was removed while the content was stored */
  async #putOnce(content: Content, blob: Blob): Promise<boolean> {
    const { name, isStored } = await this.#lease(blob)
    if (isStored && (await this.store.has(name, blob.bytes))) return await this.#confirm(name, blob)
    const renewal = setInterval(() => void this.#lease(blob).catch(() => undefined), this.#times.leaseMs / 4)
    renewal.unref()
    try {
      await this.store.write(name, blob, content)
    } finally {
      clearInterval(renewal)
    }
    if (await this.#confirm(name, blob)) return true
    // The object came after its removal.
    await this.#queries.query(
      `INSERT INTO caisson.removed_blobs (name) VALUES ($1)
       ON CONFLICT (name) DO UPDATE SET times = 0, due_at = now()`,
      [name],
    )
    return false
  }

  /** Under another name than any before, where there is no row. */
  async #lease({ sha256, bytes }: Blob): Promise<{ readonly name: string; readonly isStored: boolean }> {
    const [row] = await this.#queries.query<{ name: string; isStored: boolean }>(
      `INSERT INTO caisson.blobs AS blob (sha256, bytes, name, kept_until)
       VALUES ($1, $2, $3, now() + $4 * interval '1 ms')
       ON CONFLICT (sha256) DO UPDATE SET kept_until = greatest(blob.kept_until, excluded.kept_until)
       RETURNING name, is_stored AS "isStored"`,
      [sha256, bytes, `${sha256}-${randomBytes(8).toString('hex')}`, this.#times.leaseMs],
    )
    if (row === undefined) throw new CaissonError('internal', 'the database gave no lease')
    return row
  }

  async #confirm(name: string, { sha256 }: Blob): Promise<boolean> {
    const rows = await this.#queries.query(
      `UPDATE caisson.blobs SET is_stored = true, kept_until = greatest(kept_until, now() + $3 * interval '1 ms')
        WHERE sha256 = $1 AND name = $2 RETURNING 1`,
      [sha256, name, this.#times.leaseMs],
    )
    return rows.length > 0
  }
}

/**
 * Has the run refer to these contents and no others, in the transaction that says so. What it referred to before is kept for
 * the grace time.
 * @throws {BlobsGone} when one was removed or never stored; the transaction must not be committed then
 */
export async function referTo(
  tx: Queries,
  runId: string,
  part: BlobPart,
  digests: readonly string[],
  { graceMs }: BlobTimes = defaultBlobTimes,
): Promise<void> {
  const wanted = [...new Set(digests)].sort()
  const left = await tx.query<{ sha256: string }>(
    'DELETE FROM caisson.run_blobs WHERE run_id = $1 AND part = $2 AND sha256 <> ALL ($3::text[]) RETURNING sha256',
    [runId, part, wanted],
  )
  await keepForAWhile(
    tx,
    left.map(({ sha256 }) => sha256),
    graceMs,
  )
  // The lock makes a collector wait, or has waited for it: then the row is gone.
  await tx.query(
    `INSERT INTO caisson.run_blobs (run_id, part, sha256)
     SELECT $1, $2, sha256 FROM (
       SELECT sha256 FROM caisson.blobs WHERE sha256 = ANY ($3::text[]) AND is_stored ORDER BY sha256 FOR KEY SHARE
     ) AS there ON CONFLICT DO NOTHING`,
    [runId, part, wanted],
  )
  const missing = await tx.query<{ sha256: string }>(
    `SELECT sha256 FROM unnest($3::text[]) AS wanted (sha256) WHERE NOT EXISTS (
       SELECT FROM caisson.run_blobs AS one WHERE one.run_id = $1 AND one.part = $2 AND one.sha256 = wanted.sha256)`,
    [runId, part, wanted],
  )
  if (missing.length > 0) throw new BlobsGone(missing.map(({ sha256 }) => sha256))
}

/**
 * Has contents stay for the grace time at least. Rows are locked in order, so that no two of these wait in a circle; an update
 * in the same statement would still find older versions of these rows, and wait for whoever waits for this transaction.
 */
export async function keepForAWhile(tx: Queries, digests: readonly string[], graceMs: number): Promise<void> {
  if (digests.length === 0) return
  await tx.query(
    'SELECT FROM caisson.blobs WHERE sha256 = ANY ($1::text[]) ORDER BY sha256 FOR NO KEY UPDATE',
    [digests],
  )
  await tx.query(
    `UPDATE caisson.blobs SET kept_until = greatest(kept_until, now() + $2 * interval '1 ms')
      WHERE sha256 = ANY ($1::text[])`,
    [digests, graceMs],
  )
}

async function describeContent(content: Content): Promise<Blob> {
  const hash = createHash('sha256')
  let bytes = 0
  for await (const piece of content()) {
    hash.update(piece)
    bytes += piece.byteLength
  }
  return { sha256: hash.digest('hex'), bytes }
}
