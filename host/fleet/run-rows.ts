/**
 * What lists show of the runs of a fleet: columns of their rows, written by the host that has the run. What another host wrote
 * there is checked before it is shown: a list names the run and its problem otherwise.
 */
import { RunOutcome } from '#specs/protocol/task.ts'
import { Milliseconds } from '#specs/protocol/text.ts'
import { RunFold, RunOutline } from '../journal/run-outline.ts'
import { begunAt } from '../journal/run-query.ts'
import type { SharedRunQuery } from '../journal/run-source.ts'
import type { SharedRun } from '../journal/shared-run.ts'
import type { FleetDatabase, Queries } from './database.ts'

interface Row {
  readonly runId: string
  readonly hostId: string | null
  readonly hostName: string | null
  /** ms since 1970. */
  readonly takenAt: number | null
  readonly hasEnded: boolean
  readonly waits: boolean
  readonly begunAt: string
  readonly seq: number
  readonly hash: string
  readonly outline: unknown
}

const columns = `run.run_id AS "runId", run.host_id AS "hostId", run.has_ended AS "hasEnded", run.waits,
  run.begun_at AS "begunAt", run.seq, run.head AS hash, run.outline,
  (extract(epoch FROM run.taken_at) * 1000)::float AS "takenAt", host.name AS "hostName"`
const from = 'caisson.runs AS run LEFT JOIN caisson.hosts AS host ON host.host_id = run.host_id'

/** What a list of open questions shows at most of a fleet. */
const idsMax = 1_000

/** Assignments for a parameter that {@link listedOf} made; null changes nothing. */
export function setListed(parameter: string): string {
  const given = `${parameter}::jsonb`
  return [
    `outline = coalesce(${given} -> 'outline', outline)`,
    `begun_at = coalesce((${given} ->> 'begunAt')::bigint, begun_at)`,
    `workspace = coalesce(${given} ->> 'workspace', workspace)`,
    `model = coalesce(${given} ->> 'model', model)`,
    `metadata = coalesce(${given} -> 'metadata', metadata)`,
    `outcome = coalesce(${given} ->> 'outcome', outcome)`,
    `tokens = greatest(tokens, (${given} ->> 'tokens')::bigint)`,
    `cost_usd = greatest(cost_usd, (${given} ->> 'costUsd')::float8)`,
    `questions = coalesce((${given} ->> 'questions')::integer, questions)`,
  ].join(', ')
}

/** JSON for {@link setListed}. */
export function listedOf(outline: RunOutline): string {
  const { startedAt, forkedAt, workspace, model, metadata = {}, openApprovals, state } = outline
  return toJsonb({
    ...(startedAt === null ? {} : { begunAt: begunAt({ startedAt, forkedAt }) }),
    ...{ workspace, model, metadata, questions: openApprovals.length, outline },
    ...(state.end === null ? {} : { outcome: state.end.outcome }),
    tokens: state.usage.inputTokens + state.usage.outputTokens,
    ...(state.costUsd === null ? {} : { costUsd: state.costUsd }),
  })
}

/** JSON whose texts PostgreSQL stores: without NUL and lone surrogates. */
function toJsonb(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => (typeof part === 'string' ? storableText(part) : part))
}

function storableText(text: string): string {
  return text.replaceAll('\0', '\ufffd').toWellFormed()
}

/** What is known of a run that was submitted and has no journal yet. */
export interface SubmittedRun {
  /** ms since 1970. */
  readonly at: number
  readonly prompt: string
  readonly workspace: string
  readonly model: string
  readonly metadata?: Readonly<Record<string, string>>
}

/** In the transaction that adds the run. */
export async function describeSubmitted(tx: Queries, runId: string, run: SubmittedRun): Promise<void> {
  const { at, prompt, workspace, model, metadata } = run
  const outline: RunOutline = {
    ...new RunFold().outline,
    ...{ startedAt: at, prompt: prompt.slice(0, 500).toWellFormed(), workspace, model },
    ...(metadata === undefined ? {} : { metadata: { ...metadata } }),
  }
  await tx.query(`UPDATE caisson.runs SET ${setListed('$2')} WHERE run_id = $1`, [runId, listedOf(outline)])
}

export class RunRows {
  readonly #database: FleetDatabase

  constructor(database: FleetDatabase) {
    this.#database = database
  }

