/**
 * This host as one of a fleet: hands in what callers submit, carries out runs that any host handed in, and says what the
 * others do. Opens the database and the blob store; whoever opened it closes it.
 */
import { existsSync } from 'node:fs'
import { Readable } from 'node:stream'
import { CaissonError, hasCode } from '#specs/errors.ts'
import type { RunPriority } from '#specs/protocol/host-event.ts'
import type { ApiKeyStore } from './api-keys/api-keys.ts'
import { uploadLimits } from './archive/unpack-workspace.ts'
import type { RunHandle } from './control/run-handle.ts'
import type { FleetAddress } from './fleet/address.ts'
import { ApiKeyRows } from './fleet/api-key-rows.ts'
import { openBlobStore } from './fleet/blob-address.ts'
import type { BlobStore } from './fleet/blob-store.ts'
import { FleetBlobs, referTo } from './fleet/blobs.ts'
import { type CallerUse, useOf } from './fleet/caller-use.ts'
import type { Queries } from './fleet/database.ts'
import { Fleet, type FleetStatus } from './fleet/fleet.ts'
import type { FleetHost } from './fleet/host-table.ts'
import type { WaitingBounds } from './fleet/lanes.ts'
import type { HostFacts, Requires } from './fleet/placement.ts'
import type { SubmissionKey, SubmittedBefore } from './fleet/run-requests.ts'
import { describeSubmitted } from './fleet/run-rows.ts'
import type { FleetPlace, FleetSignals } from './fleet/waits.ts'
import type { MakeHere } from './fleet-runs/acts.ts'
import type { SubmittedAbout } from './fleet-runs/end.ts'
import { type CarriedRun, FleetRuns, type Segment } from './fleet-runs/fleet-runs.ts'
import type { RunElsewhere, RunFences } from './fleet-runs/run-fences.ts'
import { noDisk } from './forks/stored-task.ts'
import type { Host } from './host.ts'
import type { JournalFence } from './journal/journal.ts'
import type { EnterFence, RunPaths } from './journal/run-paths.ts'
import type { RunSource } from './journal/run-source.ts'
import { newRunId } from './journal/run-store.ts'
import { fleetBoundsOf, keptBoundsOf } from './kept-bounds.ts'
import type { SharedKeys } from './providers/shared-keys.ts'
import { relocateStored } from './stored-run.ts'

/** How long an upload is kept that no run needs. */
const uploadMs = 24 * 60 * 60 * 1000

export interface FleetMemberOptions {
  /** As {@link readFleetAddress} read it. */
  readonly address: FleetAddress
  /** A directory that all hosts see, or `s3://BUCKET/PREFIX`. */
  readonly files: string
  /** Has the keys, the region and the endpoint of S3. Default: `process.env`. */
  readonly env?: Readonly<Record<string, string | undefined>>
  /** Of this host, for people. */
  readonly name: string
  readonly version: string
  /** Runs that this host carries out at once; 0: it only starts, shows and answers. */
  readonly slots: number
  /** What the host has now, for the runs that require it. Absent: it says nothing. */
  readonly facts?: () => Partial<HostFacts>
  /** How many runs may wait in the fleet when this host adds one. Default: 1000, and 200 of one lane. */
  readonly bounds?: Partial<WaitingBounds>
  /** Receives what fails in the background, and is tried again. */
  readonly warn: (text: string) => void
}

const defaultBounds: WaitingBounds = { maxWaiting: 1_000, maxWaitingPerLane: 200 }

/** A run for any host. */
export interface FleetSubmission {
  /** For lists, until the run has begun. */
  readonly about: SubmittedAbout
  /** Whatever starts it, as JSON: any host gives it to {@link FleetMember.work}. */
  readonly start: unknown
  /** The uploaded workspace that it needs. */
  readonly uploadId?: string
  /** Absent: each call adds a run. */
  readonly key?: SubmissionKey
  /** Whom it is for; lanes take turns. Default: the same for all. */
  readonly lane?: string | undefined
  /** Runs of the lane at work on all hosts; null: no bound. Absent: as before. */
  readonly laneMaxAtWork?: number | null | undefined
  /** Default: `normal`. */
  readonly priority?: RunPriority | undefined
  /** ms after which a run that no host has begun ends with `queue_timeout`. Absent: it waits. */
  readonly startWithinMs?: number | undefined
  /** Whose quotas count it. Absent: the owner's. */
  readonly caller?: string | undefined
  /** What a host has to have. Absent: nothing. */
  readonly requires?: Requires | undefined
}

