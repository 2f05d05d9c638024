/**
 * A host's part in a fleet: what it is called there, the runs that it takes, and what the others do. PostgreSQL is all that
 * hosts share; none of them knows another one's address.
 */
import { randomBytes } from 'node:crypto'
import { errorMessage } from '#specs/errors.ts'
import { ActTable, actsChannel } from './acts.ts'
import type { FleetAddress } from './address.ts'
import { type Collected, collectBlobs } from './blob-collector.ts'
import type { BlobStore } from './blob-store.ts'
import { Claims, classIdOf } from './claims.ts'
import { FleetDatabase, isConnectionLost, type Queries, untilReached } from './database.ts'
import { FleetSecret } from './fleet-secret.ts'
import { HostMessages } from './host-messages.ts'
import { type FleetHost, HostTable, seenMs } from './host-table.ts'
import {
  hostChannel,
  type LaneSettings,
  requireWithin,
  setLane,
  type WaitingBounds,
  workKey,
} from './lanes.ts'
import { FleetKeys, modelChannel } from './model-keys.ts'
import { FleetNotices } from './notices.ts'
import type { HostFacts, Requires } from './placement.ts'
import { type Driven, RunJobs, type Waiting } from './run-jobs.ts'
import { RunRequests } from './run-requests.ts'
import { type Hold, journalChannel, RunTable } from './run-table.ts'
import { countRuns } from './tallies.ts'
import { type EndedRunBounds, howToGrantRemoval, keepUp, removeEnded } from './upkeep.ts'
import { type FleetPlace, type FleetSignals, placeOf, signalsOf } from './waits.ts'

export interface FleetOptions {
  /** For people. */
  readonly name: string
  readonly version: string
  /** Runs that this host carries out at once; 0: it only starts, shows and answers. */
  readonly slots: number
  /** What the host has now, for the runs that require it. Absent: it says nothing. */
  readonly facts?: () => Partial<HostFacts>
  /** Receives what fails in the background, and is tried again. */
  readonly warn: (text: string) => void
}

/** A new run of the fleet. */
export interface NewRun extends Waiting {
  /** Whom it is for: lanes take turns. Default: one that all such runs share. */
  readonly lane?: string
  readonly laneSettings?: LaneSettings
  readonly requires?: Requires
  /**
   * ms from now, by the clock of the database. The run ends when no host has begun it by then; of two with the same priority
   * the earlier is first.
   */
  readonly startWithinMs?: number
  /** Absent: it may wait whatever waits already. */
  readonly bounds?: WaitingBounds
  /** Whose quotas count it. Absent: the owner's. */
  readonly caller?: string
}

/** For a host that carries a run out. */
export interface DriveSignals {
  /** Aborted when another host may have the run by now: nothing more is written. */
  readonly lost: AbortSignal
  /** Aborted when the run leaves this host at the next safe moment, and `again` is what became of it. */
  readonly leave: AbortSignal
  /** Its time to begin has passed and no host has begun it: the host ends it with `queue_timeout` instead of beginning it. */
  readonly isLate: boolean
}

/** What became of a run on a host. `kept`: it waits for people, and this machine has its VM or what it needs to wake it. */
export type Became = 'ended' | 'waits' | 'kept' | 'again'

export interface FleetStatus {
  /** Runs that wait for a host. */
  readonly waiting: number
  /** Runs that hosts carry out. */
  readonly atWork: number
  /** Runs that wait for people. */
  readonly waitingForPeople: number
  readonly ended: number
}

const keepUpMs = 60_000

export class Fleet implements AsyncDisposable {
  readonly database: FleetDatabase
  readonly runs: RunTable
  readonly jobs: RunJobs
  readonly requests: RunRequests
  readonly acts: ActTable
  /** Of journals that grow, of acts, and for this host. */
  readonly notices: FleetNotices
  /** What the hosts know of model keys together. */
  readonly keys: FleetKeys
  /** To and from other hosts; may be lost. */
  readonly messages: HostMessages
  /** Of this process: a host that starts again has another one. */
  readonly hostId: string
  readonly #options: FleetOptions
  readonly #hosts: HostTable
  readonly #claims: Claims
  #seen: NodeJS.Timeout | undefined
  #upkeep: NodeJS.Timeout | undefined
  #keepingUp: Promise<void> | undefined
  /** That it may not remove runs. */
  #hasWarned = false
  readonly #closing = new AbortController()
  /** Runs that this host carries out. */
  readonly #held = new Map<Hold, AbortController>()
  #isDraining = false

