/**
 * The runs of a fleet that this host carries out. Each begins with its folder made anew from rows and files of the fleet, and
 * ends when the run has ended, waits for people, or belongs to another host.
 */
import { rm } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import type { BlobStore } from './fleet/blob-store.ts'
import { FleetFence } from './fleet/fence.ts'
import type { Fleet } from './fleet/fleet.ts'
import { readRows } from './fleet/journal-rows.ts'
import type { Hold } from './fleet/run-table.ts'
import { restoreRun, storeRunFiles } from './fleet-files.ts'
import type { RunFences } from './host-options.ts'
import type { RunPaths, RunStore } from './journal/run-store.ts'
import type { Run } from './runs/run.ts'

/** A part of a run, on this host. */
export interface Segment {
  readonly runId: string
  /** Whether no host has begun it. */
  readonly isNew: boolean
}

/** What is needed of a run that was begun. */
export type CarriedRun = { readonly ended: Promise<unknown> } & Pick<Run, 'cancel'>

export class FleetRuns implements RunFences {
  readonly #fleet: Fleet
  readonly #blobs: BlobStore
  readonly #fences = new Map<string, FleetFence>()
  /** The last part of each run on this host, until it has ended. */
  readonly #segments = new Map<string, Promise<void>>()

  constructor(fleet: Fleet, blobs: BlobStore) {
    this.#fleet = fleet
    this.#blobs = blobs
  }

  of(runId: string): FleetFence | undefined {
    return this.#fences.get(runId)
  }

  /**
   * Carries runs out, as many as the host has slots.
   * @param runs of the host, whose option `fences` is this object
   * @param begin starts a new run with `runAs`, and resumes another; both leave this process when the run sleeps
   */
  async work(runs: RunStore, begin: (segment: Segment) => Promise<CarriedRun>): Promise<void> {
    await this.#fleet.work((hold, signal) => this.#drive(hold, signal, runs, begin))
  }

  async #drive(
    hold: Hold,
    signal: AbortSignal,
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
      return await this.#carryOut(hold, signal, runs, begin)
    } finally {
      if (this.#segments.get(runId) === over.promise) this.#segments.delete(runId)
      over.resolve()
    }
  }

  async #carryOut(
    hold: Hold,
    signal: AbortSignal,
    runs: RunStore,
    begin: (segment: Segment) => Promise<CarriedRun>,
  ): Promise<'ended' | 'waits' | 'again'> {
    const { runId } = hold
    const { runs: table } = this.#fleet
    const paths = runs.paths(runId)
    const head = await table.head(runId)
    if (head === undefined) throw new CaissonError('run_not_found', `the fleet has no run ${runId}`)
    const fence = new FleetFence(table, hold, head, (moment) => storeRunFiles(paths, moment, this.#blobs))
    const onAbort = () => fence.lose('the fleet had no sign of life of it for a while')
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    this.#fences.set(runId, fence)
    try {
      const isNew = head.seq === 0
      await this.#makeFolder(paths, isNew)
      if (!fence.isOwn()) return 'again'
      const run = await begin({ runId, isNew })
      const stop = () => void run.cancel({ by: 'the fleet', now: true }).catch(() => undefined)
      if (fence.lost.aborted) stop()
      else fence.lost.addEventListener('abort', stop, { once: true })
      await run.ended
      if (!fence.isOwn()) return 'again'
      if ((await table.head(runId))?.hasEnded === true) return 'ended'
      return (await runs.summary(runId)).status === 'sleeping' ? 'waits' : 'again'
    } finally {
      signal.removeEventListener('abort', onAbort)
      this.#fences.delete(runId)
    }
  }

  async #makeFolder(paths: RunPaths, isNew: boolean): Promise<void> {
    const { directory, runId } = paths
    // What is left of a start that the fleet never stored.
    if (isNew) return await rm(directory, { recursive: true, force: true })
    const { database, runs: table } = this.#fleet
    const rows = readRows(database, table, runId)
    await restoreRun(paths, { files: await table.files(runId), rows }, this.#blobs)
  }
}
