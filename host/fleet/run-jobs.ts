/**
 * The runs that hosts carry out or will: jobs of pg-boss, with signs of life and pauses after failures. Each says "drive this
 * run" and nothing else. A host pulls runs into free slots. A run that waits for people is no job. No job is the truth about
 * a run: that is its row.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { ConstructorOptions, Db, PgBoss, QueueOptions } from 'pg-boss'
import { errorMessage } from '#specs/errors.ts'
import type { RunPriority } from '#specs/protocol/host-event.ts'
import { type Claimed, type FetchedJob, hasActiveJob } from './claims.ts'
import { type FleetDatabase, isConnectionLost, knownError, type Queries } from './database.ts'
import { enterLane } from './lanes.ts'

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
  /** Takes the next run for this host. */
  claim(): Promise<Claimed | 'none' | 'busy'>
  /** Resolves when there may be something to claim. */
  wait(signal: AbortSignal): Promise<void>
  /** @param signal aborted when another host may have the run by now. Whoever drives it then writes nothing more */
  drive(claimed: Claimed, signal: AbortSignal): Promise<Driven>
}

const queueName = 'drive'
const schema = 'caisson_queue'
const day = 86_400
const ranks = { high: 1, normal: 2, low: 3 } as const satisfies Record<RunPriority, number>
const rankOfContinued = 0
/** A job that nobody can find for so long was lost with its database. */
const lookForLostMs = 60_000
/** Runs that a look goes through; of them so many are queued again in a transaction. */
const lostAtOnce = 50_000
const lostMax = 100

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
  // Hosts are woken by the notices of the fleet.
  useListenNotify: false,
  schedule: false,
  application_name: 'caisson-queue',
}
const touchMs = 4_000
/** pg-boss gives a job a day at most, whatever signs of life it gets. So this host restarts the time of its jobs before. */
const renewMs = 10 * 60_000
/** At random up to this: hosts that chose at once do so no more. */
const busyMs = 30
const failedMs = 1_000
const closeMs = 5_000
/** The priority of a job is its number, by which a host fetches it alone: the order is that of the lanes. */
const priorities = 2 ** 31 - 1

