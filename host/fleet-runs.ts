/**
 * The runs of a fleet that this host carries out. Each begins with its folder made anew from rows and files of the fleet, and
 * ends when the run has ended, waits for people, or belongs to another host.
 */
import { CaissonError } from '#specs/errors.ts'
import type { BlobStore } from './fleet/blob-store.ts'
import { FleetFence } from './fleet/fence.ts'
import type { Fleet } from './fleet/fleet.ts'
import { readRows } from './fleet/journal-rows.ts'
import type { Hold } from './fleet/run-table.ts'
import { restoreRun, storeRunFiles } from './fleet-files.ts'
import type { RunFences } from './host-options.ts'
import type { RunStore } from './journal/run-store.ts'
import type { Run } from './runs/run.ts'

/** A part of a run, on this host. */
export interface Segment {
  readonly runId: string
  /** Whether no host has begun it. */
  readonly isNew: boolean
}

export class FleetRuns implements RunFences {
  readonly #fleet: Fleet
  readonly #blobs: BlobStore
  readonly #fences = new Map<string, FleetFence>()

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
  async work(runs: RunStore, begin: (segment: Segment) => Promise<Run>): Promise<void> {
    await this.#fleet.work((hold, signal) => this.#drive(hold, signal, runs, begin))
  }

  async #drive(
    hold: Hold,
    signal: AbortSignal,
    runs: RunStore,
    begin: (segment: Segment) => Promise<Run>,
  ): Promise<'ended' | 'waits' | 'again'> {
    const { runId } = hold
    const { database, runs: table } = this.#fleet
    const paths = runs.paths(runId)
    const head = await table.head(runId)
    if (head === undefined) throw new CaissonError('run_not_found', `the fleet has no run ${runId}`)
    const isNew = head.seq === 0
    if (!isNew) {
      const rows = readRows(database, table, runId)
      await restoreRun(paths, { files: await table.files(runId), rows }, this.#blobs)
    }
    const fence = new FleetFence(table, hold, head, (moment) => storeRunFiles(paths, moment, this.#blobs))
    const onAbort = () => fence.lose('the fleet had no sign of life of it for a while')
    signal.addEventListener('abort', onAbort, { once: true })
    this.#fences.set(runId, fence)
    try {
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
}