  /** Undefined: the fleet has no such run. */
  async run(runId: string): Promise<SharedRun | undefined> {
    const [row] = await this.#database.query<Row>(`SELECT ${columns} FROM ${from} WHERE run.run_id = $1`, [
      runId,
    ])
    return row === undefined ? undefined : sharedRun(row)
  }

  /** Newest first, as lists are. */
  async find({ filter = {}, after, limit, ids, asks }: SharedRunQuery): Promise<SharedRun[]> {
    const values: unknown[] = []
    // Another id breaks the list for those who check it.
    const conditions: string[] = ["run.run_id ~ '^run-[0-9a-f]{20}$'"]
    const require = (condition: (...names: string[]) => string, ...given: unknown[]): void => {
      const names = given.map((value) => `$${values.push(value)}`)
      conditions.push(condition(...names))
    }
    const { status, workspace, model, metadata = {} } = filter
    if (workspace !== undefined) require((name) => `run.workspace = ${name}`, storableText(workspace))
    if (model !== undefined) require((name) => `run.model = ${name}`, storableText(model))
    if (Object.keys(metadata).length > 0)
      require((name) => `run.metadata @> ${name}::jsonb`, toJsonb(metadata))
    if (status !== undefined) {
      const outcome = RunOutcome.safeParse(status).data
      if (outcome === undefined) require(() => statusConditions[status] ?? 'false')
      else require((name) => `run.outcome = ${name}`, outcome)
    }
    if (ids !== undefined) require((name) => `run.run_id = ANY(${name}::text[])`, ids)
    if (asks === true) require(() => 'run.questions > 0 AND NOT run.has_ended')
    if (after !== undefined)
      require((at, id) =>
        `run.begun_at <= ${at} AND (run.begun_at < ${at} OR run.run_id > ${id})`, after.begunAt, after.id)
    const where = `WHERE ${conditions.join(' AND ')}`
    values.push(limit)
    const rows = await this.#database.query<Row>(
      `SELECT ${columns} FROM ${from} ${where} ORDER BY run.begun_at DESC, run.run_id LIMIT $${values.length}`,
      values,
    )
    return rows.map(sharedRun)
  }

  /** Ids that begin so. */
  async idsFrom(prefix: string, limit: number): Promise<string[]> {
    const rows = await this.#database.query<{ runId: string }>(
      `SELECT run_id AS "runId" FROM caisson.runs
        WHERE run_id >= $1 AND run_id <= $1 || 'zzzz' AND starts_with(run_id, $1) ORDER BY run_id LIMIT $2`,
      [storableText(prefix), Math.min(limit, idsMax)],
    )
    return rows.map(({ runId }) => runId)
  }

  /** Lines of journals by their places; those that are not there are left out. */
  async lines(
    places: readonly { readonly runId: string; readonly seq: number }[],
  ): Promise<readonly { readonly runId: string; readonly seq: number; readonly body: string }[]> {
    return await this.#database.query(
      `SELECT line.run_id AS "runId", line.seq, line.body
         FROM unnest($1::text[], $2::integer[]) AS place (run_id, seq) JOIN caisson.journal AS line USING (run_id, seq)`,
      [places.map(({ runId }) => runId), places.map(({ seq }) => seq)],
    )
  }

  /** The hash of a line; undefined: there is none. */
  async hashOf(runId: string, seq: number): Promise<string | undefined> {
    const [row] = await this.#database.query<{ hash: string }>(
      'SELECT hash FROM caisson.journal WHERE run_id = $1 AND seq = $2',
      [runId, seq],
    )
    return row?.hash
  }
}

/** As {@link sharedStatus} says of a row. */
const statusConditions: Readonly<Record<string, string>> = {
  queued: 'run.host_id IS NULL AND NOT run.waits AND NOT run.has_ended',
  sleeping: 'run.host_id IS NULL AND run.waits AND NOT run.has_ended',
  running: 'run.host_id IS NOT NULL AND run.questions = 0 AND NOT run.has_ended',
  waiting: 'run.host_id IS NOT NULL AND run.questions > 0 AND NOT run.has_ended',
  // Only who reads the outline knows.
  damaged: 'true',
}

function sharedRun(row: Row): SharedRun {
  const { runId: id, hostId, hostName, takenAt, hasEnded, waits, seq, hash } = row
  const { outline, problem } = readOutline(row)
  return {
    ...{ id, hasEnded, waits, seq, hash, outline, begunAt: Number(row.begunAt) },
    host: hostId === null ? null : { id: hostId, name: hostName ?? hostId, since: Math.trunc(takenAt ?? 0) },
    ...(problem === undefined ? {} : { problem }),
  }
}

/** A host may have written anything there. */
function readOutline({ outline, begunAt: at, hasEnded }: Row): {
  readonly outline: RunOutline
  readonly problem?: string
} {
  const isTime = Milliseconds.safeParse(Number(at)).success
  const empty = { ...new RunFold().outline, startedAt: isTime ? Number(at) : 0 }
  if (outline === null) return { outline: empty }
  const { data } = RunOutline.safeParse(outline)
  if (data === undefined)
    return { outline: empty, problem: 'the fleet has something else than an outline of this run' }
  if ((data.state.end !== null) !== hasEnded)
    return {
      outline: empty,
      problem: 'the outline of this run in the fleet differs from its row about its end',
    }
  const listed = { ...data, startedAt: data.startedAt ?? Number(at) }
  if (begunAt(listed) !== Number(at))
    return {
      outline: empty,
      problem: 'the outline of this run in the fleet differs from its row about when it began',
    }
  return { outline: listed }
}