export class RunJobs implements AsyncDisposable {
  readonly #boss: PgBoss
  readonly #database: FleetDatabase
  readonly #warn: (text: string) => void
  readonly #closing = new AbortController()
  readonly #stopped = new AbortController()
  #isWorking = false
  #isPaused = false
  #claiming: Promise<void> = Promise.resolve()
  #looking: NodeJS.Timeout | undefined
  #touching: NodeJS.Timeout | undefined
  /** Segments under way. */
  readonly #driven = new Set<Promise<unknown>>()
  readonly #active = new Set<Active>()
  #renewNext = 0

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
        await boss.createQueue(queueName, { ...jobOptions, policy: 'stately' })
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
    if (run.tag === null) await enterLane(tx, { runId, lane: run.lane, rank })
    await this.#send(tx, runId)
  }

  /** Removes the job of a run that waits for a host, and that nobody has to drive any more. */
  async remove(tx: Queries, runId: string): Promise<void> {
    const jobs = await tx.query<{ id: string }>(
      `SELECT id FROM ${schema}.job WHERE name = $1 AND singleton_key = $2 AND state < 'active'`,
      [queueName, runId],
    )
    for (const { id } of jobs) await this.#boss.deleteJob(queueName, id, { db: adapt(tx) })
  }

  /** Pulls runs into free slots until {@link drain}. */
  async work(driver: RunDriver): Promise<void> {
    this.#isWorking = true
    this.#claiming = this.#claimAll(driver)
    this.#looking = setInterval(
      () => void this.addLost(lookForLostMs / 1_000 - 5).catch(() => undefined),
      lookForLostMs,
    )
    this.#touching = setInterval(() => void this.#touchAll(), touchMs)
  }

  /** Takes no more runs until {@link resume}; those under way stay. */
  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
  }

  /** Takes no more runs, and waits until the segments under way have ended. */
  async drain(): Promise<void> {
    this.#isWorking = false
    this.#stopped.abort()
    clearInterval(this.#looking)
    await this.#claiming
    await Promise.allSettled(this.#driven)
    clearInterval(this.#touching)
  }

  /** Lets a run wait whose host gave it back: its job is tried again. */
  async enterAgain(tx: Queries, runId: string): Promise<void> {
    const [run] = await tx.query<{ lane: string }>(
      'SELECT lane FROM caisson.runs WHERE run_id = $1 AND NOT has_ended AND tag IS NULL',
      [runId],
    )
    if (run !== undefined) await enterLane(tx, { runId, lane: run.lane, rank: rankOfContinued })
  }

  /** Takes the job with this number, which waits. Undefined: another host did. */
  async fetch(tx: Queries, priority: number): Promise<FetchedJob | undefined> {
    const which = { minPriority: priority, maxPriority: priority, db: adapt(tx) }
    const [job] = await this.#boss.fetch<{ runId: string }>(queueName, which)
    return job === undefined ? undefined : { id: job.id, retryCount: job.retryCount ?? 0 }
  }

  /**
   * Lets runs wait again whose host gave no sign of life, or failed: their jobs are tried again. What is left of an earlier job
   * takes no run from the host that has it.
   * @returns how many
   */
  async requeueLost(): Promise<number> {
    const find = `
      SELECT run_id AS "runId", lane FROM caisson.runs AS run
       WHERE NOT has_ended AND NOT waits AND tag IS NULL AND run_id IN (
         SELECT singleton_key FROM ${schema}.job WHERE name = $1 AND state = 'retry')
         AND NOT ${hasActiveJob('run.run_id')} LIMIT 100`
    if ((await this.#database.query(find, [queueName])).length === 0) return 0
    return await this.#database.transaction(async (tx) => {
      const lost = await tx.query<{ runId: string; lane: string }>(`${find} FOR UPDATE SKIP LOCKED`, [
        queueName,
      ])
      for (const { runId, lane } of lost.toSorted((a, b) => (a.lane < b.lane ? -1 : 1)))
        await enterLane(tx, { runId, lane, rank: rankOfContinued })
      return lost.length
    })
  }

  /**
   * Queues runs that somebody has to drive and that have no job, such as after a database was restored from a copy. One host
   * looks at a time, through a part of the runs, and the next look continues behind it. Where some are lost, it looks through
   * all.
   * @param least since the last look, seconds; sooner it does nothing
   * @returns their ids
   */
  async addLost(least = 0): Promise<string[]> {
    const added: string[] = []
    for (let at = least; ; at = 0) {
      const part = await this.#database.transaction((tx) => this.#addLostOfPart(tx, at))
      added.push(...part.added)
      if (part.isLast || part.added.length === 0) return added
    }
  }

  async #addLostOfPart(
    tx: Queries,
    least: number,
  ): Promise<{ readonly added: readonly string[]; readonly isLast: boolean }> {
    const [look] = await tx.query<{ after: string }>(
      `SELECT after_id AS after FROM caisson.lost_looks WHERE at <= now() - $1 * interval '1 s'
          FOR UPDATE SKIP LOCKED`,
      [least],
    )
    if (look === undefined) return { added: [], isLast: true }
    const [part] = await tx.query<{ upto: string | null; count: number }>(
      `SELECT max(run_id) AS upto, count(*)::integer AS count FROM (
         SELECT run_id FROM caisson.runs WHERE NOT has_ended AND NOT waits AND run_id > $1
          ORDER BY run_id LIMIT ${lostAtOnce}) AS part`,
      [look.after],
    )
    const { upto = null, count = 0 } = part ?? {}
    const lost = await tx.query<{ runId: string; lane: string }>(
      `SELECT run_id AS "runId", lane FROM caisson.runs AS run
        WHERE NOT has_ended AND NOT waits AND run_id > $2 AND run_id <= $3
          AND NOT EXISTS (SELECT FROM ${schema}.job
                WHERE name = $1 AND singleton_key = run.run_id AND state < 'active')
          AND NOT EXISTS (SELECT FROM ${schema}.job
                WHERE name = $1 AND singleton_key = run.run_id AND state = 'active')
        ORDER BY run_id LIMIT ${lostMax} FOR UPDATE SKIP LOCKED`,
      [queueName, look.after, upto ?? ''],
    )
    for (const { runId } of lost.toSorted((a, b) => (a.lane < b.lane ? -1 : 1)))
      await this.add(tx, runId, { priority: 'normal', isContinued: true })
    const isPartOver = lost.length < lostMax
    const isLast = isPartOver && count < lostAtOnce
    const after = isLast ? '' : isPartOver ? (upto ?? '') : (lost.at(-1)?.runId ?? '')
    await tx.query('UPDATE caisson.lost_looks SET after_id = $1, at = now()', [after])
    return { added: lost.map(({ runId }) => runId), isLast }
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
    clearInterval(this.#touching)
    await this.#claiming
    // They give their runs back, for which the database is needed.
    const over = new AbortController()
    const timed = sleep(closeMs, undefined, { signal: over.signal }).catch(() => undefined)
    await Promise.race([Promise.allSettled(this.#driven), timed])
    over.abort()
    await this.#boss.stop({ graceful: false })
  }

  async #claimAll(driver: RunDriver): Promise<void> {
    const signal = AbortSignal.any([this.#closing.signal, this.#stopped.signal])
    while (this.#isWorking && !signal.aborted) {
      const isFree = !this.#isPaused && this.#driven.size < driver.slots
      const claimed = isFree ? await this.#claim(driver) : 'none'
      if (claimed === 'busy') await sleep(Math.random() * busyMs)
      else if (claimed === 'none') await this.#waitForWork(driver, signal)
      else if (!this.#closing.signal.aborted) this.#begin(claimed, driver)
    }
  }

  async #claim(driver: RunDriver): Promise<Claimed | 'none' | 'busy'> {
    try {
      await this.requeueLost()
      return await driver.claim()
    } catch (error) {
      if (this.#closing.signal.aborted) return 'none'
      if (!isConnectionLost(error)) this.#warn(`no run was taken: ${errorMessage(error)}`)
      await sleep(failedMs, undefined, { signal: this.#closing.signal }).catch(() => undefined)
      return 'none'
    }
  }

  /** Also for a slot of this host that becomes free. */
  async #waitForWork({ wait }: RunDriver, signal: AbortSignal): Promise<void> {
    const over = new AbortController()
    const freed = [...this.#driven].map((one) => one.catch(() => undefined))
    await Promise.race([wait(AbortSignal.any([signal, over.signal])), ...freed])
    over.abort()
  }

  #begin(claimed: Claimed, driver: RunDriver): void {
    const lost = new AbortController()
    const active = { job: claimed.job, lost }
    this.#active.add(active)
    const driven = this.#drive(claimed, lost, driver).finally(() => {
      this.#active.delete(active)
      this.#driven.delete(driven)
    })
    this.#driven.add(driven)
  }

  async #drive(claimed: Claimed, lost: AbortController, { drive }: RunDriver): Promise<void> {
    const { job } = claimed
    const { runId } = claimed.hold
    const signal = AbortSignal.any([lost.signal, this.#closing.signal])
    let why = 'another host continues the run'
    const driven = await drive(claimed, signal).catch((error: unknown): Driven => {
      why = errorMessage(error)
      this.#warn(`${runId} failed on this host, and is tried again: ${why}`)
      return 'again'
    })
    // A job that is not settled here is tried again when its sign of life is missed.
    const settled =
      driven === 'over'
        ? this.#boss.complete(queueName, job)
        : this.#boss.fail(queueName, job, { message: why })
    await settled.catch((error: unknown) => this.#warn(knownError(error, this.#database.address).message))
  }

  /** A run may be at work for longer than a day. What fails is done the next time. */
  async #renewAll(): Promise<void> {
    if (this.#active.size === 0 || performance.now() < this.#renewNext) return
    this.#renewNext = performance.now() + renewMs
    // Another host that has the job by now has fetched it again, which counts.
    await this.#database.query(
      `UPDATE ${schema}.job AS job SET started_on = now() FROM unnest($2::uuid[], $3::integer[]) AS own (id, tries)
        WHERE job.name = $1 AND job.id = own.id AND job.retry_count = own.tries AND job.state = 'active'
          AND job.started_on < now() - interval '1 hour'`,
      [
        queueName,
        [...this.#active].map(({ job }) => job.id),
        [...this.#active].map(({ job }) => job.retryCount),
      ],
    )
  }

  /** Signs of life. A job that another host may have is none of this host's. */
  async #touchAll(): Promise<void> {
    void this.#renewAll().catch(() => undefined)
    await Promise.all(
      [...this.#active].map(async ({ job, lost }) => {
        // Its type leaves out what it has.
        const touched: { readonly affected?: number } | undefined = await this.#boss
          .touch(queueName, job)
          .catch(() => undefined)
        if (touched?.affected === 0) lost.abort(new Error('the fleet had no sign of life of it for a while'))
      }),
    )
  }

  async #send(tx: Queries, runId: string): Promise<void> {
    const [row] = await tx.query<{ place: string }>("SELECT nextval('caisson.places') AS place")
    const priority = Number(BigInt(row?.place ?? '0') % BigInt(priorities))
    // Null where the run has a job that waits.
    await this.#boss.send(queueName, { runId }, { singletonKey: runId, priority, db: adapt(tx) })
  }
}

interface Active {
  readonly job: FetchedJob
  readonly lost: AbortController
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
