/**
 * Makes runs that this host made of others, such as forks, runs of the fleet. Their files are in the blob store before their
 * rows are there, and the rows of all of them are added in one transaction.
 */
import { stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import { type AdoptedRun, addAdopted } from '../fleet/adopted-rows.ts'
import type { Blob } from '../fleet/blob-store.ts'
import { BlobsGone, type FleetBlobs } from '../fleet/blobs.ts'
import { isConnectionLost } from '../fleet/database.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { StoredFile } from '../fleet/run-table.ts'
import { markFleet, unmarkFleet } from '../journal/fleet-mark.ts'
import type { ChainedLine } from '../journal/journal.ts'
import { readBodies } from '../journal/journal-lines.ts'
import { RunFold } from '../journal/run-outline.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { RunLock } from '../workspace/run-lock.ts'
import { storeRunFiles } from './files.ts'

/** For a database or a store that is away. */
const untilMs = 30_000
const againMs = 500

export interface AdoptParts {
  readonly fleet: Fleet
  readonly blobs: Pick<FleetBlobs, 'put'>
  /** Stores what another host needs of a run, and lists it. Default: all of it, from its folder. */
  readonly filesOf?: (paths: RunPaths) => Promise<readonly StoredFile[]>
  /** Name of the host that has their disks; null: none. Default: this one, for runs that have a disk. */
  readonly host?: string | null
}

/** @throws {CaissonError} the database's or the store's; then the fleet has none of them */
export async function adoptRuns(
  parts: AdoptParts,
  made: readonly RunPaths[],
  of: readonly string[],
): Promise<void> {
  await using held = new AsyncDisposableStack()
  for (const { locks, runId } of made) held.use(await RunLock.take(locks, runId))
  try {
    for (const { journal } of made) await markFleet(journal, parts.fleet.database.address.shown)
    await addAll(parts, made, of)
  } catch (error) {
    for (const { journal } of made) await unmarkFleet(journal)
    throw error
  }
}

async function addAll(parts: AdoptParts, made: readonly RunPaths[], of: readonly string[]): Promise<void> {
  const { fleet } = parts
  const digests = new SharedDigests()
  for (const until = performance.now() + untilMs; ; ) {
    try {
      const runs: AdoptedRun[] = []
      for (const paths of made) runs.push(await describe(paths, of, parts, digests))
      // The answer of an earlier try may have been lost.
      if (await areThere(fleet, runs)) return
      await fleet.database.transaction(async (tx) => {
        for (const run of runs) await addAdopted(tx, run)
      })
      return
    } catch (error) {
      const passes = error instanceof BlobsGone || isConnectionLost(error)
      if (!passes || performance.now() > until || fleet.closing.aborted) throw error
    }
    await sleep(againMs, undefined, { signal: fleet.closing }).catch(() => undefined)
  }
}

async function areThere(fleet: Fleet, runs: readonly AdoptedRun[]): Promise<boolean> {
  const [first] = runs
  if (first === undefined) return true
  const head = await fleet.runs.head(first.runId)
  if (head === undefined) return false
  if (head.hash === first.end.hash) return true
  throw new CaissonError('internal', `the fleet has another run ${first.runId}`)
}

async function describe(
  paths: RunPaths,
  of: readonly string[],
  { fleet, blobs, filesOf, host: given }: AdoptParts,
  digests: SharedDigests,
): Promise<AdoptedRun> {
  const { runId, journal } = paths
  const fold = new RunFold()
  let end = { seq: 0, hash: '', bytes: 0 }
  for await (const { event, end: next } of readBodies(journal, runId)) {
    fold.next(event, next)
    end = next
  }
  const { outline, state } = fold
  const checkpointId = state.end === null ? (state.checkpoint?.checkpointId ?? null) : null
  // Only a merged run has ended by now, and it never had a disk.
  const host = given === undefined && state.end === null ? fleet.name : (given ?? null)
  const files = await (filesOf?.(paths) ?? storeRunFiles(paths, checkpointId, blobs, true, digests))
  return { runId, of, host, end, outline, files, lines: () => linesOf(paths) }
}

async function* linesOf({ journal, runId }: RunPaths): AsyncGenerator<ChainedLine, void> {
  for await (const { event, body } of readBodies(journal, runId))
    yield { seq: event.seq, prev: event.prev, hash: event.hash, body }
}

/** Forks share the files of their disks, which are read once. Nobody changes them while their runs are locked. */
class SharedDigests {
  readonly #known = new Map<string, Blob>()

  async of(file: string, describe: (known: Blob | undefined) => Promise<Blob>): Promise<Blob> {
    const { dev, ino, size } = await stat(file, { bigint: true })
    const key = [dev, ino, size].join(' ')
    const blob = await describe(this.#known.get(key))
    this.#known.set(key, blob)
    return blob
  }
}
