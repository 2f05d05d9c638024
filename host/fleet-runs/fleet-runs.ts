/**
 * The runs of a fleet that this host carries out. Each begins with its folder made anew from rows and files of the fleet, and
 * ends when the run has ended, waits for people, or belongs to another host.
 */
import { rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import * as z from 'zod'
import { CaissonError, type ErrorCode, errorMessage, hasCode } from '#specs/errors.ts'
import type { BlobStore } from '../fleet/blob-store.ts'
import { FleetBlobs } from '../fleet/blobs.ts'
import { isConnectionLost, untilReached } from '../fleet/database.ts'
import { FleetFence } from '../fleet/fence.ts'
import type { DriveSignals, Fleet } from '../fleet/fleet.ts'
import { readRows } from '../fleet/journal-rows.ts'
import { KnownDigests } from '../fleet/known-digests.ts'
import { requireWithin, type WaitingBounds } from '../fleet/lanes.ts'
import type { FailedTry } from '../fleet/run-requests.ts'
import { type Hold, releaseLeft } from '../fleet/run-table.ts'
import type { EndedRunBounds } from '../fleet/upkeep.ts'
import { readOutline } from '../journal/journal-summary.ts'
import { RunFold } from '../journal/run-outline.ts'
import type { EnterFence } from '../journal/run-paths.ts'
import type { RunPaths, RunStore } from '../journal/run-store.ts'
import type { Run } from '../runs/run.ts'
import { RunLock } from '../workspace/run-lock.ts'
import { type ActedRun, type MakeHere, serveActs } from './acts.ts'
import { FleetCopies } from './copies.ts'
import { lockCopy } from './copy-bounds.ts'
import { DeltaSender } from './deltas.ts'
import { endUncarried, SubmittedAbout } from './end.ts'
import { restoreRun, storeRunFiles } from './files.ts'
import { FleetRunHandle } from './handle.ts'
import { findElsewhere } from './make-there.ts'
import type { RunElsewhere, RunFences } from './run-fences.ts'

/** A part of a run, on this host. */
export interface Segment {
  readonly runId: string
  /** Whether no host has begun it. */
  readonly isNew: boolean
}

/** What a run cannot be started with on any host, and `cancelled`, as when its caller has no quota left. */
const ofOptions: ReadonlySet<ErrorCode> = new Set([
  ...(['invalid_options', 'invalid_rules', 'invalid_plan', 'invalid_workflow', 'invalid_archive'] as const),
  ...(['run_not_found', 'file_not_found', 'price_unknown', 'cancelled'] as const),
])
/** For lines that the database does not take while this host ends. */
const leaveMs = 5_000
/** Then one request finds out whether the model server's limit still holds. */
const modelAwayMs = 5 * 60_000

const Submitted = z.looseObject({ about: SubmittedAbout })
const EndedState = z.looseObject({
  end: z.looseObject({ message: z.string(), reason: z.string().optional() }),
})

/** A run whose model server takes no requests for long, and which left this host for that. */
function isModelAway(state: unknown): boolean {
  const end = EndedState.safeParse(state).data?.end
  return end?.reason === 'model_unreachable'
}

/** What is needed of a run that was begun. */
export type CarriedRun = { readonly ended: Promise<unknown> } & Pick<Run, 'cancel'> & ActedRun

export class FleetRuns implements RunFences {
  /** Where runs of other hosts are read. */
  readonly source: FleetCopies
  readonly #carried = new Map<string, ActedRun>()
  readonly #fleet: Fleet
  readonly #blobs: FleetBlobs
  readonly #fences = new Map<string, FleetFence>()
  /** The last part of each run on this host, until it has ended. */
  readonly #segments = new Map<string, Promise<void>>()
  #isLeaving = false

  constructor(fleet: Fleet, store: BlobStore) {
    this.#fleet = fleet
    this.#blobs = new FleetBlobs(fleet.database, store)
    this.source = new FleetCopies(fleet, this.#blobs, (runId) => this.#segments.has(runId))
  }

  of(runId: string): FleetFence | undefined {
    return this.#fences.get(runId)
  }

  /** For lines that do not carry a run on. A property, so that it is passed on alone. */
  readonly enter: EnterFence = async (paths) => {
    const { runId } = paths
    const { runs: table, hostId, name } = this.#fleet
    await releaseLeft(this.#fleet.database, runId)
    await this.source.refresh(paths)
    const head = await table.head(runId)
    if (head === undefined) return undefined
    const hold = await table.enter(runId, head, { hostId, name })
    if (hold === undefined)
      throw new CaissonError('run_busy', `a host of the fleet has ${runId}, or is about to take it`, {
        remedy: 'try again when it has ended, or waits for people',
      })
    const fence = new FleetFence(table, hold, head)
    fence.list(...(await readFold(paths, head.seq === 0)))
    const leave = async () => {
      await fence.flush().catch(() => undefined)
      await untilReached(() => table.release(hold, head.waits), this.#fleet.closing)
    }
    return Object.assign(fence, { [Symbol.asyncDispose]: leave })
  }

  /**
   * Queues a run that waits for people alone, such as one that a person paused: any host continues it.
   * @param bounds of the queue. Absent: it may wait whatever waits already
   * @throws {CaissonError} `not_possible_now` for a run that has ended or waits for a host, `run_busy` while a host has it,
   *   `queue_full`
   */
  async wake(runId: string, bounds?: WaitingBounds): Promise<void> {
    const { database, jobs, runs: table } = this.#fleet
    await database.transaction(async (tx) => {
      await releaseLeft(tx, runId)
      const [row] = await tx.query<{ lane: string }>(
        'SELECT lane FROM caisson.runs WHERE run_id = $1 FOR UPDATE',
        [runId],
      )
      const head = await table.head(runId, tx)
      if (row === undefined || head === undefined)
        throw new CaissonError('run_not_found', `the fleet has no run ${runId}`)
      if (head.hasEnded) throw new CaissonError('not_possible_now', `${runId} has ended`)
      if (head.hostId !== null)
        throw new CaissonError('run_busy', `a host of the fleet carries ${runId} out`, {
          remedy: `let a paused agent continue: POST /v1/runs/${runId}/unpause`,
        })
      if (!head.waits)
        throw new CaissonError('not_possible_now', `${runId} waits for a host of the fleet already`)
      await jobs.add(tx, runId, { priority: 'normal', isContinued: true })
      // Nothing else bounds how many forks one caller has continued at once.
      if (bounds !== undefined) await requireWithin(tx, row.lane, bounds)
    })
  }

  /** See {@link RunFences.elsewhere}. */
  async elsewhere(
    paths: RunPaths,
    { orBeginning = false }: { readonly orBeginning?: boolean } = {},
  ): Promise<FleetRunHandle | null | undefined> {
    const hasIt = orBeginning ? this.#carried.has(paths.runId) : this.source.isHere(paths.runId)
    if (hasIt) return undefined
    const run = await this.source.run(paths.runId)
    if (run === undefined) return undefined
    return run.hasEnded ? null : new FleetRunHandle(this.#fleet, this.source, run.id)
  }

  /** See {@link RunFences.makeThere}. */
  async makeThere(paths: RunPaths): Promise<RunElsewhere | undefined> {
    return await findElsewhere({ fleet: this.#fleet, blobs: this.#blobs }, this.source, paths)
  }

  /**
   * Carries runs out, as many as the host has slots.
   * @param runs of the host, whose option `fences` is this object
   * @param begin starts a new run with `runAs`, and resumes another; both leave this process when the run sleeps
   * @param ended what the fleet keeps of ended runs; absent: all of them
   * @param make forks runs whose disks this host has, for other hosts; absent: it does not
   */
  async work(
    runs: RunStore,
    begin: (segment: Segment) => Promise<CarriedRun>,
    ended: EndedRunBounds = {},
    make?: MakeHere,
  ): Promise<void> {
    this.#fleet.keepUp(this.#blobs.store, ended)
    const warn = (text: string) => process.emitWarning(text)
    new DeltaSender(this.#fleet, (runId) => this.#carried.get(runId))
    void serveActs(this.#fleet, { runOf: (runId) => this.#carried.get(runId), make, warn })
    await this.#fleet.work((hold, signals) => this.#drive(hold, signals, runs, begin))
  }

  /**
   * Takes no more runs, and gives back those under way: other hosts continue them from their last checkpoint. Resolves once
   * they have ended here.
   */
  async leave(): Promise<void> {
    this.#isLeaving = true
    const drained = this.#fleet.jobs.drain()
    await Promise.all([...this.#fences.values()].map((fence) => leaveRun(fence)))
    await drained
  }

  async #drive(
    hold: Hold,
    signals: DriveSignals,
    runs: RunStore,
    begin: (segment: Segment) => Promise<CarriedRun>,
  ): Promise<'ended' | 'waits' | 'again'> {
    const { runId } = hold
    const before = this.#segments.get(runId)
    const over = Promise.withResolvers<void>()
    this.#segments.set(runId, over.promise)
    // This process may have an earlier part of it still, as after a freeze. Its folder is free once that has ended.
    this.#fences.get(runId)?.lose('this host has taken it again')
    try {
      await before
      // A full folder takes no new run.
      await this.source.bound()
      return await this.#carryOut(hold, signals, runs, begin)
    } finally {
      if (this.#segments.get(runId) === over.promise) this.#segments.delete(runId)
      over.resolve()
    }
  }

  async #carryOut(
    hold: Hold,
    signals: DriveSignals,
    runs: RunStore,
    begin: (segment: Segment) => Promise<CarriedRun>,
  ): Promise<'ended' | 'waits' | 'again'> {
    const { runId } = hold
    const { lost: signal, leave, isLate } = signals
    const { runs: table } = this.#fleet
    const paths = runs.paths(runId)
    const head = await table.head(runId)
    if (head === undefined) throw new CaissonError('run_not_found', `the fleet has no run ${runId}`)
    const { requests } = this.#fleet
    const failed = await requests.failures(runId)
    const known = new KnownDigests()
    const fence = new FleetFence(table, hold, head, async (moment, hasEnded) => {
      const files = await storeRunFiles(paths, moment, this.#blobs, hasEnded, known)
      if (moment !== null && failed.length > 0) await requests.clearFailures(runId)
      return files
    })
    const onAbort = () => fence.lose('the fleet had no sign of life of it for a while')
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    const onLeave = () => fence.leaveSoon()
    leave.addEventListener('abort', onLeave, { once: true })
    if (leave.aborted) onLeave()
    this.#fences.set(runId, fence)
    try {
      const isNew = head.seq === 0
      const hasTries = (await requests.judge(runId, hold.hostId)) !== 'end'
      await this.#makeFolder(paths, isNew, hasTries)
      fence.list(...(await readFold(paths, isNew)))
      if (!fence.isOwn() || this.#isLeaving) return 'again'
      if (isLate) return await this.#end(paths, fence, tooLate())
      if (!hasTries) return await this.#end(paths, fence, noHostLeft(failed))
      const run = await begin({ runId, isNew })
      this.#carried.set(runId, run)
      const stop = () => void run.cancel({ by: 'the fleet', now: true }).catch(() => undefined)
      if (fence.lost.aborted) stop()
      else fence.lost.addEventListener('abort', stop, { once: true })
      const state = await run.ended
      if (!fence.isOwn()) return 'again'
      if ((await table.head(runId))?.hasEnded === true) return 'ended'
      if ((await runs.summary(runId)).status === 'sleeping') return 'waits'
      const why = EndedState.safeParse(state).data?.end.message ?? 'the run left this host without an end'
      // Each host would hear the same of the server: that is no failed try of this one.
      if (isModelAway(state)) return await this.#waitForModel(hold)
      return await this.#failHere(hold, why)
    } catch (error) {
      if (!fence.isOwn()) return 'again'
      const { code } = CaissonError.from(error)
      // Another process or call has the run's lock, such as to fork or export it. The pause before the next try grows.
      if (code === 'run_busy') return 'again'
      // Each try would fail for the same reason, and the last one would end the run.
      if (isConnectionLost(error)) return await this.#waitForStore(hold)
      if (ofOptions.has(code)) return await this.#end(paths, fence, error)
      return await this.#failHere(hold, errorMessage(error))
    } finally {
      signal.removeEventListener('abort', onAbort)
      leave.removeEventListener('abort', onLeave)
      this.#carried.delete(runId)
      this.#fences.delete(runId)
    }
  }

  /** The next try is by another host, or here again. */
  async #failHere({ runId, hostId }: Hold, message: string): Promise<'again'> {
    const { requests, name } = this.#fleet
    await requests.addFailure(runId, { hostId, host: name, message })
    return 'again'
  }

  /** The next try is after a while, by any host. */
  async #waitForModel({ runId }: Hold): Promise<'again'> {
    await this.#fleet.requests.postpone(runId, modelAwayMs)
    return 'again'
  }

  /** As lines and checkpoints wait for database and store. Others are asked first, since this host alone may be cut off. */
  async #waitForStore({ runId, hostId }: Hold): Promise<'again'> {
    await this.#fleet.requests.avoid(runId, hostId)
    return 'again'
  }

  /** Nothing that a host does helps. */
  async #end(paths: RunPaths, fence: FleetFence, error: unknown): Promise<'ended'> {
    const request = await this.#fleet.requests.read(paths.runId).catch(() => undefined)
    await this.source.onEnding(paths.runId)
    await endUncarried(paths, fence, Submitted.safeParse(request).data?.about, error)
    return 'ended'
  }

  /**
   * @param hasTries false: it only ends here, for which its journal is enough where the store has lost its files
   * @throws {CaissonError} `run_busy` while another process or call has its lock
   */
  async #makeFolder(paths: RunPaths, isNew: boolean, hasTries: boolean): Promise<void> {
    const { directory, runId, locks } = paths
    // Whoever forks or exports it reads the folder that is here.
    await using _ = await RunLock.take(locks, runId)
    // Nobody reads a copy of it meanwhile.
    await using _copy = await lockCopy(paths)
    // What is left of a start that the fleet never stored.
    if (isNew) return await rm(directory, { recursive: true, force: true })
    const { database, runs: table } = this.#fleet
    const from = () => ({ rows: readRows(database, table, runId), fleet: database.address.shown })
    try {
      await restoreRun(paths, { files: await table.files(runId), ...from() }, this.#blobs)
    } catch (error) {
      if (hasTries || !hasCode(error, 'state_corrupted')) throw error
      await restoreRun(paths, { files: [], ...from() }, this.#blobs)
    }
  }
}

/** What the lines so far say, and their bytes. */
async function readFold({ journal, runId }: RunPaths, isNew: boolean): Promise<[RunFold, number]> {
  if (isNew) return [new RunFold(), 0]
  const { outline, end } = await readOutline(journal, runId)
  return [RunFold.from(outline, end), end.bytes]
}

/** Stores what the run has written so far; then this host writes nothing more. */
async function leaveRun(fence: FleetFence): Promise<void> {
  const over = new AbortController()
  const timed = sleep(leaveMs, undefined, { signal: over.signal, ref: false }).catch(() => undefined)
  await Promise.race([fence.flush().catch(() => undefined), timed])
  over.abort()
  fence.lose('this host ends')
}

function tooLate(): CaissonError {
  return new CaissonError('queue_timeout', 'no host of the fleet began the run within startWithinMs', {
    remedy: 'start it again with more time, or add hosts',
  })
}

function noHostLeft(failed: readonly FailedTry[]): CaissonError {
  const last = new Map(failed.map(({ host, message }) => [host, message.split('\n')[0] ?? '']))
  const seen = [...last].map(([host, message]) => `${host}: ${message}`).join('; ')
  return new CaissonError(
    'not_possible_now',
    `no host of the fleet can carry the run out, after ${failed.length} tries: ${seen}`,
    { remedy: 'correct what the hosts lack (caisson doctor on each), and start the run again' },
  )
}
