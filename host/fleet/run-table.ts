/**
 * Who has which run of a fleet, and the lines of their journals. The epoch is the fence: taking a run raises it, and what the
 * host before still writes is refused. No clock of a host decides anything.
 */
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { ChainedLine } from '../journal/journal.ts'
import { chainLine } from '../journal/journal-lines.ts'
import type { FleetDatabase, Queries } from './database.ts'

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

/** What else the lines say of the run. */
interface Appended {
  readonly ends?: boolean
  readonly files?: unknown
}

interface Taker {
  readonly hostId: string
  /** For the journal. */
  readonly name: string
  readonly message: string
}

/** Channel of notices: each is the id of a run whose journal grew. */
export const journalChannel = 'caisson_journal'

const headColumns = 'epoch, host_id AS "hostId", seq, head AS hash, has_ended AS "hasEnded", waits'

/** One statement, so that no other line and no other host comes between check and write. */
const append = `
  WITH own AS (
    UPDATE caisson.runs
       SET seq = seq + cardinality($5::text[]), head = ($6::text[])[cardinality($6::text[])],
           bytes = bytes + $8, has_ended = has_ended OR $9, files = coalesce($10::jsonb, files)
     WHERE run_id = $1 AND host_id = $2 AND epoch = $3 AND seq = $4 AND head = ($5::text[])[1]
     RETURNING run_id
  ), added AS (
    INSERT INTO caisson.journal (run_id, seq, epoch, prev, hash, body)
    SELECT own.run_id, $4 + line.place, $3, line.prev, line.hash, line.body
      FROM own, unnest($5::text[], $6::text[], $7::text[]) WITH ORDINALITY AS line (prev, hash, body, place)
    RETURNING seq
  )
  SELECT pg_notify('${journalChannel}', own.run_id), (SELECT count(*)::integer FROM added) AS added FROM own`

export class RunTable {
  readonly #database: FleetDatabase

  constructor(database: FleetDatabase) {
    this.#database = database
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
  async take(runId: string, seen: RunHead, { hostId, name, message }: Taker): Promise<Hold | undefined> {
    return await this.#database.transaction(async (tx) => {
      const [found] = await tx.query<{ tag: string | null }>(
        'SELECT tag FROM caisson.runs WHERE run_id = $1 AND epoch = $2 AND NOT has_ended FOR UPDATE',
        [runId, seen.epoch],
      )
      if (found === undefined) return undefined
      const [now] = await tx.query<RunHead>(
        `UPDATE caisson.runs SET epoch = epoch + 1, host_id = $2, taken_at = now(), waits = false, tag = NULL
          WHERE run_id = $1 RETURNING ${headColumns}`,
        [runId, hostId],
      )
      if (now === undefined) return undefined
      if (found.tag !== null)
        await tx.query('UPDATE caisson.served SET tag = greatest(tag, $1::bigint)', [found.tag])
      const hold = { runId, hostId, epoch: now.epoch }
      if (now.seq > 0) {
        const event = { type: 'run-take', epoch: now.epoch, host: name, message } as const
        await this.#write(tx, hold, [nextRow(runId, now, event)])
      }
      return hold
    })
  }

  /**
   * Gives the run back: another host may take it at once. Does nothing when another one has it.
   * @param waits whether it waits for nothing but people
   */
  async release(
    { runId, hostId, epoch }: Hold,
    waits: boolean,
    queries: Queries = this.#database,
  ): Promise<void> {
    await queries.query(
      'UPDATE caisson.runs SET host_id = NULL, waits = $4 WHERE run_id = $1 AND host_id = $2 AND epoch = $3',
      [runId, hostId, epoch, waits],
    )
  }

  /**
   * Adds lines to the journal, all or none. May be repeated with the same lines while it is unknown whether they were added.
   * @param what `ends`: the last one ends the run; `files`: what another host needs to continue from here, as JSON
   * @throws {CaissonError} `run_busy` when the host has the run no more, `state_unavailable` when the outcome is not known
   */
  async append(hold: Hold, rows: readonly ChainedLine[], what: Appended = {}): Promise<void> {
    if (rows.length > 0) await this.#write(this.#database, hold, rows, what)
  }

  /** What {@link append} got last as `files`. Undefined: nothing. */
  async files(runId: string): Promise<unknown> {
    const [row] = await this.#database.query<{ files: unknown }>(
      'SELECT files FROM caisson.runs WHERE run_id = $1',
      [runId],
    )
    return row?.files ?? undefined
  }

  /**
   * Writes a line into the journal of a run that no host carries out, such as an answer, in one transaction with what
   * follows from it. Of several that saw the same journal, one gets its line in.
   * @param also what else the transaction does, such as to queue the run
   * @returns `changed`: the journal has grown since `seen`; `busy`: a host has the run, which has to be asked
   */
  async writeFree(
    runId: string,
    seen: RunHead,
    event: HostEvent,
    also: (tx: Queries) => Promise<void>,
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
      await this.#write(tx, hold, [nextRow(runId, now, event)], { ends: event.type === 'run-end' })
      await this.release(hold, true, tx)
      await also(tx)
      return 'written'
    })
  }

  async #write(
    queries: Queries,
    hold: Hold,
    rows: readonly ChainedLine[],
    { ends = false, files }: Appended = {},
  ): Promise<void> {
    const { runId, hostId, epoch } = hold
    const bodies = rows.map(({ body }) => body)
    const bytes = bodies.reduce((sum, body) => sum + Buffer.byteLength(body) + 1, 0)
    const before = (rows[0]?.seq ?? 1) - 1
    const [written] = await queries.query<{ added: number }>(append, [
      ...[runId, hostId, epoch, before, rows.map(({ prev }) => prev), rows.map(({ hash }) => hash)],
      ...[bodies, bytes, ends, files === undefined ? null : JSON.stringify(files)],
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

function nextRow(runId: string, { seq, hash: prev }: RunHead, event: HostEvent): ChainedLine {
  const { line, hash } = chainLine({ seq: seq + 1, at: Date.now(), runId, source: 'host', event, prev })
  return { seq: seq + 1, prev, hash, body: line }
}