/** A run to begin or to continue. */
export interface SubmittedSegment extends Segment {
  /** As it was submitted, by whatever host. */
  readonly start: unknown
}

export class FleetMember implements RunFences, AsyncDisposable {
  /** Of the database, without a password. */
  readonly address: string
  /** Of this host, for people; several may have it. */
  readonly name: string
  /** Of this process in the fleet. */
  readonly hostId: string
  readonly #fleet: Fleet
  readonly #blobs: FleetBlobs
  readonly #runs: FleetRuns
  #placeWorkspace: ((runId: string, start: unknown) => Promise<string | undefined>) | undefined

  /** API keys that all hosts know. */
  readonly apiKeys: ApiKeyStore
  readonly #bounds: WaitingBounds

  private constructor(fleet: Fleet, store: BlobStore, bounds: Partial<WaitingBounds>) {
    this.apiKeys = new ApiKeyRows(fleet.database)
    this.#bounds = { ...defaultBounds, ...bounds }
    this.#fleet = fleet
    this.#blobs = new FleetBlobs(fleet.database, store)
    this.#runs = new FleetRuns(fleet, store)
    this.address = fleet.database.address.shown
    this.name = fleet.name
    this.hostId = fleet.hostId
  }

  /** As of {@link RunFences}. */
  async elsewhere(
    paths: RunPaths,
    options: { readonly orBeginning?: boolean } = {},
  ): Promise<RunHandle | null | undefined> {
    return await this.#runs.elsewhere(paths, options)
  }

  /** As of {@link RunFences}. */
  async makeThere(paths: RunPaths): Promise<RunElsewhere | undefined> {
    return await this.#runs.makeThere(paths)
  }

