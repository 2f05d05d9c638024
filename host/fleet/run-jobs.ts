/**
 * Which host carries which run out next: jobs of pg-boss. Each says "drive this run" and nothing else. A host pulls
 * them into free slots. A run that waits for people is no job. No job is the truth about a run: that is its row.
 */
import type { ConstructorOptions, Db, Job, PgBoss, QueueOptions } from 'pg-boss'
import { errorMessage } from '#specs/errors.ts'
import type { RunPriority } from '#specs/protocol/host-event.ts'
import { RunId } from '#specs/protocol/text.ts'
import { type FleetDatabase, knownError, type Queries } from './database.ts'

/** Why a run waits for a host, for its place among those of its lane. */
export interface Waiting {
  readonly priority: RunPriority
  /** Whether it continues, such as after an answer: before those of its lane that start. */
  readonly isContinued: boolean
}

/** How a segment of a run ended: `over`: nobody has to drive it now; `again`: another host continues it. */
export type Driven = 'over' | 'again'

export interface RunDriver {
  /** Runs at once. */
  readonly slots: number
  /** @param signal aborted when another host may have the run by now. Whoever drives it then writes nothing more */
  drive(runId: string, signal: AbortSignal): Promise<Driven>
}

const queueName = 'drive'
const schema = 'caisson_queue'
const day = 86_400
const ranks = { high: 1, normal: 2, low: 3 } as const satisfies Record<RunPriority, number>
const rankOfContinued = 0
/** A job that nobody can find for so long was lost with its database. */
const lookForLostMs = 60_000

/** Measured: the next host has a run of a killed one after 10.5 s. pg-boss allows no shorter heartbeat. */
const jobOptions: QueueOptions = {
  heartbeatSeconds: 10,
  // A host that is lost says nothing about the run.
  retryLimit: 1_000_000,
  // What fails on every host is tried less and less often.
  retryDelay: 1,
  retryBackoff: true,
  retryDelayMax: 15,
  expireInSeconds: day,
  retentionSeconds: 365 * day,
  deleteAfterSeconds: day,
}
const bossOptions: ConstructorOptions = {
  schema,
  max: 4,
  monitorIntervalSeconds: 1,
  superviseIntervalSeconds: 1,
  useListenNotify: true,
  schedule: false,
  application_name: 'caisson-queue',
}
const pollSeconds = 1

interface Lane {
  readonly lane: string
  readonly tag: string
}

export class RunJobs implements AsyncDisposable {
  readonly #boss: PgBoss
  readonly #database: FleetDatabase
  readonly #warn: (text: string) => void
  readonly #closing = new AbortController()
  #looking: NodeJS.Timeout | undefined
  /** Segments under way. */
  readonly #driven = new Set<Promise<unknown>>()

  private constructor(boss: PgBoss, database: FleetDatabase, warn: (text: string) => void) {
    this.#boss = boss
    this.#database = database
    this.#warn = warn
  }

  /** @param warn receives what fails in the background, and is tried again */
  static async open(database: FleetDatabase, warn: (text: string) => void): Promise<RunJobs> {
    const { PgBoss } = await import('pg-boss')
    const { address } = database
    const canMigrate = await mayChangeForm(database)
    const boss = new PgBoss({
      ...bossOptions,
      ...{ connectionString: address.connection, createSchema: canMigrate, migrate: canMigrate },
    })
    boss.on('error', (error) => warn(knownError(error, address).message))
    try {
      await boss.start()
      if ((await boss.getQueue(queueName)) === null)
        await boss.createQueue(queueName, { ...jobOptions, policy: 'stately', notify: true })
      return new RunJobs(boss, database, warn)
    } catch (error) {
      await boss.stop({ graceful: false }).catch(() => undefined)
      throw knownError(error, address)
    }
  }

  /**
   * Queues the run in the transaction, in the fair order of lanes. A run that is queued already keeps its place.
   * @throws {CaissonError} the database's
   */
  async add(tx: Queries, runId: string, { priority, isContinued }: Waiting): Promise<void> {
    const rank = isContinued ? rankOfContinued : ranks[priority]
    const [run] = await tx.query<{ lane: string; tag: string | null }>(
      'UPDATE caisson.runs SET waits = false WHERE run_id = $1 AND NOT has_ended RETURNING lane, tag',
      [runId],
    )
    if (run === undefined) return
    if (run.tag === null) await this.#enterLane(tx, runId, run.lane, rank)
    await this.#send(tx, runId)
  }

