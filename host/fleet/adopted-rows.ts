/**
 * Rows of a run that a host made of others, such as a fork: the journal as its file has it, and what the first of the others is
 * started with. It waits for people alone, so no host takes it before somebody asks for that.
 */
import { CaissonError } from '#specs/errors.ts'
import type { ChainedLine } from '../journal/journal.ts'
import type { RunOutline } from '../journal/run-outline.ts'
import { referTo } from './blobs.ts'
import type { Queries } from './database.ts'
import { listedOf, setListed } from './run-rows.ts'
import type { StoredFile } from './run-table.ts'

export interface AdoptedRun {
  readonly runId: string
  /** Runs of the fleet that it is made of. */
  readonly of: readonly string[]
  /** Name of the host that has its disk. Null: the store alone has it. */
  readonly host: string | null
  /** Of its last line. */
  readonly end: { readonly seq: number; readonly hash: string; readonly bytes: number }
  readonly outline: RunOutline
  /** What another host needs to continue it. */
  readonly files: readonly StoredFile[]
  /** Its lines, in order. */
  lines(): AsyncIterable<ChainedLine>
}

/** Runs of one caller that have not ended, beyond which it forks none: nobody has to continue a fork, so nothing else ends it. */
export const unendedMax = 1_000
/** Lines that one statement adds. */
const linesAtOnce = 500
const charsAtOnce = 4 * 1024 * 1024

/** Until the transaction ends, no other one adopts runs of the caller of a run: {@link requireRoomForForks} is exact. */
export async function lockForks(tx: Queries, of: string): Promise<void> {
  await tx.query(
    `SELECT pg_advisory_xact_lock(hashtextextended('forks of ' || caller, 0)) FROM caisson.runs
      WHERE run_id = $1 AND caller IS NOT NULL`,
    [of],
  )
}

/**
 * Bounds the runs of the caller of a run; the owner has no bound.
 * @param of a run of the fleet @param count of new runs of its caller
 * @throws {CaissonError} `queue_full`
 */
export async function requireRoomForForks(queries: Queries, of: string, count: number): Promise<void> {
  // Behind the lock, a statement of its own sees what those before have committed.
  const [row] = await queries.query<{ unended: number }>(
    `SELECT count(*)::integer AS unended FROM caisson.runs
      WHERE NOT has_ended AND caller = (SELECT caller FROM caisson.runs WHERE run_id = $1)`,
    [of],
  )
  const unended = row?.unended ?? 0
  if (unended + count <= unendedMax) return
  throw new CaissonError(
    'queue_full',
    `${unended} runs of this caller have not ended, and with ${count === 1 ? 'a fork' : `${count} forks`} at most ${unendedMax} may`,
    { remedy: 'continue or cancel forks that sleep, then fork again' },
  )
}

/** In a transaction. @throws {BlobsGone} when a file has to be stored again; the transaction must not be committed then */
export async function addAdopted(tx: Queries, run: AdoptedRun): Promise<void> {
  const { runId, of, host, end, outline, files } = run
  const hasEnded = outline.state.end !== null
  // Of several callers none is the one whose quotas count it.
  const added = await tx.query(
    `INSERT INTO caisson.runs (run_id, lane, class_id, caller, request, seq, head, bytes, files, has_ended, ended_at, waits,
                               carried_by)
     SELECT $1, first.lane, first.class_id, CASE WHEN others.callers > 1 THEN NULL ELSE first.caller END, first.request,
            $4, $5, $6, $7::jsonb, $8, CASE WHEN $8 THEN now() END, NOT $8, $9
       FROM caisson.runs AS first,
            (SELECT count(DISTINCT coalesce(caller, '')) AS callers, count(*) AS runs FROM caisson.runs
              WHERE run_id = ANY ($3::text[])) AS others
      WHERE first.run_id = $2 AND others.runs = $10 RETURNING 1`,
    [
      ...[runId, of[0], of, end.seq, end.hash, end.bytes, JSON.stringify(files), hasEnded, host],
      new Set(of).size,
    ],
  )
  if (added.length === 0)
    throw new CaissonError('run_not_found', `the fleet has ${of.join(', ')} no more, so ${runId} is not made`)
  await tx.query(`UPDATE caisson.runs SET ${setListed('$2')} WHERE run_id = $1`, [runId, listedOf(outline)])
  await addLines(tx, run)
  const digests = files.map(({ sha256 }) => sha256)
  await referTo(tx, runId, 'files', digests)
  // The workspace that was uploaded for it.
  await tx.query(
    `INSERT INTO caisson.run_blobs (run_id, part, sha256)
     SELECT $1, part, sha256 FROM caisson.run_blobs WHERE run_id = $2 AND part = 'request'`,
    [runId, of[0]],
  )
}

async function addLines(tx: Queries, { runId, end, lines }: AdoptedRun): Promise<void> {
  let collected: ChainedLine[] = []
  let chars = 0
  let last = { seq: 0, hash: '' }
  const add = async (): Promise<void> => {
    await tx.query(
      `INSERT INTO caisson.journal (run_id, seq, epoch, prev, hash, body)
       SELECT $1, line.seq, 0, line.prev, line.hash, line.body
         FROM unnest($2::integer[], $3::text[], $4::text[], $5::text[]) AS line (seq, prev, hash, body)`,
      [
        runId,
        ...(['seq', 'prev', 'hash', 'body'] as const).map((name) => collected.map((line) => line[name])),
      ],
    )
    collected = []
    chars = 0
  }
  for await (const line of lines()) {
    collected.push(line)
    chars += line.body.length
    last = line
    if (collected.length >= linesAtOnce || chars >= charsAtOnce) await add()
  }
  if (collected.length > 0) await add()
  if (last.seq !== end.seq || last.hash !== end.hash)
    throw new CaissonError('state_corrupted', `the journal of ${runId} changed while the fleet took it`)
}
