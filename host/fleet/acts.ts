/**
 * What a host asks the host of a run to do: rows that the other one is notified of. The host that has the run carries an act
 * out and writes the outcome. One that was begun by a host that is gone is judged by the journal: see host/fleet-runs/acts.ts.
 * An act may be for one host, whoever has the run: only that host begins it, and once.
 */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { parseJson } from '../files/json.ts'
import type { FleetDatabase, Queries } from './database.ts'
import { goneAfter } from './host-table.ts'
import { releaseLeft } from './run-table.ts'

/** Channel of notices: ids of hosts that were asked, and `act-ID` of acts with an outcome. */
export const actsChannel = 'caisson_acts'

export const ActOutcome = z.union([
  z.strictObject({ value: z.unknown() }),
  z.strictObject({
    error: z.strictObject({ code: z.string(), message: z.string(), remedy: z.string().optional() }),
  }),
])
export type ActOutcome = z.infer<typeof ActOutcome>

export interface Act {
  readonly actId: string
  readonly runId: string
  /** Of whoever wrote the row. */
  readonly kind: string
  readonly body: unknown
  readonly by: string
  /** For this host alone. Null: for the host that has the run. */
  readonly hostId: string | null
  /** End of the journal when another host began it. Null: none has. */
  readonly begunSeq: number | null
}

const columns = `act_id AS "actId", run_id AS "runId", kind, body, made_by AS by, acts.host_id AS "hostId",
  begun_seq AS "begunSeq"`
/** Whether a host has to begin it: the one that it is for, once; or the one that has the run, each time that it has it. */
const isDue = (host: string) => `acts.outcome IS NULL AND CASE WHEN acts.host_id IS NULL
  THEN run.host_id = ${host} AND begun_epoch IS DISTINCT FROM run.epoch
  ELSE acts.host_id = ${host} AND begun_epoch IS NULL END`
/** What nobody waits for any more. */
const keptFor = '1 hour'
const actsAtOnce = 100

/** JSON for a column of `jsonb`, which has no NUL and no lone surrogates: a value with one is stored as text. */
function storable(value: unknown): string {
  const text = JSON.stringify(value)
  return /\\u(0000|d[89a-f])/.test(text) ? JSON.stringify(text) : text
}

/** What {@link storable} was given. Undefined: it is none of that. */
function stored(value: unknown): unknown {
  return typeof value === 'string' ? parseJson(value) : value
}

export class ActTable {
  readonly #database: FleetDatabase

  constructor(database: FleetDatabase) {
    this.#database = database
  }

