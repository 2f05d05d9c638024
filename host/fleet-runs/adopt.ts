/**
 * Makes runs that this host made of others, such as forks, runs of the fleet. Their files are in the blob store before their
 * rows are there, and the rows of all of them are added in one transaction.
 */
import { rm, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { Semaphore } from '#specs/node/semaphore.ts'
import { type AdoptedRun, addAdopted, lockForks, requireRoomForForks } from '../fleet/adopted-rows.ts'
import type { Blob } from '../fleet/blob-store.ts'
import { BlobsGone, type FleetBlobs } from '../fleet/blobs.ts'
import { isConnectionLost } from '../fleet/database.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { StoredFile } from '../fleet/run-table.ts'
import { findFleetMark, markFleet, unmarkFleet } from '../journal/fleet-mark.ts'
import type { ChainedLine } from '../journal/journal.ts'
import { readBodies } from '../journal/journal-lines.ts'
import { RunFold } from '../journal/run-outline.ts'
import { type RunPaths, RunStore } from '../journal/run-store.ts'
import type { Folders } from '../state/folders.ts'
import { RunLock } from '../workspace/run-lock.ts'
import { storeRunFiles } from './files.ts'

/**
 * Of this process. The rows of one caller are added one after the other, which takes long for long journals. Those that wait for
 * that have no connection, so others on this host get one.
 */
const adding = new Semaphore(2)
/** For a database or a store that is away. */
const untilMs = 30_000
const againMs = 500
/** A folder that changed since may be one that another process has just begun with. */
const leftMs = 5 * 60_000

export interface AdoptParts {
  readonly fleet: Fleet
  readonly blobs: Pick<FleetBlobs, 'put'>
  /** Stores what another host needs of a run, and lists it. Default: all of it, from its folder. */
  readonly filesOf?: (paths: RunPaths) => Promise<readonly StoredFile[]>
  /** Name of the host that has their disks; null: none. Default: this one, for runs that have a disk. */
  readonly host?: string | null
}

/**
 * @throws {CaissonError} `queue_full`, the database's or the store's; then the fleet has none of them. `connection_lost`: it may
 * have all of them
 */
export async function adoptRuns(
  parts: AdoptParts,
  made: readonly RunPaths[],
  of: readonly string[],
): Promise<void> {
  await using held = new AsyncDisposableStack()
  for (const { locks, runId } of made) held.use(await RunLock.take(locks, runId))
  const { shown } = parts.fleet.database.address
  try {
    for (const { journal } of made) await markFleet(journal, shown, { isBeingAdopted: true })
    await addAll(parts, made, of)
  } catch (error) {
    for (const { journal } of made) await unmarkFleet(journal)
    throw error
  }
  // The fleet has them. What fails here is done by removeLeftAdoptions.
  for (const { journal } of made) await markFleet(journal, shown).catch(() => undefined)
}

async function addAll(parts: AdoptParts, made: readonly RunPaths[], of: readonly string[]): Promise<void> {
  const { fleet } = parts
  const digests = new SharedDigests()
  let isUnclear = false
  let hasRoom = false
  const requireRoom = async () => {
    if (!hasRoom) await requireRoomForForks(fleet.database, of[0] ?? '', made.length)
    hasRoom = true
  }
  for (let until: number | undefined; ; ) {
    let isWhole = false
    try {
      const runs: AdoptedRun[] = []
      for (const paths of made) runs.push(await describe(paths, of, { ...parts, requireRoom }, digests))
      // The answer of an earlier try may have been lost.
      if (await areThere(fleet, runs)) return
      await inTurn(() =>
        fleet.database.transaction(async (tx) => {
          const unended = runs.filter(({ outline }) => outline.state.end === null).length
          if (unended > 0) {
            await lockForks(tx, of[0] ?? '')
            await requireRoomForForks(tx, of[0] ?? '', unended)
          }
          for (const run of runs) await addAdopted(tx, run)
          isWhole = true
        }),
      )
      return
    } catch (error) {
      const passes = error instanceof BlobsGone || isConnectionLost(error)
      // Only the commit was left, and its answer is missing.
      isUnclear ||= isWhole && isConnectionLost(error)
      until ??= performance.now() + untilMs
      if (!passes || performance.now() > until || fleet.closing.aborted)
        throw isUnclear ? unclear(made, error) : error
    }
    await sleep(againMs, undefined, { signal: fleet.closing }).catch(() => undefined)
  }
}

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  await adding.take(new AbortController().signal)
  try {
    return await work()
  } finally {
    adding.giveBack()
  }
}

function unclear(made: readonly RunPaths[], cause: unknown): CaissonError {
  const ids = made.map(({ runId }) => runId).join(', ')
  return new CaissonError(
    'connection_lost',
    `the database of the fleet gave no answer, so these runs may have been made: ${ids}`,
    { cause, remedy: 'look for them with caisson runs list, then try again if they are not there' },
  )
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
  { fleet, blobs, filesOf, host: given, requireRoom }: AdoptParts & { requireRoom(): Promise<void> },
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
  // Before its files are stored.
  if (state.end === null) await requireRoom()
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

/**
 * Removes folders of runs that a killed process was adopting and that the fleet never got: no list shows them.
 * @param now ms since 1970
 * @returns ids of the removed ones
 * @throws {CaissonError} the database's
 */
export async function removeLeftAdoptions(
  { runs, locks }: Pick<Folders, 'runs' | 'locks'>,
  fleet: Pick<Fleet, 'runs' | 'database'>,
  now = Date.now(),
): Promise<string[]> {
  const store = new RunStore({ runs, locks })
  const { shown } = fleet.database.address
  const removed: string[] = []
  for (const runId of await store.ids()) {
    const { journal, directory } = store.paths(runId)
    const isLeft = async () => {
      const mark = await findFleetMark(journal)
      return mark?.isBeingAdopted === true && mark.fleet === shown
    }
    const changedAt = (await stat(directory).catch(() => undefined))?.mtimeMs ?? now
    if (changedAt > now - leftMs || !(await isLeft()) || (await store.isLive(runId))) continue
    const lock = await RunLock.take(locks, runId).catch((error: unknown) => {
      if (hasCode(error, 'run_busy')) return undefined
      throw error
    })
    if (lock === undefined) continue
    await using _ = lock
    if (!(await isLeft())) continue
    if ((await fleet.runs.head(runId)) !== undefined) await markFleet(journal, shown)
    else {
      await rm(directory, { recursive: true, force: true })
      removed.push(runId)
    }
  }
  return removed
}
