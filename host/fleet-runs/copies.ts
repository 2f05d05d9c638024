/**
 * Copies of the runs of other hosts, in the folder of runs of this one: journals that grow as they are read, and files of
 * checkpoints and ends that are fetched when they are asked for. The fleet is the truth: a copy that differs is made anew.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, open, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, hasCode } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { FleetBlobs } from '../fleet/blobs.ts'
import type { Fleet } from '../fleet/fleet.ts'
import { type ReadRow, readRows } from '../fleet/journal-rows.ts'
import { RunRows } from '../fleet/run-rows.ts'
import { removeRun } from '../fleet/upkeep.ts'
import { copyMarker, findFleetMark, markFleet } from '../journal/fleet-mark.ts'
import { type JournalPoint, journalStart, readLine } from '../journal/journal-lines.ts'
import { readOutline, summaryFile, writeSummary } from '../journal/journal-summary.ts'
import { RunFold } from '../journal/run-outline.ts'
import type { RunSource, SharedRunQuery } from '../journal/run-source.ts'
import type { RunPaths } from '../journal/run-store.ts'
import type { SharedRun } from '../journal/shared-run.ts'
import type { KeptBounds } from '../runs/storage-bounds.ts'
import type { Folders } from '../state/folders.ts'
import { isRunLocked } from '../workspace/run-lock.ts'
import { adoptRuns, removeLeftAdoptions } from './adopt.ts'
import { lockCopy, removeOldCopies } from './copy-bounds.ts'
import { fetchRunFiles } from './files.ts'

/** Which files of the fleet a copy has. */
const fetchedName = 'fetched.json'
/** Bytes of lines that are written to a copy at once. */
const writeBytes = 1024 * 1024
const boundEveryMs = 60_000

export class FleetCopies implements RunSource {
  readonly rows: RunRows
  readonly #fleet: Fleet
  readonly #blobs: Pick<FleetBlobs, 'get' | 'put'>
  readonly #isHere: (runId: string) => boolean
  #bounding:
    | { readonly folders: Pick<Folders, 'runs' | 'locks'>; readonly bounds: () => Promise<KeptBounds> }
    | undefined
  #boundNext = 0
  /** Hears of a run that this host is about to end without carrying it out, and then ends, unless another one is faster. */
  onEnding: (runId: string) => Promise<void> = async () => undefined

  /** @param isHere whether this process carries the run out */
  constructor(fleet: Fleet, blobs: Pick<FleetBlobs, 'get' | 'put'>, isHere: (runId: string) => boolean) {
    this.#fleet = fleet
    this.#blobs = blobs
    this.#isHere = isHere
    this.rows = new RunRows(fleet.database)
  }

  async run(runId: string): Promise<SharedRun | undefined> {
    return await this.rows.run(runId)
  }

  async find(query: SharedRunQuery): Promise<SharedRun[]> {
    return await this.rows.find(query)
  }

  async idsFrom(prefix: string, limit: number): Promise<string[]> {
    return await this.rows.idsFrom(prefix, limit)
  }

  isHere(runId: string): boolean {
    return this.#isHere(runId)
  }