  private constructor(database: FleetDatabase, jobs: RunJobs, options: FleetOptions) {
    const { name, version, slots, facts = () => ({}) } = options
    this.database = database
    this.runs = new RunTable(database)
    this.jobs = jobs
    this.requests = new RunRequests(database)
    this.notices = new FleetNotices(database, journalChannel, actsChannel, hostChannel, modelChannel)
    this.acts = new ActTable(database)
    this.hostId = `host-${randomBytes(10).toString('hex')}`
    const secret = new FleetSecret(database)
    this.keys = new FleetKeys(database, this.notices, secret, this.hostId)
    this.messages = new HostMessages(database, this.notices, secret)
    this.#options = options
    const host = { hostId: this.hostId, name, version }
    this.#hosts = new HostTable(database, { ...host, slots, facts })
    this.#claims = new Claims({
      ...{ database, runs: this.runs, host, facts },
      fetch: (tx, priority) => jobs.fetch(tx, priority),
    })
  }

  /** Aborted once this host leaves the fleet. */
  get closing(): AbortSignal {
    return this.#closing.signal
  }

  /** @throws {CaissonError} as {@link FleetDatabase.open} */
  static async open(address: FleetAddress, options: FleetOptions): Promise<Fleet> {
    await using undo = new AsyncDisposableStack()
    const database = undo.use(await FleetDatabase.open(address))
    const jobs = undo.use(await RunJobs.open(database, options.warn))
    const fleet = new Fleet(database, jobs, options)
    undo.adopt(fleet, (one) => one[Symbol.asyncDispose]())
    await fleet.#enter()
    undo.move()
    return fleet
  }

  /**
   * Adds a run that any host may carry out which has what it requires, in one transaction.
   * @param also what else belongs to the transaction
   * @throws {CaissonError} `queue_full`: more would wait than `bounds` says
   */
  async add(
    runId: string,
    { lane = '', laneSettings, requires = {}, startWithinMs, bounds, caller, ...waiting }: NewRun,
    also: (tx: Queries) => Promise<void> = async () => undefined,
  ): Promise<void> {
    await this.database.transaction(async (tx) => {
      const labels = requires.labels?.toSorted()
      const classId = await classIdOf(tx, { ...requires, ...(labels === undefined ? {} : { labels }) })
      await this.runs.create(tx, runId, lane)
      await tx.query(
        `UPDATE caisson.runs SET class_id = $2, caller = $3, start_by = now() + $4::float8 * interval '1 ms'
          WHERE run_id = $1`,
        [runId, classId, caller ?? null, startWithinMs ?? null],
      )
      await also(tx)
      if (laneSettings !== undefined) await setLane(tx, lane, laneSettings)
      await this.jobs.add(tx, runId, waiting)
      if (bounds !== undefined) await requireWithin(tx, lane, bounds)
    })
  }

  /** Changes the share or the bound of a lane, for runs that wait too. @throws {CaissonError} `invalid_options` */
  async setLane(lane: string, settings: LaneSettings): Promise<void> {
    await setLane(this.database, lane, settings)
  }

  /**
   * Pulls runs into the free slots of this host. Each is taken before it is driven, so that nobody else writes to it.
   * @param drive what the host does with a run that it took: until the run has ended, or waits for people (`waits`,
   *   `kept`), or has to leave this host (`again`)
   */
  async work(drive: (hold: Hold, signals: DriveSignals) => Promise<Became>): Promise<void> {
    await this.jobs.work({
      slots: this.#options.slots,
      claim: () => this.#claims.next(),
      wait: (signal) => this.notices.wait(workKey, signal),
      drive: async ({ hold, isLate }, lost) => {
        const leaving = new AbortController()
        this.#held.set(hold, leaving)
        if (this.#isDraining) leaving.abort()
        try {
          const became = await drive(hold, { lost, leave: leaving.signal, isLate })
          return await this.#giveBack(hold, became)
        } finally {
          this.#held.delete(hold)
        }
      },
    })
  }

  /**
   * From now on does each minute what one host does for all: removes ended runs beyond the bounds, and files of the store that
   * nothing needs. What fails is warned of, and done in the next minute.
   */
  keepUp(store: BlobStore, bounds: EndedRunBounds): void {
    clearInterval(this.#upkeep)
    const once = () => {
      this.#keepingUp ??= this.#keepUpOnce(store, bounds).finally(() => {
        this.#keepingUp = undefined
      })
    }
    this.#upkeep = setInterval(once, keepUpMs)
    this.#upkeep.unref()
  }

  /** @returns ids of the runs that were removed @throws {CaissonError} `permission_denied` */
  async removeEnded(bounds: EndedRunBounds): Promise<readonly string[]> {
    return await removeEnded(this.database, bounds)
  }

  /** Removes files of the store that no run refers to and no lease keeps. */
  async collect(store: BlobStore): Promise<Collected> {
    return await collectBlobs(this.database, store)
  }

  /** All that were seen within a day. */
  async hosts(): Promise<readonly FleetHost[]> {
    return await this.#hosts.list()
  }

  /**
   * Lets a host take no more runs, and give those that it has to others at their next safe moment. The host sees it within
   * seconds.
   * @param host id, or a name: all processes of that name
   * @param undo lets it take runs again
   * @returns those hosts
   * @throws {CaissonError} `invalid_options`: there is no such host, or it is gone
   */
  async drainHost(
    host: string,
    { undo = false }: { readonly undo?: boolean } = {},
  ): Promise<readonly FleetHost[]> {
    return await this.#hosts.drain(host, !undo)
  }

  /**
   * Lets the host of a run give it back at its next safe moment, and another one take it. One that waits is moved too.
   * @param host id or name of the host that takes it. Others leave it alone for 30 s. Absent: any other
   * @returns `moving`: its host gives it back; `waiting`: nobody has it; `ended`
   * @throws {CaissonError} `run_not_found`; `invalid_options`: there is no such host, or it takes no runs
   */
  async move(runId: string, host?: string): Promise<'moving' | 'waiting' | 'ended'> {
    return await this.#hosts.move(runId, host)
  }

  /** Of a run that waits for a host. Undefined: it does not. @throws {CaissonError} `run_not_found` */
  async placeOf(runId: string): Promise<FleetPlace | undefined> {
    return await placeOf(this.database, this.#hosts, runId)
  }

  /** Why the run waits for a host, for people. Undefined: it does not. @throws {CaissonError} `run_not_found` */
  async whyWaits(runId: string): Promise<string | undefined> {
    return (await this.placeOf(runId))?.why
  }

  /** What the fleet lacks, such as for an autoscaler. */
  async signals(): Promise<FleetSignals> {
    return await signalsOf(this.database, this.#hosts)
  }

  /**
   * Opens a fleet to look at it and to ask of its hosts: this process is none of them.
   * @throws {CaissonError} as {@link open}; `state_unavailable`: the database has no tables of a fleet
   */
  static async look(address: FleetAddress, version: string): Promise<Fleet> {
    await using undo = new AsyncDisposableStack()
    // A wrong address gets no tables.
    const database = undo.use(await FleetDatabase.open(address, { mustExist: true }))
    const jobs = undo.use(await RunJobs.open(database, () => undefined))
    const fleet = new Fleet(database, jobs, { name: '', version, slots: 0, warn: () => undefined })
    undo.move()
    return fleet
  }

  /** Name of this host, for people. */
  get name(): string {
    return this.#options.name
  }

  async status(): Promise<FleetStatus> {
    const [held] = await this.database.query<{ atWork: number }>(
      `SELECT count(*)::integer AS "atWork" FROM caisson.runs WHERE host_id IS NOT NULL AND tag IS NULL AND NOT has_ended`,
    )
    return { atWork: held?.atWork ?? 0, ...(await countRuns(this.database)) }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    clearInterval(this.#seen)
    clearInterval(this.#upkeep)
    await this.#keepingUp
    await this.jobs[Symbol.asyncDispose]()
    await this.notices[Symbol.asyncDispose]()
    await this.#hosts.leave().catch(() => undefined)
    await this.database[Symbol.asyncDispose]()
  }

  async #giveBack(hold: Hold, became: Became): Promise<Driven> {
    const { runId } = hold
    const isOver = became === 'ended' || became === 'waits' || became === 'kept'
    try {
      const giveBack = () =>
        this.database.transaction(async (tx) => {
          const released = await this.runs.release(hold, became === 'waits' || became === 'kept', tx)
          if (released && became === 'kept')
            await tx.query('UPDATE caisson.runs SET wants_host = $2 WHERE run_id = $1', [
              runId,
              this.#options.name,
            ])
          if (released && !isOver) await this.jobs.enterAgain(tx, runId)
        })
      // Nobody takes one that has ended, so it would stay with this host.
      await (isOver ? untilReached(giveBack, this.closing) : giveBack())
    } catch (error) {
      // The next one takes it from this host.
      if (!isConnectionLost(error)) throw error
    }
    return isOver ? 'over' : 'again'
  }

  async #keepUpOnce(store: BlobStore, bounds: EndedRunBounds): Promise<void> {
    const { warn } = this.#options
    try {
      const done = await keepUp(this.database, store, bounds)
      if (done !== undefined && done.removedRuns === undefined && !this.#hasWarned) {
        this.#hasWarned = true
        warn(`ended runs are not removed, because the role of this host may not do it; ${howToGrantRemoval}`)
      }
    } catch (error) {
      if (!isConnectionLost(error)) warn(`the upkeep of the fleet failed: ${errorMessage(error)}`)
    }
  }

  /** From now on this process is a host in the list of all. */
  async #enter(): Promise<void> {
    this.#seen = setInterval(() => void this.#see().catch(() => undefined), seenMs)
    this.#seen.unref()
    this.notices.on(this.hostId, () => this.#see())
    await this.messages.receiveAs(this.hostId)
    await this.#see()
  }

  /** Says that this host is there, and does what others ask of it. */
  async #see(): Promise<void> {
    const { isDraining, leaving } = await this.#hosts.see()
    this.#isDraining = isDraining
    if (isDraining) this.jobs.pause()
    else this.jobs.resume()
    for (const [{ runId }, leave] of this.#held) if (isDraining || leaving.includes(runId)) leave.abort()
  }
}
