/**
 * What callers submitted to a fleet: what each run is started with, the key by which its caller finds it again, uploaded
 * workspaces, and how the tries of a run failed. Holds names of secrets alone, never their values.
 */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import type { Blob } from './blob-store.ts'
import type { FleetDatabase, Queries } from './database.ts'

/** A key that the caller chose, as it is the same on all hosts. */
export interface SubmissionKey {
  readonly key: string
  /** Digest of the request. */
  readonly body: string
}

/** A try of a run that brought it no further. */
export type FailedTry = z.infer<typeof FailedTry>

const FailedTry = z.strictObject({ hostId: z.string(), host: z.string(), message: z.string() })
const Failures = z.array(FailedTry)

/** Of one run on one host, since its last checkpoint. */
export const triesPerHost = 3
/** Of one run on all hosts. */
export const triesMax = 8
/** A host that is seen less often takes no run. */
export const awake = '30 seconds'
const messageMaxChars = 1_000

export class RunRequests {
  readonly #database: FleetDatabase

  constructor(database: FleetDatabase) {
    this.#database = database
  }

  /** The run that was submitted with the key; others that submit with it wait for the transaction. */
  async claim(tx: Queries, { key }: SubmissionKey): Promise<SubmittedBefore | undefined> {
    await tx.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [key])
    return await this.findByKey(key, tx)
  }

  async findByKey(key: string, queries: Queries = this.#database): Promise<SubmittedBefore | undefined> {
    const [row] = await queries.query<SubmittedBefore>(
      'SELECT run_id AS "runId", start_body AS body FROM caisson.runs WHERE start_key = $1',
      [key],
    )
    return row
  }

  /** In the transaction that adds the run. @param request as JSON */
  async store(tx: Queries, runId: string, request: string, key?: SubmissionKey): Promise<void> {
    await tx.query(
      'UPDATE caisson.runs SET request = $2::json, start_key = $3, start_body = $4 WHERE run_id = $1',
      [runId, request, key?.key ?? null, key?.body ?? null],
    )
  }

  /** Parsed JSON that any host may have written. @throws {CaissonError} `run_not_found` when it was not submitted so */
  async read(runId: string): Promise<unknown> {
    const [row] = await this.#database.query<{ request: string | null }>(
      'SELECT request::text AS request FROM caisson.runs WHERE run_id = $1',
      [runId],
    )
    if (row?.request == null)
      throw new CaissonError('run_not_found', `the fleet does not say what ${runId} is started with`)
    return JSON.parse(row.request)
  }

  async addUpload(uploadId: string, { sha256, bytes }: Blob): Promise<void> {
    await this.#database.query(
      'INSERT INTO caisson.uploads (upload_id, sha256, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
      [uploadId, sha256, bytes],
    )
  }

  /** Of a run that was not submitted. */
  async removeUpload(uploadId: string): Promise<void> {
    await this.#database.query('DELETE FROM caisson.uploads WHERE upload_id = $1', [uploadId])
  }

  /** Undefined: there is none, or it was removed since no run needed it. */
  async findUpload(uploadId: string, queries: Queries = this.#database): Promise<Blob | undefined> {
    const [row] = await queries.query<{ sha256: string; bytes: string }>(
      `SELECT upload.sha256, upload.bytes FROM caisson.uploads AS upload
         JOIN caisson.blobs AS blob USING (sha256) WHERE upload_id = $1 AND is_stored`,
      [uploadId],
    )
    return row === undefined ? undefined : { sha256: row.sha256, bytes: Number(row.bytes) }
  }

  /** Of those that are kept, the ones whose ids end so. */
  async countUploads(mark: string): Promise<number> {
    const [row] = await this.#database.query<{ count: number }>(
      `SELECT count(*)::integer AS count FROM caisson.uploads JOIN caisson.blobs USING (sha256)
        WHERE right(upload_id, length($1)) = $1`,
      [mark],
    )
    return row?.count ?? 0
  }

  async failures(runId: string): Promise<readonly FailedTry[]> {
    const [row] = await this.#database.query<{ failures: unknown }>(
      'SELECT failures FROM caisson.runs WHERE run_id = $1',
      [runId],
    )
    return Failures.safeParse(row?.failures).data ?? []
  }

  async addFailure(runId: string, { hostId, host, message }: FailedTry): Promise<void> {
    const text = message.replaceAll('\0', '\ufffd').slice(0, messageMaxChars).toWellFormed()
    await this.#database.query('UPDATE caisson.runs SET failures = failures || $2::jsonb WHERE run_id = $1', [
      runId,
      JSON.stringify([{ hostId, host, message: text }]),
    ])
  }

  /** No host takes the run before the time has passed. */
  async postpone(runId: string, ms: number): Promise<void> {
    await this.#database.query(
      `UPDATE caisson.runs SET not_before = now() + $2::float8 * interval '1 ms' WHERE run_id = $1`,
      [runId, ms],
    )
  }

  /** Other hosts take the run first, once this one has given it back. */
  async avoid(runId: string, hostId: string): Promise<void> {
    await this.#database.query(
      'UPDATE caisson.runs SET avoids_host = $2 WHERE run_id = $1 AND host_id = $2',
      [runId, hostId],
    )
  }

  /** The run came further. */
  async clearFailures(runId: string): Promise<void> {
    await this.#database.query(`UPDATE caisson.runs SET failures = '[]' WHERE run_id = $1`, [runId])
  }

  /**
   * Whether a host tries the run: `try`; `others`: it has failed here, and another host has not tried it as often; `end`: no
   * host has tries left.
   */
  async judge(runId: string, hostId: string): Promise<'try' | 'others' | 'end'> {
    const failures = await this.failures(runId)
    if (failures.length >= triesMax) return 'end'
    const triesOf = (id: string) => failures.filter((failure) => failure.hostId === id).length
    if (triesOf(hostId) < triesPerHost) return 'try'
    const hosts = await this.#database.query<{ id: string }>(
      `SELECT host_id AS id FROM caisson.hosts
        WHERE slots > 0 AND host_id <> $1 AND left_at IS NULL AND seen_at > now() - interval '${awake}'`,
      [hostId],
    )
    return hosts.some(({ id }) => triesOf(id) < triesPerHost) ? 'others' : 'end'
  }
}

/** A run that has the key already. */
export interface SubmittedBefore {
  readonly runId: string
  /** Digest of its request. */
  readonly body: string
}