  async *lines(runId: string): AsyncGenerator<ReadRow, void> {
    yield* readRows(this.#fleet.database, this.#fleet.runs, runId)
  }

  async requests(runs: readonly SharedRun[]): Promise<JournalEvent[]> {
    const places = runs.flatMap(({ id, outline }) =>
      outline.openApprovals.map((place) => ({ ...place, runId: id, seq: place.seq + 1 })),
    )
    const lines = await this.rows.lines(places)
    return lines.flatMap(({ runId, seq, body }) => {
      const place = places.find((one) => one.runId === runId && one.seq === seq)
      try {
        return place === undefined ? [] : [readLine(Buffer.from(body), runId, { ...place, seq: seq - 1 })]
      } catch (error) {
        // Reading the run itself names the damage.
        if (hasCode(error, 'state_corrupted')) return []
        throw error
      }
    })
  }

  async refresh(paths: RunPaths): Promise<SharedRun | undefined> {
    const run = await this.run(paths.runId)
    if (run === undefined && !this.#isHere(paths.runId) && (await findFleetMark(paths.journal)) !== undefined)
      throw new CaissonError('run_not_found', `the fleet has no run ${paths.runId}; it was removed`)
    if (run === undefined || this.#isHere(run.id)) return run
    void this.bound().catch(() => undefined)
    await this.#markUsed(paths)
    if (await isUpToDate(paths, run)) return run
    await this.#change(paths, () => this.#appendRows(paths, run))
    return run
  }

  async fetch(paths: RunPaths): Promise<SharedRun | undefined> {
    const run = await this.refresh(paths)
    if (run === undefined || this.#isHere(run.id)) return run
    const files = await this.#fleet.runs.files(run.id)
    const digest = createHash('sha256')
      .update(JSON.stringify(files ?? null))
      .digest('hex')
    const fetched = path.join(paths.directory, fetchedName)
    const isFetched = async () => (await readFile(fetched, 'utf8').catch(() => '')) === digest
    if (files === undefined || (await isFetched())) return run
    await this.#change(paths, async () => {
      if (await isFetched()) return
      await fetchRunFiles(paths, files, this.#blobs)
      await writeFile(fetched, digest, { mode: 0o600 })
    })
    return run
  }

  async remove(runId: string): Promise<void> {
    await removeRun(this.#fleet.database, runId)
  }

  async adopt(made: readonly RunPaths[], of: readonly string[]): Promise<void> {
    for (const runId of of) if ((await this.run(runId)) === undefined) return
    await adoptRuns({ fleet: this.#fleet, blobs: this.#blobs }, made, of)
  }

  async requireHere(paths: RunPaths, need: 'disk' | 'apply log'): Promise<void> {
    const { runId } = paths
    if (this.#isHere(runId) || (await this.run(runId)) === undefined) return
    const { carriedBy, enteredBy } = await this.#fleet.runs.places(runId)
    if (need === 'disk') {
      if (carriedBy === null) throw new CaissonError('not_possible_now', `${runId} has not begun on any host`)
      // One that kept no disk says so itself.
      if (carriedBy === this.#fleet.name) return
      throw elsewhere(carriedBy, `only the host ${carriedBy} of the fleet has the disk of ${runId}`)
    }
    const applier = enteredBy ?? carriedBy ?? 'unknown'
    throw elsewhere(applier, `the changes of ${runId} were applied on the host ${applier} of the fleet`)
  }

  /** From now on {@link bound} removes copies beyond the bounds. */
  boundBy(folders: Pick<Folders, 'runs' | 'locks'>, bounds: () => Promise<KeptBounds>): void {
    this.#bounding = { folders, bounds }
  }

  /**
   * Removes what killed processes left of new runs, and what the bounds have no room for, oldest use first. At most once a
   * minute.
   */
  async bound(): Promise<void> {
    if (this.#bounding === undefined || performance.now() < this.#boundNext) return
    this.#boundNext = performance.now() + boundEveryMs
    const { folders, bounds } = this.#bounding
    // Nothing depends on it. What fails, as while the database is away, is done another time.
    await removeLeftAdoptions(folders, this.#fleet).catch(() => undefined)
    await removeOldCopies(folders, await bounds(), this)
  }

  /** So that copies that are read stay. */
  async #markUsed({ directory }: RunPaths): Promise<void> {
    const now = new Date()
    await utimes(path.join(directory, copyMarker), now, now).catch(() => undefined)
  }

  /** Never while this host carries the run out, in whatever process. */
  async #change(paths: RunPaths, work: () => Promise<void>): Promise<void> {
    await using _ = await lockCopy(paths)
    if (this.#isHere(paths.runId) || (await isRunLocked(paths.locks, paths.runId))) return
    await mkdir(paths.directory, { recursive: true, mode: 0o700 })
    await markFleet(paths.journal, this.#fleet.database.address.shown)
    await work()
  }

  async #appendRows(paths: RunPaths, { id }: SharedRun): Promise<void> {
    const { database, runs: table } = this.#fleet
    let { fold, end } = await this.#usable(paths)
    const rows = readRows(database, table, id, end)
    await using journal = await open(paths.journal, 'a', 0o600)
    await journal.truncate(end.bytes)
    let collected: string[] = []
    let bytes = 0
    const write = async (): Promise<void> => {
      if (collected.length > 0) await journal.appendFile(collected.join(''))
      collected = []
      bytes = 0
    }
    try {
      for await (const { event, body, end: next } of rows) {
        collected.push(`${body}\n`)
        bytes += body.length
        fold.next(event, next)
        end = next
        if (bytes >= writeBytes) await write()
      }
    } finally {
      await write()
      await writeSummary(paths.journal, { ...end, closed: false, outline: fold.outline }, false)
    }
  }

  /** The end of the copy; its beginning where it is none of what the fleet has. */
  async #usable(paths: RunPaths): Promise<{ fold: RunFold; end: JournalPoint }> {
    const { journal, runId, directory } = paths
    if (existsSync(journal)) {
      const found = await readOutline(journal, runId).catch(() => undefined)
      if (found !== undefined && (await this.#has(runId, found.end)))
        return { fold: RunFold.from(found.outline, found.end), end: found.end }
    }
    // Also what this host left of its own part of it, after the lines that the fleet has.
    for (const file of [journal, summaryFile(journal), path.join(directory, fetchedName)])
      await rm(file, { force: true })
    return { fold: new RunFold(), end: journalStart }
  }

  async #has(runId: string, { seq, hash }: JournalPoint): Promise<boolean> {
    return seq === 0 || (await this.rows.hashOf(runId, seq)) === hash
  }
}

function elsewhere(host: string, message: string): CaissonError {
  return new CaissonError('not_possible_now', message, {
    remedy: `send the request to the service of ${host}; the hosts: caisson fleet hosts`,
  })
}

async function isUpToDate({ journal, runId }: RunPaths, { seq, hash }: SharedRun): Promise<boolean> {
  if (!existsSync(journal)) return false
  const found = await readOutline(journal, runId).catch(() => undefined)
  if (found === undefined || found.end.seq !== seq || found.end.hash !== hash) return false
  return (await stat(journal)).size === found.end.bytes
}