  /** As of {@link RunFences}. */
  async workspaceOf(runId: string): Promise<string | undefined> {
    if (this.#runs.source.isHere(runId) || this.#placeWorkspace === undefined) return undefined
    const submitted = await this.submittedAs(runId)
    return submitted === undefined ? undefined : await this.#placeWorkspace(runId, submitted.start)
  }

  /** What a run was submitted with. Undefined: it was not submitted, or is none of the fleet. */
  async submittedAs(runId: string): Promise<{ readonly start?: unknown } | undefined> {
    const request = await this.#fleet.requests.read(runId).catch((error: unknown) => {
      if (hasCode(error, 'run_not_found')) return undefined
      throw error
    })
    return request === undefined ? undefined : { start: (request as { start?: unknown } | null)?.start }
  }

  /** Name of the host that wrote to a run last, or carried it out. Null: no host has had it. */
  async lastHostOf(runId: string): Promise<string | null> {
    const { carriedBy, enteredBy } = await this.#fleet.runs.places(runId)
    return enteredBy ?? carriedBy
  }

  /** Says how to find or make the workspace of a run that was submitted so. */
  placeWorkspaces(place: (runId: string, start: unknown) => Promise<string | undefined>): void {
    this.#placeWorkspace = place
  }

  /** Has a run continued that waits for people alone; see {@link FleetRuns.wake}. */
  async wake(runId: string): Promise<void> {
    await this.#runs.wake(runId, this.#bounds)
  }

  /** As of {@link RunFences}. */
  get enter(): EnterFence {
    return this.#runs.enter
  }

  /** @throws {CaissonError} `invalid_options`, `state_unavailable`, `permission_denied`, `version_mismatch` */
  static async open({
    address,
    files,
    env = process.env,
    bounds = {},
    ...options
  }: FleetMemberOptions): Promise<FleetMember> {
    const store = await openBlobStore(files, env)
    const member = new FleetMember(await Fleet.open(address, options), store, bounds)
    // After a restore the store may be empty, so this is no reason to stop.
    if (await member.#blobs.isOtherStore().catch(() => false))
      options.warn(
        `the store ${store.shown} has no file that runs of the fleet need; all hosts have to use one store: check --fleet-files, and that its directory is mounted`,
      )
    return member
  }

  /** As of {@link RunFences}. */
  get keys(): SharedKeys {
    return this.#fleet.keys
  }

  /** Where runs of other hosts are read. */
  get source(): RunSource {
    return this.#runs.source
  }

  of(runId: string): JournalFence | undefined {
    return this.#runs.of(runId)
  }

  /**
   * Adds a run, with its job, in one transaction. @returns `body`: of the request that the key belongs to, if it was used
   * before
   * @throws {CaissonError} `queue_full`; `file_not_found` for an upload that was removed
   */
  async submit({
    about,
    start,
    uploadId,
    key,
    lane = '',
    priority = 'normal',
    ...given
  }: FleetSubmission): Promise<{ readonly runId: string; readonly isNew: boolean; readonly body?: string }> {
    const { requests } = this.#fleet
    const runId = newRunId()
    const request = JSON.stringify({ version: 1, about, start })
    let before: SubmittedBefore | undefined
    try {
      const run = { ...placeInQueue(given), lane, priority, isContinued: false, bounds: this.#bounds }
      await this.#fleet.add(runId, run, async (tx) => {
        before = key === undefined ? undefined : await requests.claim(tx, key)
        // Undoes the transaction.
        if (before !== undefined) throw new CaissonError('not_possible_now', 'the key was used')
        await requests.store(tx, runId, request, key)
        if (uploadId !== undefined) await this.#needUpload(tx, runId, uploadId)
        await describeSubmitted(tx, runId, { ...about, at: Date.now() })
      })
      return { runId, isNew: true }
    } catch (error) {
      if (before !== undefined) return { ...before, isNew: false }
      throw error
    }
  }

  /** From now on it stays as long as the run. Without it, only a host that has its folder could carry the run out. */
  async #needUpload(tx: Queries, runId: string, uploadId: string): Promise<void> {
    const upload = await this.#fleet.requests.findUpload(uploadId, tx)
    if (upload === undefined)
      throw new CaissonError('file_not_found', `the fleet has the uploaded workspace ${uploadId} no more`, {
        remedy: 'upload it again: POST /v1/workspaces',
      })
    await referTo(tx, runId, 'request', [upload.sha256])
  }

  /** The run that was submitted with a key. Undefined: none. */
  async findByKey(key: string): Promise<SubmittedBefore | undefined> {
    return await this.#fleet.requests.findByKey(key)
  }

  /** Whether the fleet has the run. */
  async has(runId: string): Promise<boolean> {
    return (await this.#fleet.runs.head(runId)) !== undefined
  }

  async hosts(): Promise<readonly FleetHost[]> {
    return await this.#fleet.hosts()
  }

  async status(): Promise<FleetStatus> {
    return await this.#fleet.status()
  }

  /** What the fleet lacks, and when the next run starts. */
  async signals(): Promise<FleetSignals> {
    return await this.#fleet.signals()
  }

  /** Of a run that waits for a host. Undefined: it does not, or is none of the fleet. */
  async placeOf(runId: string): Promise<FleetPlace | undefined> {
    return (await this.has(runId)) ? await this.#fleet.placeOf(runId) : undefined
  }

  /** Lets a host take no more runs and give those that it has to others. @param undo lets it take runs again */
  async drainHost(host: string, { undo = false }: { readonly undo?: boolean } = {}): Promise<void> {
    await this.#fleet.drainHost(host, { undo })
  }

  /** Lets another host continue a run: the one named, or any. @throws {CaissonError} `run_not_found`, `invalid_options` */
  async move(runId: string, host?: string): Promise<'moving' | 'waiting' | 'ended'> {
    return await this.#fleet.move(runId, host)
  }

  /** What a caller uses, over all hosts. @param exceptRunId a run that does not count */
  async useOf(caller: string, exceptRunId?: string): Promise<CallerUse> {
    return await useOf(this.#fleet.database, caller, exceptRunId)
  }

  /** @param hear hears of each run that this host ends without carrying it out, before that */
  onEnding(hear: (runId: string) => Promise<void>): void {
    this.#runs.source.onEnding = hear
  }

  /**
   * Carries runs out, as many as this host has slots.
   * @param host whose option `fences` is this object
   * @param begin starts a new run with `runAs`, and resumes another; both with `leaveOnSleep`
   */
  async work(
    host: Pick<Host, 'runs' | 'config' | 'folders' | 'fork' | 'rewind'>,
    begin: (segment: SubmittedSegment) => Promise<CarriedRun>,
  ): Promise<void> {
    const { requests } = this.#fleet
    const { source } = this.#runs
    source.boundBy(host.folders, async () => keptBoundsOf(await host.config()))
    void source.bound().catch(() => undefined)
    const beginSubmitted = async (segment: Segment) => {
      const request = (await requests.read(segment.runId)) as { readonly start?: unknown } | null
      return await begin({ ...segment, start: request?.start })
    }
    await this.#runs.work(host.runs, beginSubmitted, fleetBoundsOf(await host.config()), makerOf(host))
  }

  /** Before a run is resumed: its workspace is elsewhere on this host. */
  async relocate({ runs }: Pick<Host, 'runs'>, runId: string, workspace: string): Promise<void> {
    await relocateStored(runs.paths(runId), workspace)
  }

  /**
   * Keeps an archive of a workspace for all hosts, for a day until a run needs it. @throws {CaissonError} `limit_reached`
   * @param folder for the time until it is stored
   * @param unpack gets it before it is stored; what it throws refuses it
   */
  async storeUpload(
    uploadId: string,
    archive: AsyncIterable<Uint8Array>,
    folder: string,
    unpack: (archive: Readable) => Promise<void>,
  ): Promise<void> {
    const pieces = atMost(archive, uploadLimits.maxBytes)
    const blob = await this.#blobs.putStream(pieces, folder, uploadMs, unpack)
    await this.#fleet.requests.addUpload(uploadId, blob)
  }

  /** How many uploads the fleet keeps whose ids end so. */
  async countUploads(mark: string): Promise<number> {
    return await this.#fleet.requests.countUploads(mark)
  }

  /** For an upload that no run uses. */
  async removeUpload(uploadId: string): Promise<void> {
    await this.#fleet.requests.removeUpload(uploadId)
  }

  async hasUpload(uploadId: string): Promise<boolean> {
    return (await this.#fleet.requests.findUpload(uploadId)) !== undefined
  }

  /** The archive of {@link storeUpload}. Undefined: the fleet has none of this id. */
  async openUpload(uploadId: string): Promise<Readable | undefined> {
    const blob = await this.#fleet.requests.findUpload(uploadId)
    return blob === undefined ? undefined : Readable.from(this.#blobs.get(blob))
  }

  /**
   * Takes no more runs and gives back those under way, which other hosts continue from their last checkpoint. Resolves once
   * they have ended here.
   */
  async leave(): Promise<void> {
    await this.#runs.leave()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#fleet[Symbol.asyncDispose]()
  }
}

/** Forks and rewinds runs whose disks this host has, for other hosts. */
export function makerOf(host: Pick<Host, 'runs' | 'fork' | 'rewind'>): MakeHere {
  return {
    fork: async (runId, { metadata, ...request }, by) => {
      await requireDisk(host, runId)
      return await host.fork(runId, { ...request, ...(metadata === undefined ? {} : { metadata }), by })
    },
    rewind: async (runId, { prompt, ...options }, by) => {
      await requireDisk(host, runId)
      return await host.rewind(runId, { ...options, ...(prompt === undefined ? {} : { prompt }), by })
    },
  }
}

/** Another process of the same name may have it, in another folder. @throws {CaissonError} `not_possible_now` */
async function requireDisk({ runs }: Pick<Host, 'runs'>, runId: string): Promise<void> {
  await runs.requireHere(runId, 'disk')
  const { options, moments } = runs.paths(runId)
  if (!existsSync(options) && !existsSync(moments)) throw noDisk(runId)
}

function placeInQueue(
  given: Pick<FleetSubmission, 'laneMaxAtWork' | 'startWithinMs' | 'caller' | 'requires'>,
) {
  const { laneMaxAtWork, startWithinMs, caller, requires } = given
  return {
    ...(laneMaxAtWork === undefined ? {} : { laneSettings: { maxAtWork: laneMaxAtWork } }),
    ...(startWithinMs === undefined ? {} : { startWithinMs }),
    ...(caller === undefined ? {} : { caller }),
    ...(requires === undefined ? {} : { requires }),
  }
}

async function* atMost(pieces: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Uint8Array> {
  let bytes = 0
  for await (const piece of pieces) {
    bytes += piece.byteLength
    if (bytes > maxBytes)
      throw new CaissonError('limit_reached', `the archive has more than ${maxBytes} bytes`)
    yield piece
  }
}
