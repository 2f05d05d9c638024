/** Very many runs of a fleet that wait for a host, as if they had been submitted one by one; sizes of their tables. */
import type { FleetDatabase } from '../../host/fleet/database.ts'
import type { Fleet } from '../../host/fleet/fleet.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import type { Figures } from './bench.ts'

interface Amount {
  readonly runs: number
  readonly lanes: number
  readonly seed: number
  /** In front of one more lane, which no host serves, and one behind them that each host serves. Default: 0. */
  readonly unservable?: number
  /** That wait for people. Default: 0. */
  readonly people?: number
  /** Default: 0. */
  readonly ended?: number
}

export const stuckLane = 'stuck'

/** Lane 1 has the most of them: lane N has a share of 1/N, as users of a service have. */
export async function addWaitingRuns(
  fleet: Fleet,
  { runs, lanes, seed, unservable = 0, people = 0, ended = 0 }: Amount,
): Promise<Figures> {
  const { database } = fleet
  // Its job is what the others are copies of.
  const first = newRunId()
  await fleet.add(first, { priority: 'normal', isContinued: false, lane: 'first' })
  const since = performance.now()
  const columns = await database.query<{ name: string }>(
    `SELECT column_name AS name FROM information_schema.columns
      WHERE table_schema = 'caisson_queue' AND table_name = 'job' AND is_generated = 'NEVER'`,
  )
  const own: Readonly<Record<string, string>> = {
    id: 'gen_random_uuid()',
    singleton_key: 'run.run_id',
    data: `jsonb_build_object('runId', run.run_id)`,
    // Its number alone: the order is that of the lanes.
    priority: 'run.tag::integer',
    created_on: 'now()',
  }
  const names = columns.map(({ name }) => name)
  const chunk = 5_000
  const total = Array.from({ length: lanes }, (_, index) => 1 / (index + 1)).reduce(
    (sum, one) => sum + one,
    0,
  )
  await database.query(
    `CREATE TABLE public.shares AS
       SELECT lane, 'lane' || lane AS name, sum(1.0 / lane) OVER (ORDER BY lane) / $2 AS upto
         FROM generate_series(1, $1::integer) AS lane`,
    [lanes, total],
  )
  await database.query('CREATE INDEX ON public.shares (upto)')
  await database.query(
    'CREATE TABLE public.sample AS SELECT * FROM caisson_queue.job WHERE singleton_key = $1',
    [first],
  )
  const given = names.map((name) => own[name] ?? `sample.${name}`).join(', ')
  await database.query('ALTER TABLE caisson.runs DISABLE TRIGGER USER')
  for (let from = 1; from <= runs; from += chunk)
    await database.query(
      `WITH picked AS (
         SELECT 'run-' || substr(md5($3::text || place::text), 1, 20) AS run_id, place,
                ('x' || substr(md5(place::text || 'lane' || $3::text), 1, 7))::bit(28)::integer / 268435456.0 AS at
           FROM generate_series($1::integer, $2::integer) AS place
       ), laned AS (
         SELECT run_id,
                coalesce((SELECT name FROM public.shares WHERE upto > at ORDER BY upto LIMIT 1), 'lane1') AS lane
           FROM picked
       ), tagged AS MATERIALIZED (
         SELECT run_id, lane, nextval('caisson.places') AS tag FROM laned
       ), kept AS (
         INSERT INTO caisson.lanes (lane, tag) SELECT DISTINCT lane, 0 FROM tagged ON CONFLICT DO NOTHING
       ), queued AS (
         INSERT INTO caisson_queue.job (${names.join(', ')})
         SELECT ${given} FROM tagged AS run, public.sample
       )
       INSERT INTO caisson.runs (run_id, lane, rank, tag, waits_since) SELECT run_id, lane, 2, tag, now() FROM tagged`,
      [from, Math.min(runs, from + chunk - 1), seed],
    )
  if (unservable > 0) await addUnservable(fleet, unservable)
  await addOthers(database, { people, ended })
  await countAgain(database)
  return {
    waitingRuns: runs,
    lanes,
    unservable,
    people,
    ended,
    addedInS: Math.round((performance.now() - since) / 1_000),
  }
}

/** As the triggers would have counted, one by one. */
async function countAgain(database: FleetDatabase): Promise<void> {
  await database.transaction(async (tx) => {
    await tx.query('ALTER TABLE caisson.runs ENABLE TRIGGER USER')
    await tx.query('DELETE FROM caisson.tallies')
    await tx.query(
      `INSERT INTO caisson.tallies
       SELECT CASE WHEN has_ended THEN 'ended' WHEN waits THEN 'people' ELSE 'waiting' END,
              CASE WHEN tag IS NULL THEN '' ELSE lane END, CASE WHEN tag IS NULL THEN 0 ELSE class_id END, count(*)
         FROM caisson.runs GROUP BY 1, 2, 3`,
    )
  })
}

/** Such as those of a caller who asks for an accelerator that no host has. */
async function addUnservable(fleet: Fleet, count: number): Promise<void> {
  const lane = stuckLane
  const waiting = { priority: 'normal', isContinued: false, lane } as const
  const first = newRunId()
  await fleet.add(first, { ...waiting, requires: { labels: ['nowhere'] } })
  await fleet.database.query(
    `WITH tagged AS MATERIALIZED (
       SELECT 'run-' || substr(md5('stuck' || place), 1, 20) AS run_id, nextval('caisson.places') AS tag
         FROM generate_series(2, $1::integer) AS place
     ), queued AS (
       INSERT INTO caisson_queue.job (id, name, policy, singleton_key, data, priority)
       SELECT gen_random_uuid(), 'drive', 'stately', run_id, jsonb_build_object('runId', run_id), tag::integer
         FROM tagged
     )
     INSERT INTO caisson.runs (run_id, lane, rank, tag, class_id, waits_since)
     SELECT tagged.run_id, first.lane, first.rank, tagged.tag, first.class_id, now()
       FROM tagged, caisson.runs AS first WHERE first.run_id = $2`,
    [count, first],
  )
  await fleet.add(newRunId(), waiting)
}

/** Runs that no host has to take. */
async function addOthers(
  database: FleetDatabase,
  { people, ended }: { readonly people: number; readonly ended: number },
): Promise<void> {
  const id = (kind: string) => `'run-' || substr(md5('${kind}' || place), 1, 20)`
  await database.query(
    `INSERT INTO caisson.runs (run_id, lane, waits, seq)
     SELECT ${id('people')}, 'lane1', true, 3 FROM generate_series(1, $1::integer) AS place`,
    [people],
  )
  await database.query(
    `INSERT INTO caisson.runs (run_id, lane, has_ended, ended_at, outcome, seq)
     SELECT ${id('ended')}, 'lane1', true, now() - place * interval '1 s', 'completed', 9
       FROM generate_series(1, $1::integer) AS place`,
    [ended],
  )
}

/** Bytes of each table with its indexes. */
export async function tableBytes(database: FleetDatabase): Promise<Figures> {
  const rows = await database.query<{ name: string; heap: string; indexes: string }>(
    `SELECT n.nspname || '.' || c.relname AS name, pg_table_size(c.oid) AS heap, pg_indexes_size(c.oid) AS indexes
       FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
      WHERE n.nspname IN ('caisson', 'caisson_queue') AND c.relkind = 'r' AND pg_table_size(c.oid) > 1000000`,
  )
  return Object.fromEntries(
    rows.map(({ name, heap, indexes }) => [name, { heap: Number(heap), indexes: Number(indexes) }]),
  )
}
