/**
 * The folder of runs: one directory per run with its journal, manifest, change set and logs. Lists, opens, removes.
 * Lists read summaries, never whole journals.
 */

import { randomBytes } from 'node:crypto'
import { existsSync, realpathSync, statSync } from 'node:fs'
import { mkdir, readdir, rm, rmdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, hasCode, requireText } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import {
  answersThatApply,
  initialRunState,
  type PendingApproval,
  type RunAnswer,
  reduceRun,
} from '#specs/protocol/run-state.ts'
import { RunId, Sha256 } from '#specs/protocol/text.ts'
import type { HostIndex } from '../database/host-index.ts'
import { mapBounded } from '../files/bounded-map.ts'
import { syncDirectory } from '../files/durable.ts'
import { distanceOf } from '../files/nearest-name.ts'
import { type RunImage, readRecordedImage } from '../recording/recorded-image.ts'
import { checkFolderIfThere, type Folders, isUploadedWorkspace, serviceWorkspaces } from '../state/folders.ts'
import { readAppliedCount, removeLeftStaged } from '../workspace/index.ts'
import { isRunLocked, lockedRuns, RunLock } from '../workspace/run-lock.ts'
import { copyMarker } from './fleet-mark.ts'
import { importedLinesOf, readImported } from './imported.ts'
import { type JournalPoint, journalStart, readLineAt, readTail } from './journal-lines.ts'
import {
  type JournalReading,
  readOutline,
  readWholeEvents,
  readWholeJournal,
  writeSummary,
} from './journal-summary.ts'
import { type ListedRun, RunIndex } from './run-index.ts'
import { type OpenApproval, RunFold, type RunOutline } from './run-outline.ts'
import type { EnterFence, RunPaths } from './run-paths.ts'
import {
  type ApprovalBounds,
  type CheckedRunQuery,
  checkApprovalBounds,
  compareRuns,
  matches,
  pageOf,
  type RunFilter,
  type RunPage,
  type RunQuery,
  type RunSummary,
  readRunQuery,
  statusOf,
  summaryOfShared,
} from './run-query.ts'
import type { RunSource, SharedRunQuery } from './run-source.ts'
import type { SharedRun } from './shared-run.ts'

export type { RunPaths } from './run-paths.ts'
export type { RunSummary } from './run-query.ts'

/** After this time without its first line, a process no longer starts a run. */
const startMaxMs = 10 * 60_000

/** Runs of a fleet that are looked for by a prefix; more than one are too many. */
const prefixMatches = 10
/** Runs of a fleet that one query reads. */
const sharedAtOnce = 1_000

/** An approval that a run waits for. */
export interface RunApproval {
  readonly runId: string
  /** Time of the request, ms since 1970. */
  readonly at: number
  readonly approval: PendingApproval
}

/** A new id: `run-` and 80 random bits. */
export function newRunId(): string {
  return `run-${randomBytes(10).toString('hex')}`
}

export class RunStore {
  readonly #folder: string
  readonly #locks: string
  readonly #home: string | undefined
  readonly #index: RunIndex
  readonly #source: RunSource | undefined
  readonly #enterFence: EnterFence | undefined

