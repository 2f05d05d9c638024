/**
 * Who has which run of a fleet, and the lines of their journals. The epoch is the fence: taking a run raises it, and what the
 * host before still writes is refused. No clock of a host decides anything.
 */
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { ChainedLine } from '../journal/journal.ts'
import { chainLine } from '../journal/journal-lines.ts'
import type { RunOutline } from '../journal/run-outline.ts'
import { referTo } from './blobs.ts'
import type { FleetDatabase, Queries } from './database.ts'
import { goneAfter } from './host-table.ts'
import { listedOf, setListed } from './run-rows.ts'

/** What a host has of a run that it took. */
export interface Hold {
  readonly runId: string
  readonly hostId: string
  readonly epoch: number
}

/** The end of a journal. */
export interface RunHead {
  readonly epoch: number
  /** Null: nobody has the run. */
  readonly hostId: string | null
  readonly seq: number
  readonly hash: string
  readonly hasEnded: boolean
  /** Whether it waits for nothing but people. */
  readonly waits: boolean
}

/** A file of a run. The list may say more about it. */
export interface StoredFile {
  readonly sha256: string
}

/** What else the lines say of the run. */
interface Appended {
  readonly ends?: boolean
  readonly files?: readonly StoredFile[] | undefined
  /** What lists show from now on. Absent: as before. */
  readonly outline?: RunOutline | undefined
}

interface Taker {
  readonly hostId: string
  /** For the journal. */
  readonly name: string
  readonly message: string
}

/** Channel of notices: each is the id of a run whose journal grew, and that somebody follows. */
export const journalChannel = 'caisson_journal'

const headColumns = 'epoch, host_id AS "hostId", seq, head AS hash, has_ended AS "hasEnded", waits'

/** A run that ends each of its hosts has a bound too; see run-requests.ts. */
const withLostTry = `CASE WHEN host_id IS NULL THEN failures ELSE failures || jsonb_build_array(jsonb_build_object(
  'hostId', host_id, 'host', host_id, 'message', 'the host gave no sign of life while it had the run')) END`

/** One statement, so that no other line and no other host comes between check and write. */
const append = `
  WITH own AS (
    UPDATE caisson.runs
       SET seq = seq + cardinality($5::text[]), head = ($6::text[])[cardinality($6::text[])],
           bytes = bytes + $8, has_ended = has_ended OR $9,
           ended_at = CASE WHEN $9 THEN coalesce(ended_at, now()) ELSE ended_at END, files = coalesce($10::jsonb, files),
           ${setListed('$11')}
     WHERE run_id = $1 AND host_id = $2 AND epoch = $3 AND seq = $4 AND head = ($5::text[])[1]
     RETURNING run_id
  ), added AS (
    INSERT INTO caisson.journal (run_id, seq, epoch, prev, hash, body)
    SELECT own.run_id, $4 + line.place, $3, line.prev, line.hash, line.body
      FROM own, unnest($5::text[], $6::text[], $7::text[]) WITH ORDINALITY AS line (prev, hash, body, place)
    RETURNING seq
  )
  SELECT CASE WHEN EXISTS (SELECT FROM caisson.followed WHERE run_id = $1 AND until > now())
              THEN pg_notify('${journalChannel}', $1)::text END, (SELECT count(*)::integer FROM added) AS added FROM own`

/**
 * Takes runs that nobody has to drive from hosts that are gone: such a host was killed before it gave one back that it had
 * ended, or whose changes it applied. What it still writes is refused.
 * @param runId absent: of all runs
 */
export async function releaseLeft(queries: Queries, runId: string | null = null): Promise<void> {
  await queries.query(
    `UPDATE caisson.runs AS run SET host_id = NULL, epoch = epoch + 1, leaves = false
      WHERE host_id IS NOT NULL AND (has_ended OR waits) AND ($1::text IS NULL OR run_id = $1)
        AND NOT EXISTS (SELECT FROM caisson.hosts AS host WHERE host.host_id = run.host_id
              AND host.left_at IS NULL AND host.seen_at > now() - interval '${goneAfter}')`,
    [runId],
  )
}

export class RunTable {
  readonly #database: FleetDatabase

  constructor(database: FleetDatabase) {
    this.#database = database
  }

  /** Address of the fleet, for people. */
  get place(): string {
    return this.#database.address.shown
  }

  /** Adds a run that nobody has yet, in a transaction with what comes of it. */
  async create(tx: Queries, runId: string, lane = ''): Promise<void> {
    await tx.query('INSERT INTO caisson.runs (run_id, lane) VALUES ($1, $2)', [runId, lane])
  }

  /** Undefined: the fleet has no such run. */
  async head(runId: string, queries: Queries = this.#database): Promise<RunHead | undefined> {
    const [row] = await queries.query<RunHead>(`SELECT ${headColumns} FROM caisson.runs WHERE run_id = $1`, [
      runId,
    ])
    return row
  }