  /** Undefined: no host has the run. @returns the id of the act */
  async ask(runId: string, kind: string, body: unknown, by: string): Promise<string | undefined> {
    return await this.#database.transaction(async (tx) => {
      await tx.query(`DELETE FROM caisson.acts WHERE made_at < now() - interval '${keptFor}'`)
      await releaseLeft(tx, runId)
      const [asked] = await tx.query<{ actId: string }>(
        `WITH held AS (
           SELECT run_id, host_id FROM caisson.runs WHERE run_id = $1 AND host_id IS NOT NULL FOR SHARE
         ), added AS (
           INSERT INTO caisson.acts (run_id, kind, body, made_by)
           SELECT run_id, $2, $3::jsonb, $4 FROM held RETURNING act_id
         )
         SELECT act_id AS "actId", pg_notify('${actsChannel}', held.host_id) FROM added, held`,
        [runId, kind, storable(body), by],
      )
      return asked?.actId
    })
  }

  /** For one host, whether or not it has the run. @returns the id of the act @throws {CaissonError} */
  async askHost(runId: string, hostId: string, kind: string, body: unknown, by: string): Promise<string> {
    const [asked] = await this.#database.query<{ actId: string }>(
      `WITH added AS (
         INSERT INTO caisson.acts (run_id, host_id, kind, body, made_by)
         SELECT run_id, $2, $3, $4::jsonb, $5 FROM caisson.runs WHERE run_id = $1 RETURNING act_id
       ) SELECT act_id AS "actId", pg_notify('${actsChannel}', $2) FROM added`,
      [runId, hostId, kind, storable(body), by],
    )
    if (asked === undefined) throw new CaissonError('run_not_found', `the fleet has no run ${runId}`)
    return asked.actId
  }

  /** Of an act for one host: what came of it, whether it was begun, and whether that host is there. */
  async look(
    actId: string,
  ): Promise<{ readonly outcome: unknown; readonly isBegun: boolean; readonly isThere: boolean }> {
    const [row] = await this.#database.query<{ outcome: unknown; isBegun: boolean; isThere: boolean }>(
      `SELECT outcome, begun_epoch IS NOT NULL AS "isBegun",
              EXISTS (SELECT FROM caisson.hosts AS host WHERE host.host_id = acts.host_id
                         AND host.left_at IS NULL AND host.seen_at > now() - interval '${goneAfter}') AS "isThere"
         FROM caisson.acts WHERE act_id = $1`,
      [actId],
    )
    // A row that is gone has no outcome that anybody finds.
    if (row === undefined) return { outcome: undefined, isBegun: true, isThere: false }
    return { ...row, outcome: stored(row.outcome) ?? undefined }
  }

  /**
   * Acts on runs that the host has, or for the host, and which it has not begun, in order, up to 100.
   * @param after id of an act
   */
  async open(hostId: string, after = '0'): Promise<readonly Act[]> {
    return await this.#database.query<Act>(
      `SELECT ${columns} FROM caisson.acts JOIN caisson.runs AS run USING (run_id)
        WHERE ${isDue('$1')} AND act_id > $2 ORDER BY act_id LIMIT ${actsAtOnce}`,
      [hostId, after],
    )
  }

  /** As {@link open}, all of them. */
  async *allOpen(hostId: string): AsyncGenerator<Act, void> {
    for (let after: string | undefined = '0'; after !== undefined; ) {
      const acts: readonly Act[] = await this.open(hostId, after)
      for (const act of acts) yield { ...act, body: stored(act.body) }
      after = acts.length < actsAtOnce ? undefined : acts.at(-1)?.actId
    }
  }

  /**
   * Begins an act, once for each time that a host has the run; one for a host once.
   * @returns false: it is begun, done or withdrawn
   */
  async begin(actId: string, hostId: string): Promise<boolean> {
    const begun = await this.#database.query(
      `UPDATE caisson.acts SET begun_seq = coalesce(begun_seq, run.seq), begun_epoch = run.epoch
         FROM caisson.runs AS run
        WHERE act_id = $1 AND run.run_id = acts.run_id AND ${isDue('$2')} RETURNING act_id`,
      [actId, hostId],
    )
    return begun.length > 0
  }

  async end(actId: string, outcome: ActOutcome): Promise<void> {
    await this.#database.query(
      `WITH ended AS (
         UPDATE caisson.acts SET outcome = $2::jsonb WHERE act_id = $1 AND outcome IS NULL RETURNING act_id
       ) SELECT pg_notify('${actsChannel}', 'act-' || act_id) FROM ended`,
      [actId, storable(outcome)],
    )
  }

  /** Undefined: none yet. */
  async outcome(actId: string): Promise<unknown> {
    const [row] = await this.#database.query<{ outcome: unknown }>(
      'SELECT outcome FROM caisson.acts WHERE act_id = $1',
      [actId],
    )
    return stored(row?.outcome) ?? undefined
  }

  /**
   * Takes an act back, unless a host is at it.
   * @returns undefined: a host is at it; else where the journal ended when an earlier host began it, or null: none did
   */
  async withdraw(actId: string): Promise<{ readonly begunSeq: number | null } | undefined> {
    return await this.#database.transaction(async (tx: Queries) => {
      const [act] = await tx.query<{ runId: string }>(
        'SELECT run_id AS "runId" FROM caisson.acts WHERE act_id = $1 AND outcome IS NULL',
        [actId],
      )
      if (act === undefined) return undefined
      // No host takes the run, and none begins the act, meanwhile.
      await tx.query('SELECT FROM caisson.runs WHERE run_id = $1 FOR UPDATE', [act.runId])
      const [withdrawn] = await tx.query<{ begunSeq: number | null }>(
        `UPDATE caisson.acts SET outcome = '{"value": "withdrawn"}' FROM caisson.runs AS run
          WHERE act_id = $1 AND acts.outcome IS NULL AND run.run_id = acts.run_id
            AND CASE WHEN acts.host_id IS NULL THEN run.host_id IS NULL OR begun_epoch IS DISTINCT FROM run.epoch
                     ELSE begun_epoch IS NULL END
          RETURNING begun_seq AS "begunSeq"`,
        [actId],
      )
      return withdrawn
    })
  }
}
