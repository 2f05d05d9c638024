/** What the callers of a fleet use, counted over all hosts. Hosts say what each run has used; a day is one of UTC. */
import type { FleetDatabase } from './database.ts'

export interface CallerUse {
  readonly runsAtWork: number
  /** Runs that began today. */
  readonly runsToday: number
  /** Of the runs that began today: input and output tokens, and US dollars. */
  readonly tokens: number
  readonly costUsd: number
}

/** @param exceptRunId a run that does not count, such as the one that continues */
export async function useOf(
  database: FleetDatabase,
  caller: string,
  exceptRunId: string | null = null,
): Promise<CallerUse> {
  const [row] = await database.query<CallerUse>(
    `SELECT count(*) FILTER (WHERE host_id IS NOT NULL AND tag IS NULL AND NOT has_ended)::integer AS "runsAtWork",
            count(*) FILTER (WHERE is_today)::integer AS "runsToday",
            coalesce(sum(tokens) FILTER (WHERE is_today), 0)::float AS tokens,
            coalesce(sum(cost_usd) FILTER (WHERE is_today), 0)::float AS "costUsd"
       FROM (SELECT *, created_at >= date_trunc('day', now(), 'UTC') AS is_today FROM caisson.runs
              WHERE caller = $1 AND run_id IS DISTINCT FROM $2
                AND (created_at >= date_trunc('day', now(), 'UTC') OR NOT has_ended)) AS run`,
    [caller, exceptRunId],
  )
  return row ?? { runsAtWork: 0, runsToday: 0, tokens: 0, costUsd: 0 }
}

/** What the run has used so far, in all. It never becomes less. */
export async function noteUse(
  database: FleetDatabase,
  runId: string,
  { tokens, costUsd }: { readonly tokens: number; readonly costUsd: number },
): Promise<void> {
  await database.query(
    'UPDATE caisson.runs SET tokens = greatest(tokens, $2::bigint), cost_usd = greatest(cost_usd, $3) WHERE run_id = $1',
    [runId, Math.round(tokens), costUsd],
  )
}