  /**
   * Takes the run from whoever has it, if that is still who had it at `seen`: of several hosts that saw the same, one gets it.
   * The journal says so, unless it has no line yet.
   * @returns undefined: another host was faster, or the run has ended
   */
  async take(runId: string, seen: RunHead, taker: Taker): Promise<Hold | undefined> {
    return await this.#database.transaction((tx) => this.takeIn(tx, runId, seen, taker))
  }

  /** As {@link take}, in a transaction. */
  async takeIn(
    tx: Queries,
    runId: string,
    seen: Pick<RunHead, 'epoch'>,
    { hostId, name, message }: Taker,
  ): Promise<Hold | undefined> {
    const [now] = await tx.query<RunHead>(
      `UPDATE caisson.runs SET epoch = epoch + 1, host_id = $2, taken_at = now(), waits = false, tag = NULL, carried_by = $4,
              leaves = false, wants_host = NULL, avoids_host = NULL, wants_until = NULL, not_before = NULL,
              failures = ${withLostTry}
        WHERE run_id = $1 AND epoch = $3 AND NOT has_ended RETURNING ${headColumns}`,
      [runId, hostId, seen.epoch, name],
    )
    if (now === undefined) return undefined
    const hold = { runId, hostId, epoch: now.epoch }
    if (now.seq > 0) {
      const event = { type: 'run-take', epoch: now.epoch, host: name, message } as const
      await this.#write(tx, hold, [nextRow(runId, now, event)])
    }
    return hold
  }