  /** Pulls runs into free slots until {@link drain}. */
  async work({ slots, drive }: RunDriver): Promise<void> {
    const how = {
      ...{ localConcurrency: slots, batchSize: 1 },
      ...{ pollingIntervalSeconds: pollSeconds, notifyPollingIntervalSeconds: pollSeconds },
    }
    await this.#boss.work<{ runId: string }>(queueName, how, async ([job]) => {
      if (job === undefined) return
      const driven = this.#drive(job, drive)
      this.#driven.add(driven)
      try {
        await driven
      } finally {
        this.#driven.delete(driven)
      }
    })
    this.#looking = setInterval(() => void this.addLost().catch(() => undefined), lookForLostMs)
  }

  /** Takes no more runs, and waits until the segments under way have ended. */
  async drain(): Promise<void> {
    clearInterval(this.#looking)
    await this.#boss.offWork(queueName, { wait: false })
    await Promise.allSettled(this.#driven)
  }

  /**
   * Queues runs that somebody has to drive and that have no job, such as after a database was restored from a copy.
   * @returns their ids
   */
  async addLost(): Promise<string[]> {
    return await this.#database.transaction(async (tx) => {
      const lost = await tx.query<{ runId: string }>(
        `SELECT run_id AS "runId" FROM caisson.runs AS run
          WHERE NOT has_ended AND NOT waits AND NOT EXISTS (
            SELECT FROM ${schema}.job WHERE name = $1 AND singleton_key = run.run_id AND state < 'completed')
            FOR UPDATE SKIP LOCKED LIMIT 100`,
        [queueName],
      )
      for (const { runId } of lost) await this.add(tx, runId, { priority: 'normal', isContinued: true })
      return lost.map(({ runId }) => runId)
    })
  }

  /** Jobs that wait for a host, and those that a host has. */
  async counts(): Promise<{ readonly waiting: number; readonly atWork: number }> {
    const [row] = await this.#database.query<{ waiting: number; atWork: number }>(
      `SELECT count(*) FILTER (WHERE state < 'active')::integer AS waiting,
              count(*) FILTER (WHERE state = 'active')::integer AS "atWork"
         FROM ${schema}.job WHERE name = $1`,
      [queueName],
    )
    return row ?? { waiting: 0, atWork: 0 }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    clearInterval(this.#looking)
    await this.#boss.stop({ graceful: false })
  }

  async #drive(
    { data: { runId }, signal }: Job<{ runId: string }>,
    drive: RunDriver['drive'],
  ): Promise<void> {
    if (!RunId.safeParse(runId).success)
      return this.#warn(`a job of the fleet names no run: ${JSON.stringify(runId).slice(0, 100)}`)
    const driven = await drive(runId, AbortSignal.any([signal, this.#closing.signal])).catch(
      (error: unknown) => {
        this.#warn(`${runId} failed on this host, and is tried again: ${errorMessage(error)}`)
        throw error
      },
    )
    // The job waits for the next host.
    if (driven === 'again') throw new Error('another host continues the run')
  }

  /**
   * Start-time fair queueing: each lane has a tag that grows with each of its runs, and the run with the lowest tag is next.
   * A lane that had none for a while begins at the tag that was taken last, so it has saved nothing. Within a lane the
   * first of its tags is for the first by rank, so no priority changes what other lanes get.
   */
  async #enterLane(tx: Queries, runId: string, lane: string, rank: number): Promise<void> {
    await tx.query('INSERT INTO caisson.lanes VALUES ($1, 0) ON CONFLICT DO NOTHING', [lane])
    const [{ tag } = { tag: '0' }] = await tx.query<Lane>(
      `UPDATE caisson.lanes SET tag = greatest(lanes.tag, served.tag) + 1
         FROM caisson.served WHERE lane = $1 RETURNING lanes.tag`,
      [lane],
    )
    await tx.query('UPDATE caisson.runs SET rank = $2, tag = $3 WHERE run_id = $1', [runId, rank, tag])
    const moved = await tx.query<{ runId: string; tag: string }>(
      `WITH waiting AS (
         SELECT run_id, tag, row_number() OVER (ORDER BY rank, tag) AS place FROM caisson.runs
          WHERE lane = $1 AND tag IS NOT NULL
       ), tags AS (
         SELECT tag, row_number() OVER (ORDER BY tag) AS place FROM waiting
       )
       UPDATE caisson.runs AS run SET tag = tags.tag FROM waiting JOIN tags USING (place)
        WHERE run.run_id = waiting.run_id AND run.tag <> tags.tag
        RETURNING run.run_id AS "runId", run.tag`,
      [lane],
    )
    for (const one of moved)
      if (one.runId !== runId)
        await this.#boss.update(queueName, undefined, {
          ...{ singletonKey: one.runId, priority: -Number(one.tag), db: adapt(tx) },
        })
  }

  async #send(tx: Queries, runId: string): Promise<void> {
    const [row] = await tx.query<{ tag: string }>('SELECT tag FROM caisson.runs WHERE run_id = $1', [runId])
    const priority = -Number(row?.tag ?? 0)
    // Null where the run has a job that waits.
    await this.#boss.send(queueName, { runId }, { singletonKey: runId, priority, db: adapt(tx) })
  }
}

/** Whether the role of the connection may change the form of the queue, or the queue is there as this version needs it. */
async function mayChangeForm(database: FleetDatabase): Promise<boolean> {
  const [row] = await database.query<{ may: boolean }>(
    `SELECT CASE WHEN to_regnamespace($1) IS NULL THEN has_database_privilege(current_database(), 'CREATE')
                 ELSE has_schema_privilege($1, 'CREATE') END AS may`,
    [schema],
  )
  return row?.may === true
}

function adapt(tx: Queries): Db {
  return { executeSql: async (text, values = []) => ({ rows: [...(await tx.query(text, values))] }) }
}