  /**
   * @param folders without `home` no workspace is removed with its run
   * @param index of what lists show; undefined while there is none, and lists read the summary of each run
   * @param source of runs that other hosts carry out. Absent: there are none
   * @param enterFence for lines of runs that no process carries out. Absent: their journals are on this machine alone
   */
  constructor(
    folders: Pick<Folders, 'runs' | 'locks'> & Partial<Pick<Folders, 'home'>>,
    index: () => HostIndex | undefined = () => undefined,
    source?: RunSource,
    enterFence?: EnterFence,
  ) {
    this.#source = source
    this.#enterFence = enterFence
    this.#folder = folders.runs
    this.#locks = folders.locks
    this.#home = folders.home
    this.#index = new RunIndex(index, {
      journalOf: (runId) => this.paths(runId).journal,
      outlineOf: async (runId) => await this.#outline(runId, await this.isLive(runId)),
    })
  }

  /** @throws {CaissonError} `run_not_found` unless it is the full id of a run */
  paths(runId: string): RunPaths {
    requireText('runId', runId)
    if (!RunId.safeParse(runId).success)
      throw new CaissonError(
        'run_not_found',
        `${JSON.stringify(runId)} is not a run's id: expected run- and 20 hex digits`,
      )
    const directory = path.join(this.#folder, runId)
    const file = (name: string) => path.join(directory, name)
    const enterFence = this.#enterFence
    const paths: RunPaths = {
      ...(enterFence === undefined ? {} : { enterFence: () => enterFence(paths) }),
      runId,
      directory,
      journal: file('journal.jsonl'),
      locks: this.#locks,
      agentLog: file('agent.jsonl'),
      console: file('console.txt'),
      exchanges: file('exchanges.jsonl'),
      disk: file('workspace.erofs'),
      options: file('run.json'),
      setup: file('replay.json'),
      diskFiles: file('workspace-files.json'),
      scratch: file('scratch'),
      moments: file('moments'),
      agents: file('agents'),
      hibernated: file('hibernated'),
      kept: file('kept'),
      control: file('control.sock'),
      hostLog: file('host.log'),
    }
    return paths
  }

  async create(runId: string): Promise<RunPaths> {
    const paths = this.paths(runId)
    await mkdir(paths.directory, { mode: 0o700 })
    await syncDirectory(this.#folder)
    return paths
  }

  /**
   * The run's paths by its id, a unique prefix of it (with or without `run-`), or `last`: the most recently started run
   * of a directory. @throws {CaissonError} `run_not_found`, `state_unavailable`
   * @param directory for `last`. Absent: the current directory
   */
  async find(name: string, directory = process.cwd()): Promise<RunPaths> {
    requireText('the name of the run', name)
    requireText('the directory', directory)
    if (name === 'last') return await this.#findLast(directory)
    if (RunId.safeParse(name).success && (await this.#source?.run(name)) !== undefined)
      return this.paths(name)
    const wanted = name.startsWith('run-') ? name : `run-${name}`
    const shared = (await this.#source?.idsFrom(wanted, prefixMatches)) ?? []
    const ids = [...new Set([...(await this.#ownIds()), ...shared])]
    const matches = ids.filter((id) => id.startsWith(wanted))
    if (matches.length === 1 && matches[0] !== undefined) return this.paths(matches[0])
    if (matches.length > 1)
      throw new CaissonError('run_not_found', `"${name}" matches ${matches.length} runs; use a longer ID`)
    // Two mistakes in an ID that somebody typed; of a short one too many are near.
    const near =
      wanted.length < 10 ? [] : ids.filter((id) => distanceOf(wanted, id.slice(0, wanted.length)) <= 2)
    if (near.length === 1)
      throw new CaissonError('run_not_found', `no run has the ID "${name}"; did you mean ${near[0]}?`)
    throw noRun(name)
  }

  /**
   * All events of a run. @throws {CaissonError} `state_unavailable` @throws {CaissonError} `run_not_found`
   * @throws {CaissonError} `state_corrupted`
   */
  async read(runId: string): Promise<JournalEvent[]> {
    const events: JournalEvent[] = []
    await this.visit(runId, (event) => events.push(event))
    return events
  }

  /** Like {@link read}, one event at a time, without keeping them in memory. */
  async visit(
    runId: string,
    visit: (event: JournalEvent, end: JournalPoint) => void,
  ): Promise<JournalReading> {
    await this.#check()
    const { directory, journal } = await this.#upToDate(runId)
    if (isThere(directory)) return readWholeJournal(journal, runId, visit)
    let last = journalStart
    for await (const { event, end } of this.#beginning(runId)) {
      visit(event, end)
      last = end
    }
    return { end: last, tornBytes: 0, length: 'open' }
  }

  /** Like {@link read}, as far as the caller asks: it holds some 256 KiB of the journal, and the file open. */
  async *stream(runId: string): AsyncGenerator<JournalEvent, void> {
    await this.#check()
    const { directory, journal } = await this.#upToDate(runId)
    if (!isThere(directory)) for await (const { event } of this.#beginning(runId)) yield event
    else
      for await (const { lines } of readWholeEvents(journal, runId))
        for (const { event } of lines) yield event
  }

  /** Lines of a run of a fleet that this process has taken, while its folder is made. @throws {CaissonError} `run_not_found` */
  async *#beginning(runId: string) {
    if (this.#source?.isHere(runId) !== true) throw noRun(runId)
    yield* this.#source.lines(runId)
  }

  /** The state folded from all events of a run. @throws {CaissonError} `state_unavailable`, `state_corrupted` */
  async fold(runId: string): Promise<RunFold> {
    const fold = new RunFold()
    await this.visit(runId, (event, end) => fold.next(event, end))
    return fold
  }

  /** Newest first; a damaged journal is listed with its problem. @throws {CaissonError} `state_unavailable` */
  async list(): Promise<RunSummary[]> {
    const own = await this.#summaries(await this.#index.find(await this.#ownIds(), {}))
    return await this.#withShared(own, {})
  }

  /**
   * Those of {@link list} that match. @throws {CaissonError} `state_unavailable` @throws {OptionsError} for a filter that
   * cannot be used
   */
  async select(filter: RunFilter): Promise<RunSummary[]> {
    const checked = readRunQuery({ filter })
    const { filter: wanted } = checked
    const own = await this.#summaries(await this.#index.find(await this.#ownIds(), { filter: wanted }))
    const runs = await this.#withShared(own, { filter: wanted })
    return runs.filter((run) => matches(run, wanted))
  }

  /** The {@link list} entries of these runs, in no order; those that are not there are left out. */
  async those(runIds: Iterable<string>): Promise<RunSummary[]> {
    const wanted = [...new Set(runIds)].filter((id) => RunId.safeParse(id).success)
    const found: RunSummary[] = []
    for (let at = 0; this.#source !== undefined && at < wanted.length; at += sharedAtOnce)
      found.push(...(await this.#shared({ ids: wanted.slice(at, at + sharedAtOnce) })))
    const shared = new Set(found.map(({ id }) => id))
    const own = new Set(wanted.filter((id) => !shared.has(id)))
    const ids = (await this.#ownIds()).filter((id) => own.has(id))
    return [...found, ...(await this.#summaries(await this.#index.find(ids, {})))]
  }

  /** Those of the fleet besides. @param count the newest; absent: all */
  async #withShared(
    own: readonly RunSummary[],
    query: Omit<SharedRunQuery, 'limit'>,
    count?: number,
  ): Promise<RunSummary[]> {
    const shared = await this.#shared(query, count)
    return shared.length === 0 ? [...own] : [...own, ...shared].sort(compareRuns)
  }

  /** Those that match: what a row says is known once it is read, and some match by its columns alone. */
  async #shared(
    query: Omit<SharedRunQuery, 'limit'>,
    count = Number.POSITIVE_INFINITY,
  ): Promise<RunSummary[]> {
    const found: RunSummary[] = []
    for await (const run of this.#sharedRuns(query, count)) {
      const summary = summaryOfShared(run)
      if (matches(summary, query.filter ?? {}) && found.push(summary) >= count) break
    }
    return found
  }

  async *#sharedRuns(
    query: Omit<SharedRunQuery, 'limit'>,
    count = Number.POSITIVE_INFINITY,
  ): AsyncGenerator<SharedRun, void> {
    const limit = query.filter?.status === 'damaged' ? sharedAtOnce : Math.min(count, sharedAtOnce)
    for (let { after } = query; ; ) {
      const runs = (await this.#source?.find({ ...query, ...(after && { after }), limit })) ?? []
      yield* runs
      const last = runs.at(-1)
      if (last === undefined || runs.length < limit) return
      after = { begunAt: last.begunAt, id: last.id }
    }
  }

  /** Folders of runs that are none of the fleet. */
  async #ownIds(): Promise<string[]> {
    const ids = await this.ids()
    return ids.filter((id) => this.#isOwn(id))
  }

  /** Whether the folder of this ID, if any, is none of a run of the fleet. */
  #isOwn(id: string): boolean {
    if (this.#source === undefined) return true
    return !(this.#source.isHere(id) || existsSync(path.join(this.paths(id).directory, copyMarker)))
  }

  /** The paths of a run, whose journal has what other hosts wrote. */
  async #upToDate(runId: string): Promise<RunPaths> {
    const paths = this.paths(runId)
    await this.#source?.refresh(paths)
    return paths
  }

  async #summaries(listed: readonly ListedRun[]): Promise<RunSummary[]> {
    const live = await lockedRuns(this.#locks)
    const summaries = await mapBounded(listed, ({ id, outline }) =>
      this.#summarize(id, live.has(id), outline),
    )
    return summaries.sort(compareRuns)
  }

  /**
   * A part of {@link list}. @throws {CaissonError} `state_unavailable` @throws {OptionsError} for a query that
   * cannot be used
   */
  async page(query: RunQuery = {}): Promise<RunPage> {
    const checked: CheckedRunQuery = readRunQuery(query)
    const own = await this.#summaries(await this.#index.find(await this.#ownIds(), checked))
    // One more tells whether there is another page.
    const { limit, ...shared } = checked
    return pageOf(await this.#withShared(own, shared, limit + 1), checked)
  }

  /**
   * The approvals that a run waits for, oldest first, or those of all runs, also of runs that no process carries out: see
   * `Host.answer`. Reads the summary and the lines of the requests.
   * @param bounds for those of all runs: of a fleet it reads the runs alone that it is about
   * @throws {CaissonError} `state_unavailable`, and for a named run `state_corrupted`
   */
  async pendingApprovals(runId?: string, bounds: ApprovalBounds = {}): Promise<RunApproval[]> {
    await this.#check()
    checkApprovalBounds(bounds)
    if (runId !== undefined) {
      const shared = await this.#source?.refresh(this.paths(runId))
      // Without a folder this process begins the run, and its agent asks again.
      const asks = shared?.hasEnded === false && shared.seq > 0 && isThere(this.paths(runId).directory)
      if (shared !== undefined) return asks ? await this.#pendingOf(runId) : []
    }
    if (runId !== undefined)
      return (await this.isLive(runId)) || this.#canContinue(runId) ? await this.#pendingOf(runId) : []
    const live = await lockedRuns(this.#locks)
    const isOpen = (id: string) => live.has(id) || this.#canContinue(id)
    const found = await mapBounded((await this.#ownIds()).filter(isOpen), async (id) => {
      try {
        return await this.#pendingOf(id)
      } catch (error) {
        // The list of runs names its damage.
        if (hasCode(error, 'state_corrupted')) return []
        // It is being removed.
        if (statSync(this.paths(id).journal, { throwIfNoEntry: false }) === undefined) return []
        throw error
      }
    })
    return [...found.flat(), ...(await this.#sharedApprovals(bounds))].sort((a, b) => a.at - b.at)
  }

  async #sharedApprovals({ metadata = {}, maxRuns }: ApprovalBounds): Promise<RunApproval[]> {
    const asking: SharedRun[] = []
    for await (const run of this.#sharedRuns({ filter: { metadata }, asks: true }, maxRuns))
      if (asking.push(run) === maxRuns) break
    const lines: JournalEvent[] = []
    for (let at = 0; at < asking.length; at += sharedAtOnce)
      lines.push(...((await this.#source?.requests(asking.slice(at, at + sharedAtOnce))) ?? []))
    return lines.flatMap((line) =>
      Object.values(reduceRun(initialRunState, line).pendingApprovals).map((approval) => ({
        ...{ runId: line.runId, at: line.at, approval },
      })),
    )
  }

  /**
   * What people answered for the rest of a run and what still applies, oldest first: none of a run that has ended. See
   * `Host.revokeAnswer`. @throws {CaissonError} `run_not_found`, `state_unavailable`, `state_corrupted`
   */
  async runAnswers(name: string): Promise<RunAnswer[]> {
    const { runId } = await this.find(name)
    return answersThatApply((await this.fold(runId)).state)
  }

  /**
   * An image that the model of a run looked at, which `run-start` and `tool-end` name by its digest. The run's recording
   * has it once the model is asked. @throws {CaissonError} `file_not_found` when it has none, `run_not_found`,
   * `state_unavailable`
   */
  async image(name: string, sha256: string): Promise<RunImage> {
    requireText('the digest of the image', sha256)
    const paths = await this.find(name)
    const { runId, exchanges } = paths
    await this.#source?.fetch(paths)
    const isDigest = Sha256.safeParse(sha256).success
    const image = isDigest ? await readRecordedImage(exchanges, sha256) : null
    if (image !== null) return image
    const which = isDigest ? `no image ${sha256}` : 'no such image: expected a sha256 in hexadecimal'
    throw new CaissonError('file_not_found', `the recording of ${runId} has ${which}`)
  }

  /** The ids of all runs. @throws {CaissonError} `state_unavailable` */
  async ids(): Promise<string[]> {
    await this.#check()
    const entries = await readdir(this.#folder, { withFileTypes: true }).catch(() => [])
    return entries
      .filter((entry) => !entry.isFile() && RunId.safeParse(entry.name).success)
      .map(({ name }) => name)
  }

  /** The ids of runs that a process works on now. */
  async live(): Promise<ReadonlySet<string>> {
    return await lockedRuns(this.#locks)
  }

  /** The {@link list} entry of one run. @throws {CaissonError} `state_unavailable` */
  async summary(runId: string): Promise<RunSummary> {
    await this.#check()
    const shared = await this.#source?.run(this.paths(runId).runId)
    if (shared === undefined && !this.#isOwn(runId) && this.#source?.isHere(runId) === false)
      throw noRun(runId)
    if (shared === undefined) return await this.#summarize(runId, await this.isLive(runId))
    if (this.#source?.isHere(runId) === true) {
      const own = await this.#summarize(runId, await this.isLive(runId))
      // Its first line may not be there yet.
      if (own.status !== 'damaged') return { ...own, host: shared.host }
    }
    return summaryOfShared(shared)
  }

  /** Whether there is a run of this id, here or in the fleet. @throws {CaissonError} `state_unavailable` */
  async has(runId: string): Promise<boolean> {
    if (!RunId.safeParse(runId).success) return false
    await this.#check()
    if ((await this.#source?.run(runId)) !== undefined) return true
    return (
      this.#isOwn(runId) && statSync(this.paths(runId).directory, { throwIfNoEntry: false }) !== undefined
    )
  }

  /** Fetches what the fleet has of the changes and the recording of a run. Does nothing for others. */
  async fetch(runId: string): Promise<void> {
    await this.#source?.fetch(this.paths(runId))
  }

  /**
   * Does nothing for a run that is none of a fleet. @throws {CaissonError} `not_possible_now` where another host of the fleet
   * has these files alone
   */
  async requireHere(runId: string, need: 'disk' | 'apply log'): Promise<void> {
    await this.#source?.requireHere(this.paths(runId), need)
  }

  /** Makes new runs that are made of others runs of the fleet that has those; see {@link RunSource.adopt}. */
  async adopt(runIds: readonly string[], of: readonly string[]): Promise<void> {
    await this.#source?.adopt(
      runIds.map((id) => this.paths(id)),
      of,
    )
  }

  /** Whether a process works on the run now, from its first hook to its last. */
  async isLive(runId: string): Promise<boolean> {
    return await isRunLocked(this.#locks, this.paths(runId).runId)
  }

  /**
   * Also removes files that a killed apply or undo staged in the workspace. A run of a fleet is removed on all its hosts.
   * @throws {CaissonError} `run_busy` while a process works on it; for a run of a fleet `not_possible_now` until it has
   * ended, `permission_denied`
   */
  async remove(runId: string): Promise<void> {
    const { directory } = this.paths(runId)
    await using _ = await RunLock.take(this.#locks, runId)
    // Also while the database is away.
    const isOfHost = existsSync(directory) && this.#isOwn(runId)
    if (!isOfHost) await this.#source?.remove(runId)
    const workspace = await this.#serviceWorkspaceOf(runId)
    // The log in there names them.
    removeLeftStaged(directory)
    await rm(directory, { recursive: true, force: true })
    if (workspace !== undefined) await this.#removeWorkspace(workspace)
  }

  /**
   * Whether this machine has all that is applied of a run: of a fleet, several hosts can have applied parts of it, each to its
   * own directory. @throws {CaissonError} `run_not_found`, `state_corrupted`
   */
  async appliedHere(runId: string): Promise<boolean> {
    const applied = new Set<string>()
    let isListed = true
    const fold = new RunFold()
    await this.visit(runId, (line, end) => {
      fold.next(line, end)
      const { event } = line
      if (event.type !== 'apply-end' && event.type !== 'undo-end') return
      const { paths = [] } = event
      isListed &&= paths.length === (event.type === 'apply-end' ? event.applied : event.restored)
      for (const one of paths)
        if (event.type === 'apply-end') applied.add(one)
        else applied.delete(one)
    })
    const count = isListed ? applied.size : (fold.state.applied ?? 0)
    return (readAppliedCount(this.paths(runId).directory) ?? 0) === count
  }

  /**
   * Whether a run worked on a directory. Workspaces that services of a fleet make have another place on each host.
   * @param workspace of the run @param directory real path
   */
  async workedOn(runId: string, workspace: string, directory: string): Promise<boolean> {
    if (path.resolve(workspace) === directory) return true
    const isMade = this.#home !== undefined && isServiceWorkspace(this.#home, directory)
    return isMade && (await this.#source?.refresh(this.paths(runId))) !== undefined
  }

  /** The workspace that the HTTP service made for the run. Undefined: the run has another. */
  async #serviceWorkspaceOf(runId: string): Promise<string | undefined> {
    if (this.#home === undefined) return undefined
    const summary = await this.#summarize(runId, false).catch(() => undefined)
    const workspace = summary === undefined ? '' : path.resolve(summary.workspace)
    return isServiceWorkspace(this.#home, workspace) ? workspace : undefined
  }

  /** Keeps one that another run names, and one with files, such as applied changes, unless it was uploaded. */
  async #removeWorkspace(workspace: string): Promise<void> {
    if ((await this.page({ filter: { workspace }, limit: 1 })).runs.length > 0) return
    if (isUploadedWorkspace(path.basename(workspace)))
      return await rm(workspace, { recursive: true, force: true })
    await rmdir(workspace).catch(() => undefined)
  }

  /** Removes what an ended run keeps to be forked. @throws {CaissonError} `run_busy` */
  async removeMoments(runId: string): Promise<void> {
    const { moments } = this.paths(runId)
    await using _ = await RunLock.take(this.#locks, runId)
    await rm(moments, { recursive: true, force: true })
  }

  /**
   * Removes the lock file of a killed process, and before it the files that this process staged. @throws
   * {CaissonError} `run_busy`
   */
  async removeLeftLock(runId: string): Promise<void> {
    const { directory } = this.paths(runId)
    await using _ = await RunLock.take(this.#locks, runId)
    removeLeftStaged(directory)
  }

  /** Removes what killed host processes left: disks, sockets, VMs that nobody can wake, folders of runs that never began. */
  async clearScratch(): Promise<void> {
    const scratch = (id: string) => {
      const { disk, scratch, options, control, agents, hibernated, kept } = this.paths(id)
      // Another process can continue it.
      const ofUnfinished = statSync(options, { throwIfNoEntry: false }) === undefined ? [disk, scratch] : []
      return [...ofUnfinished, control, agents, hibernated, `${hibernated}.draft`, `${kept}.draft`]
    }
    const isLeft = (file: string) => statSync(file, { throwIfNoEntry: false }) !== undefined
    for (const id of await this.ids()) {
      const never = await this.#neverBegan(id)
      // To take the lock of a run at work would wait for it a while, for each of them.
      if (!(never || scratch(id).some(isLeft)) || (await this.isLive(id))) continue
      const lock = await RunLock.take(this.#locks, id).catch((error: unknown) => {
        if (hasCode(error, 'run_busy')) return undefined
        throw error
      })
      if (lock === undefined) continue
      await using _ = lock
      if (never && (await this.#neverBegan(id))) {
        await rm(this.paths(id).directory, { recursive: true, force: true })
        continue
      }
      // Afterwards no lock file tells of them.
      removeLeftStaged(this.paths(id).directory)
      for (const file of scratch(id)) await rm(file, { recursive: true, force: true })
    }
  }

  /** Whether a process was killed while it started the run, long ago: its folder has no line and only what a start writes. */
  async #neverBegan(runId: string): Promise<boolean> {
    const { directory, journal, options, setup, hostLog } = this.paths(runId)
    if ((statSync(journal, { throwIfNoEntry: false })?.size ?? 0) > 0) return false
    const changedAt = statSync(directory, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY
    if (changedAt > Date.now() - startMaxMs) return false
    const known = new Set([journal, options, setup, hostLog])
    const names = await readdir(directory).catch(() => [''])
    return names.every((name) => known.has(path.join(directory, name)))
  }

  /** Without those that came with an archive: its agent asks again, and words them as it likes. */
  async #answerable(runId: string, open: readonly OpenApproval[]): Promise<readonly OpenApproval[]> {
    if (open.length === 0) return open
    const lines = importedLinesOf(await readImported(this.paths(runId).directory))
    return open.filter(({ seq }) => seq >= lines)
  }

  /** Whether a process can continue the run. */
  #canContinue(runId: string): boolean {
    return statSync(this.paths(runId).options, { throwIfNoEntry: false }) !== undefined
  }

  /** Whoever else could write there could have changes applied that no run made, and questions answered. */
  async #check(): Promise<void> {
    await checkFolderIfThere(this.#folder)
  }

  async #findLast(directory: string): Promise<RunPaths> {
    const wanted = realOrResolved(directory)
    const all = await this.list()
    // A run without a readable journal has no known directory.
    const last = all.find(({ workspace }) => workspace !== '' && path.resolve(workspace) === wanted)
    if (last !== undefined) return this.paths(last.id)
    const [newest] = all
    const remedy =
      newest === undefined
        ? 'start one: caisson run "TASK"'
        : `change to the directory of the run, or name the run by its ID; the newest is ${newest.id}` +
          (newest.workspace === '' ? '' : ` on ${newest.workspace}`)
    throw new CaissonError('run_not_found', `no run has worked on ${wanted} yet`, { remedy })
  }

  async #summarize(runId: string, isLive: boolean, known?: RunOutline): Promise<RunSummary> {
    const { directory, kept } = this.paths(runId)
    const keepsVm = statSync(kept, { throwIfNoEntry: false }) !== undefined
    try {
      const found = known ?? (await this.#outline(runId, isLive))
      const {
        openApprovals,
        sleepingSince: _,
        sleepsPaused: _2,
        queuedSince: _3,
        lastAt: _4,
        ...outline
      } = found
      const { state } = outline
      const answerable =
        isLive || this.#canContinue(runId) ? await this.#answerable(runId, openApprovals) : []
      const pendingApprovals = answerable.length
      // An apply or undo whose process died: only its log tells how far it came.
      const isBroken = state.unfinished !== null && !isLive
      const applied = isBroken ? readAppliedCount(directory) : state.applied
      const startedAt = outline.startedAt ?? 0
      const listed = { ...outline, startedAt, state: { ...state, applied } }
      return { id: runId, ...statusOf(found, isLive), ...listed, pendingApprovals, isLive, keepsVm }
    } catch (error) {
      // Whatever else failed, such as too many open files, says nothing about the run.
      if (!hasCode(error, 'state_corrupted')) throw error
      const found = await stat(directory).catch(() => undefined)
      const { openApprovals: _, ...outline } = new RunFold().outline
      const startedAt = Math.trunc(found?.mtimeMs ?? 0)
      const problem = error.message
      const listed = { ...outline, startedAt, pendingApprovals: 0 }
      return { id: runId, status: 'damaged', ...listed, isLive, keepsVm, problem }
    }
  }

  async #pendingOf(runId: string): Promise<RunApproval[]> {
    const { journal } = this.paths(runId)
    const { openApprovals } = await this.#outline(runId, true)
    try {
      const known = new Set(openApprovals.map(({ approvalId }) => approvalId))
      const asked = known.size === 0 ? await findRecentRequests(journal) : []
      // The run continues meanwhile: a request may be newer than the summary, which then is read as damaged and is right.
      if (asked.length > 0) throw new CaissonError('state_corrupted', 'the summary lacks an open approval')
      return await readRequests(journal, runId, await this.#answerable(runId, openApprovals))
    } catch (error) {
      // A summary that names other lines is damaged.
      if (!hasCode(error, 'state_corrupted')) throw error
      const { outline } = await this.fold(runId)
      return await readRequests(journal, runId, await this.#answerable(runId, outline.openApprovals))
    }
  }

  async #outline(runId: string, isLive: boolean): Promise<RunOutline> {
    const { directory, journal } = this.paths(runId)
    const { outline, end, isMadeAnew } = await readOutline(journal, runId)
    // The next list is quick again. A list does not depend on it; one that only reads has no right to write.
    if (isMadeAnew && !isLive)
      await writeSummary(journal, { ...end, closed: false, outline }, false).catch(() => undefined)
    const imported = await readImported(directory)
    return imported === undefined ? outline : { ...outline, workspace: imported.workspace }
  }
}

/** Ids of the requests near the end of the journal that no line after them decides. */
async function findRecentRequests(journal: string): Promise<readonly string[]> {
  const open = new Set<string>()
  for (const { event } of await readTail(journal)) {
    if (event.type === 'approval-request') open.add(event.request.approvalId)
    else if (event.type === 'approval-decision') open.delete(event.approvalId)
    else if (event.type === 'run-end') open.clear()
  }
  return [...open]
}

/** The approvals of the lines at these positions. @throws {CaissonError} `state_corrupted` when one is no request */
async function readRequests(
  journal: string,
  runId: string,
  positions: readonly OpenApproval[],
): Promise<RunApproval[]> {
  const found: RunApproval[] = []
  for (const { approvalId, ...position } of positions) {
    const line = await readLineAt(journal, runId, position)
    const approval = reduceRun(initialRunState, line).pendingApprovals[approvalId]
    if (approval === undefined)
      throw new CaissonError('state_corrupted', `journal line ${line.seq} does not ask for ${approvalId}`)
    found.push({ runId, at: line.at, approval })
  }
  return found
}

function isThere(place: string): boolean {
  return statSync(place, { throwIfNoEntry: false }) !== undefined
}

function isServiceWorkspace(home: string, directory: string): boolean {
  return path.dirname(directory) === realOrResolved(serviceWorkspaces(home))
}

function realOrResolved(directory: string): string {
  try {
    return realpathSync(directory)
  } catch {
    return path.resolve(directory)
  }
}

function noRun(name: string): CaissonError {
  return new CaissonError('run_not_found', `no run has the ID "${name}"`, {
    remedy: 'list the runs: caisson runs list',
  })
}