  /**
   * Takes a run that no host carries out, for lines that do not carry it on, such as of changes that are applied.
   * @returns undefined: a host has it, or it waits for one, or the journal has grown since `seen`
   */
  async enter(
    runId: string,
    seen: RunHead,
    { hostId, name }: Pick<Taker, 'hostId' | 'name'>,
  ): Promise<Hold | undefined> {
    const [row] = await this.#database.query<{ epoch: number }>(
      `UPDATE caisson.runs SET epoch = epoch + 1, host_id = $2, entered_by = $5
        WHERE run_id = $1 AND epoch = $3 AND seq = $4 AND host_id IS NULL AND (has_ended OR waits) RETURNING epoch`,
      [runId, hostId, seen.epoch, seen.seq, name],
    )
    return row === undefined ? undefined : { runId, hostId, epoch: row.epoch }
  }

  /**
   * Gives the run back: another host may take it at once. Does nothing when another one has it.
   * @param waits whether it waits for nothing but people
   * @returns whether this host had it
   */
  async release(
    { runId, hostId, epoch }: Hold,
    waits: boolean,
    queries: Queries = this.#database,
  ): Promise<boolean> {
    const released = await queries.query(
      `UPDATE caisson.runs SET host_id = NULL, waits = $4, leaves = false
        WHERE run_id = $1 AND host_id = $2 AND epoch = $3 RETURNING run_id`,
      [runId, hostId, epoch, waits],
    )
    return released.length > 0
  }

  /**
   * Adds lines to the journal, all or none. May be repeated with the same lines while it is unknown whether they were added.
   * @param what `ends`: the last one ends the run; `files`: what another host needs to continue from here, which stays in the
   *   store as long as the run names it
   * @throws {CaissonError} `run_busy` when the host has the run no more, `state_unavailable` when the outcome is not known
   * @throws {BlobsGone} when a file has to be stored again; nothing was added
   */
  async append(hold: Hold, rows: readonly ChainedLine[], what: Appended = {}): Promise<void> {
    const { files } = what
    if (rows.length === 0) return
    if (files === undefined) return await this.#write(this.#database, hold, rows, what)
    const digests = files.map(({ sha256 }) => sha256)
    await this.#database.transaction(async (tx) => {
      // First: it locks the row of the run, and refuses a host that has lost it.
      await this.#write(tx, hold, rows, what)
      await referTo(tx, hold.runId, 'files', digests)
    })
  }

  /**
   * Has what is added to the journal noticed for the next minute. Commits with a notice wait for each other in all of the
   * database, so lines that nobody reads have none.
   */
  async follow(runId: string): Promise<void> {
    await this.#database.query(
      `WITH old AS (
         DELETE FROM caisson.followed WHERE run_id IN (
           SELECT run_id FROM caisson.followed WHERE until < now() - interval '1 hour' AND run_id <> $1
              FOR UPDATE SKIP LOCKED LIMIT 100)
       )
       INSERT INTO caisson.followed VALUES ($1, now() + interval '1 minute')
           ON CONFLICT (run_id) DO UPDATE SET until = excluded.until
        WHERE followed.until < now() + interval '30 seconds'`,
      [runId],
    )
  }

  /** Names of hosts: which carried it out last, and which wrote to it last while no host did. Null: none. */
  async places(
    runId: string,
  ): Promise<{ readonly carriedBy: string | null; readonly enteredBy: string | null }> {
    const [row] = await this.#database.query<{ carriedBy: string | null; enteredBy: string | null }>(
      'SELECT carried_by AS "carriedBy", entered_by AS "enteredBy" FROM caisson.runs WHERE run_id = $1',
      [runId],
    )
    return row ?? { carriedBy: null, enteredBy: null }
  }

  /** What {@link append} got last as `files`. Undefined: nothing. */
  async files(runId: string): Promise<unknown> {
    const [row] = await this.#database.query<{ files: unknown }>(
      'SELECT files FROM caisson.runs WHERE run_id = $1',
      [runId],
    )
    return row?.files ?? undefined
  }

  /** The number of lines, and the files that belong to them. Undefined: the fleet has no such run. */
  async stored(
    runId: string,
  ): Promise<{ readonly seq: number; readonly files: unknown; readonly isAtWork: boolean } | undefined> {
    const [row] = await this.#database.query<{ seq: number; files: unknown; isAtWork: boolean }>(
      `SELECT seq, files, host_id IS NOT NULL AND NOT has_ended AS "isAtWork" FROM caisson.runs WHERE run_id = $1`,
      [runId],
    )
    return row
  }

  /**
   * Writes lines into the journal of a run that no host carries out, such as an answer, in one transaction with what
   * follows from it. Of several that saw the same journal, one gets its line in.
   * @param also what else the transaction does, such as to queue the run
   * @param outline what lists show afterwards. Absent: as before
   * @returns `changed`: the journal has grown since `seen`; `busy`: a host has the run, which has to be asked
   */
  async writeFree(
    runId: string,
    seen: RunHead,
    event: HostEvent | readonly HostEvent[],
    also: (tx: Queries) => Promise<void>,
    outline?: (lines: readonly ChainedLine[]) => RunOutline,
  ): Promise<'written' | 'changed' | 'busy'> {
    return await this.#database.transaction(async (tx) => {
      const [now] = await tx.query<RunHead>(
        `SELECT ${headColumns} FROM caisson.runs WHERE run_id = $1 FOR UPDATE`,
        [runId],
      )
      if (now?.hash !== seen.hash || now.epoch !== seen.epoch) return 'changed'
      if (now.hostId !== null) return 'busy'
      // For this moment the one who writes has the run.
      const hold = { runId, hostId: 'nobody', epoch: now.epoch }
      await tx.query('UPDATE caisson.runs SET host_id = $2 WHERE run_id = $1', [runId, hold.hostId])
      const rows: ChainedLine[] = []
      for (const next of [event].flat()) rows.push(nextRow(runId, rows.at(-1) ?? now, next))
      const ends = rows.length > 0 && [event].flat().at(-1)?.type === 'run-end'
      await this.#write(tx, hold, rows, { ends, outline: outline?.(rows) })
      await this.release(hold, now.waits, tx)
      await also(tx)
      return 'written'
    })
  }

  async #write(
    queries: Queries,
    hold: Hold,
    rows: readonly ChainedLine[],
    { ends = false, files, outline }: Appended = {},
  ): Promise<void> {
    const { runId, hostId, epoch } = hold
    const bodies = rows.map(({ body }) => body)
    const bytes = bodies.reduce((sum, body) => sum + Buffer.byteLength(body) + 1, 0)
    const before = (rows[0]?.seq ?? 1) - 1
    const [written] = await queries.query<{ added: number }>(append, [
      ...[runId, hostId, epoch, before, rows.map(({ prev }) => prev), rows.map(({ hash }) => hash)],
      ...[bodies, bytes, ends, files === undefined ? null : JSON.stringify(files)],
      outline === undefined ? null : listedOf(outline),
    ])
    if (written === undefined) await this.#requireWritten(queries, hold, rows)
  }

  /** Whether an earlier try added the lines, and its answer was lost. @throws {CaissonError} `run_busy` */
  async #requireWritten(queries: Queries, hold: Hold, rows: readonly ChainedLine[]): Promise<void> {
    const { runId, hostId, epoch } = hold
    const now = await this.head(runId, queries)
    const last = rows.at(-1)
    if (now?.hostId === hostId && now.epoch === epoch && now.seq === last?.seq && now.hash === last.hash)
      return
    const seen =
      now === undefined
        ? 'the fleet has no such run'
        : now.hostId === hostId && now.epoch === epoch
          ? `its journal ends at line ${now.seq} with another hash`
          : 'another host has taken it'
    throw new CaissonError('run_busy', `this host writes nothing more to ${runId}: ${seen}`)
  }
}

function nextRow(
  runId: string,
  { seq, hash: prev }: Pick<RunHead, 'seq' | 'hash'>,
  event: HostEvent,
): ChainedLine {
  const { line, hash } = chainLine({ seq: seq + 1, at: Date.now(), runId, source: 'host', event, prev })
  return { seq: seq + 1, prev, hash, body: line }
}
