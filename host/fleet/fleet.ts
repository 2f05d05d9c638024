/**
 * A host's part in a fleet: what it is called there, the runs that it takes, and what the others do. PostgreSQL is all that
 * hosts share; none of them knows another one's address.
 */
import { randomBytes } from 'node:crypto'
import type { FleetAddress } from './address.ts'
import { FleetDatabase, isConnectionLost, type Queries } from './database.ts'
import { FleetNotices } from './notices.ts'
import { type Driven, RunJobs, type Waiting } from './run-jobs.ts'
import { type Hold, journalChannel, RunTable } from './run-table.ts'

export interface FleetOptions {
  /** For people. */
  readonly name: string
  readonly version: string
  /** Runs that this host carries out at once; 0: it only starts, shows and answers. */
  readonly slots: number
  /** Receives what fails in the background, and is tried again. */
  readonly warn: (text: string) => void
}

/** A host of the fleet, as the others see it. */
export interface FleetHost {
  readonly hostId: string
  readonly name: string
  readonly version: string
  readonly slots: number
  /** Runs that it has now. */
  readonly runs: number
  /** By the clock of the database, seconds. */
  readonly seenSecondsAgo: number
}

export interface FleetStatus {
  /** Runs that wait for a host. */
  readonly waiting: number
  /** Runs that hosts carry out. */
  readonly atWork: number
  /** Runs that wait for people. */
  readonly waitingForPeople: number
  readonly ended: number
}

const seenMs = 10_000
/** A host that was not seen for so long is not listed. */
const forgottenAfter = '1 day'

export class Fleet implements AsyncDisposable {
  readonly database: FleetDatabase
  readonly runs: RunTable
  readonly jobs: RunJobs
  /** Of journals that grow. */
  readonly notices: FleetNotices
  /** Of this process: a host that starts again has another one. */
  readonly hostId: string
  readonly #options: FleetOptions
  readonly #seen: NodeJS.Timeout

  private constructor(database: FleetDatabase, jobs: RunJobs, options: FleetOptions) {
    this.database = database
    this.runs = new RunTable(database)
    this.jobs = jobs
    this.notices = new FleetNotices(database, journalChannel)
    this.hostId = `host-${randomBytes(10).toString('hex')}`
    this.#options = options
    this.#seen = setInterval(() => void this.#see().catch(() => undefined), seenMs)
    this.#seen.unref()
  }

  /** @throws {CaissonError} as {@link FleetDatabase.open} */
  static async open(address: FleetAddress, options: FleetOptions): Promise<Fleet> {
    await using undo = new AsyncDisposableStack()
    const database = undo.use(await FleetDatabase.open(address))
    const jobs = undo.use(await RunJobs.open(database, options.warn))
    const fleet = new Fleet(database, jobs, options)
    undo.adopt(fleet, (one) => one[Symbol.asyncDispose]())
    await fleet.#see()
    undo.move()
    return fleet
  }

  /**
   * Adds a run that any host may carry out, in one transaction.
   * @param lane whom it is for @param also what else belongs to the transaction
   */
  async add(
    runId: string,
    { lane = '', ...waiting }: Waiting & { readonly lane?: string },
    also: (tx: Queries) => Promise<void> = async () => undefined,
  ): Promise<void> {
    await this.database.transaction(async (tx) => {
      await this.runs.create(tx, runId, lane)
      await also(tx)
      await this.jobs.add(tx, runId, waiting)
    })
  }

  /**
   * Pulls runs into the free slots of this host. Each is taken before it is driven, so that nobody else writes to it.
   * @param drive what the host does with a run that it took: until the run has ended, or waits for people (`waits`), or
   *   has to leave this host (`again`)
   */
  async work(
    drive: (hold: Hold, signal: AbortSignal) => Promise<'ended' | 'waits' | 'again'>,
  ): Promise<void> {
    await this.jobs.work({
      slots: this.#options.slots,
      drive: async (runId, signal) => {
        const hold = await this.#take(runId)
        if (hold === undefined) return 'over'
        const became = await drive(hold, signal)
        return await this.#giveBack(hold, became)
      },
    })
  }

  async hosts(): Promise<readonly FleetHost[]> {
    return await this.database.query<FleetHost>(
      `SELECT host_id AS "hostId", name, version, slots,
              (SELECT count(*)::integer FROM caisson.runs AS run WHERE run.host_id = host.host_id) AS runs,
              extract(epoch FROM now() - seen_at)::float AS "seenSecondsAgo"
         FROM caisson.hosts AS host WHERE seen_at > now() - interval '${forgottenAfter}' ORDER BY name, started_at`,
    )
  }

  async status(): Promise<FleetStatus> {
    const [runs] = await this.database.query<Pick<FleetStatus, 'waitingForPeople' | 'ended'>>(
      `SELECT count(*) FILTER (WHERE waits AND NOT has_ended)::integer AS "waitingForPeople",
              count(*) FILTER (WHERE has_ended)::integer AS ended FROM caisson.runs`,
    )
    return { ...(await this.jobs.counts()), ...(runs ?? { waitingForPeople: 0, ended: 0 }) }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#seen)
    await this.jobs[Symbol.asyncDispose]()
    await this.notices[Symbol.asyncDispose]()
    await this.database[Symbol.asyncDispose]()
  }

  /** Undefined: nobody has to drive it now, or another host was faster. */
  async #take(runId: string): Promise<Hold | undefined> {
    const head = await this.runs.head(runId)
    if (head === undefined || head.hasEnded || head.waits) return undefined
    const message =
      head.hostId === null
        ? 'the run waited for a host'
        : `the host before (${head.hostId}) gave no sign of life`
    return await this.runs.take(runId, head, { hostId: this.hostId, name: this.#options.name, message })
  }

  async #giveBack(hold: Hold, became: 'ended' | 'waits' | 'again'): Promise<Driven> {
    await this.runs.release(hold, became === 'waits').catch((error: unknown) => {
      // The next one takes it from this host.
      if (!isConnectionLost(error)) throw error
    })
    return became === 'again' ? 'again' : 'over'
  }

  async #see(): Promise<void> {
    const { name, version, slots } = this.#options
    await this.database.query(
      `INSERT INTO caisson.hosts (host_id, name, version, slots) VALUES ($1, $2, $3, $4)
       ON CONFLICT (host_id) DO UPDATE SET seen_at = now()`,
      [this.hostId, name, version, slots],
    )
  }
}
