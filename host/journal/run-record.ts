/** The record of one run: its journal, the state folded from it, and the feed to its watchers, always consistent. */

import path from 'node:path'
import { errorMessage, hasCode } from '#specs/errors.ts'
import type { AgentEvent, Delta, HostDelta, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import type { WaitForDiskSpace } from '../files/disk-space.ts'
import { Recorder } from '../recording/recorder.ts'
import { Recording } from '../recording/replay.ts'
import { removeLeftStaged, removeStagedOf, type WorkspaceResult } from '../workspace/index.ts'
import type { DirectoryWait } from '../workspace/run-lock.ts'
import { Journal, type JournalOptions } from './journal.ts'
import { readWholeJournal } from './journal-summary.ts'
import { Feed } from './run-feed.ts'
import type { RunPaths } from './run-store.ts'

/** Free bytes required before a line is written again. */
const reservedBytes = 1024 * 1024

export class RunRecord {
  readonly paths: RunPaths
  readonly feed = new Feed()
  readonly #journal: Journal
  /** The fence of a run that no process carries out. */
  readonly #entered: AsyncDisposable
  /** The end of a run that could not be journaled. */
  #unrecorded: RunState | null = null
  #recorder: Recorder | null = null
  #waitForDiskSpace: ((what: string) => Promise<void>) | undefined
  #closed = false

  private constructor(paths: RunPaths, journal: Journal, entered: AsyncDisposable) {
    this.paths = paths
    this.#entered = entered
    this.#journal = journal
  }

  /** @param how `now`: the clock, ms since 1970; `fence`: where a fleet has the journal */
  static async open(paths: RunPaths, how: Pick<JournalOptions, 'now' | 'fence'> = {}): Promise<RunRecord> {
    const { runId, journal, locks } = paths
    await using undo = new AsyncDisposableStack()
    const entered = how.fence === undefined ? undo.use(await paths.enterFence?.()) : undefined
    const fence = entered === undefined ? {} : { fence: entered }
    const opened = await Journal.open({ runId, path: journal, locks, ...how, ...fence })
    return new RunRecord(paths, opened, undo.move())
  }

  /** Shows the lines of a run that another process began, and returns them to `visit`. @throws {CaissonError} */
  async visitPast(visit: (line: JournalEvent) => void, isShown: boolean): Promise<void> {
    const { journal, runId } = this.paths
    await readWholeJournal(journal, runId, (line) => {
      visit(line)
      if (isShown) this.feed.push(line)
    })
  }

  get state(): RunState {
    return this.#unrecorded ?? this.#journal.state
  }

  /** Holds a directory for the run until the result is disposed; see {@link RunLock.holdDirectory}. */
  async holdDirectory(root: string, wait: DirectoryWait = {}): Promise<WorkspaceResult<AsyncDisposable>> {
    const runs = path.dirname(this.paths.directory)
    const onKilled = ({ runId, directory }: { runId: string; directory: string }) =>
      removeStagedOf(directory, path.join(runs, runId))
    const held = await this.#journal.lock.holdDirectory(root, onKilled, wait)
    // Its overwritten lock file no longer shows others a killed apply.
    if (held.ok && this.state.unfinished !== null) removeLeftStaged(this.paths.directory)
    return held
  }

  /** Whether this process still has the run; false: another one took it over. */
  isOwn(): boolean {
    return this.#journal.isOwn()
  }

  /** `hash` of the journal's last line. */
  get head(): string {
    return this.#journal.head
  }

  /** `seq` of the journal's last line; 0: there is none. */
  get seq(): number {
    return this.#journal.seq
  }

  /** From now on journal and recording wait while the disk is full. A failed wait fails the write. */
  waitForDiskSpace(wait: WaitForDiskSpace): void {
    const { directory } = this.paths
    this.#waitForDiskSpace = (what) => wait({ what, directory, neededBytes: reservedBytes })
    this.#journal.waitForDiskSpace = () =>
      wait({ what: "the run's journal", directory, neededBytes: reservedBytes })
  }

  /** Journals an event of the host, then shows it. */
  async host(event: HostEvent): Promise<void> {
    this.feed.push(await this.#journal.append({ source: 'host', event }))
  }

  /**
   * Journals the end. If this fails, only the state has it, and its message says so.
   * @param makeRoom removes what an ended run does not need, when the disk is full
   */
  async conclude(
    event: Extract<HostEvent, { type: 'run-end' }>,
    makeRoom: () => Promise<void> = async () => undefined,
  ): Promise<void> {
    const written = this.host(event).catch(async (error: unknown) => {
      if (!hasCode(error, 'no_space')) throw error
      await makeRoom()
      await this.host(event)
    })
    await written.catch((error: unknown) => {
      const why = errorMessage(error)
      const message = `${event.message}\nthis end is not in the run's journal: ${why}`.trimStart()
      const bounded = { ...event, message: message.slice(0, limits.textMaxChars) }
      this.#unrecorded = reduceRun(this.#journal.state, { event: bounded })
    })
  }

  /** An end of this process's part only: the journal has none, and the run can be continued later. */
  leave(event: Extract<HostEvent, { type: 'run-end' }>): void {
    this.#unrecorded = reduceRun(this.#journal.state, { event })
  }

  /** Journals an event of the agent, then shows it. */
  async agent(agentPath: string, n: number, event: AgentEvent): Promise<void> {
    this.feed.push(await this.#journal.append({ source: 'agent', agentPath, n, event }))
  }

  /** Shows a delta, which is not stored. */
  delta(agentPath: string, delta: Delta | HostDelta): void {
    if (!this.#closed) this.feed.push({ source: 'delta', runId: this.paths.runId, agentPath, delta })
  }

  /** Opens the recording of exchanges with the run's model and the web; it ends with this record. */
  async openRecorder({ model, name }: { readonly model: string; readonly name: string }): Promise<Recorder> {
    const { runId, exchanges } = this.paths
    const header = { version: 1, runId, model, provider: name, at: Date.now() } as const
    const wait = this.#waitForDiskSpace
    const how = wait === undefined ? {} : { waitForDiskSpace: () => wait("the run's recording") }
    this.#recorder ??= await Recorder.open(exchanges, header, how)
    return this.#recorder
  }

  /** The recorded exchanges behind the first `from`. @throws {CaissonError} `invalid_recording` */
  async readExchanges(
    provider: { readonly model: string; readonly name: string },
    from: number,
  ): Promise<Recording> {
    // It takes an unfinished line of a killed process away.
    const recorder = await this.openRecorder(provider)
    await recorder.flush()
    return await Recording.read(this.paths.exchanges, from)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.feed.end()
    await this.#recorder?.[Symbol.asyncDispose]()
    // Every line was written when it was appended. A journal that fails to close is not marked as closed.
    await this.#journal.close().catch(() => undefined)
    await this.#entered[Symbol.asyncDispose]()
  }
}
