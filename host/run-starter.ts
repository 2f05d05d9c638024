/**
 * Starts runs: new ones, those that continue, replays. Has what they share: the pool of VMs, their places in the queue, traces,
 * observers. Its end aborts what is being started.
 */
import { CaissonError } from '#specs/errors.ts'
import { checkRunOptions } from './check-options.ts'
import type { RunFences } from './fleet-runs/run-fences.ts'
import type { HostPoolOptions, SandboxOptions } from './host-options.ts'
import { clearLeftStages } from './journal/archive-stages.ts'
import { type ImportedRun, importedLinesOf, readImported } from './journal/imported.ts'
import { boundMoments, keepLeftMoments } from './journal/kept-moments.ts'
import { RunRecord } from './journal/run-record.ts'
import type { RunPaths } from './journal/run-store.ts'
import { keptBoundsOf, momentBoundsOf } from './kept-bounds.ts'
import { mcpServersOf } from './mcp/config.ts'
import type { QueueEntry, RunQueue, Turn } from './queue/run-queue.ts'
import { planReplay, type ReplayOptions } from './replay-run.ts'
import { type HostState, prepareImage, resolveRun } from './resolve-run.ts'
import { RunObservers } from './run-observers.ts'
import { type ResumeOptions, type RunOptions, type RunQueueOptions, runDefaults } from './run-options.ts'
import { RunTraces } from './run-traces.ts'
import { answerApprovals, warnOfUnanswered } from './runs/approval-handler.ts'
import { warmUp } from './runs/guest/warm-up.ts'
import { placeBase } from './runs/replay/base.ts'
import { ActiveReplay, type Replay } from './runs/replay/replay.ts'
import { keepReplaySetup } from './runs/replay/setup.ts'
import {
  type BuildOptions,
  type PlannedRun,
  type RunMachine,
  requireTask,
  taskOf,
  vmOptions,
} from './runs/resolved-run.ts'
import { Run } from './runs/run.ts'
import { requireRoomForRun } from './runs/storage-bounds.ts'
import type { Sandbox } from './sandbox/sandbox.ts'
import { startSandbox } from './start-sandbox.ts'
import { readStoredRun, resumedOptions, storeRun, withinLimits, withValues } from './stored-run.ts'
import { VmPool } from './vm/vm-pool.ts'
import { endRunHolder } from './workspace/run-lock.ts'

interface RunStarterParts {
  readonly state: HostState
  /** Absent: each run starts at once. */
  readonly queue: RunQueue | undefined
  /** Opens the index of the queue. */
  readonly openIndex: () => Promise<void>
  /** Absent: each run boots its VM. */
  readonly pool: HostPoolOptions | undefined
  /** Absent: journals are on this machine alone. */
  readonly fences: RunFences | undefined
}

export class RunStarter {
  readonly observers = new RunObservers()
  readonly #state: HostState
  readonly #queue: RunQueue | undefined
  readonly #openIndex: () => Promise<void>
  readonly #poolOptions: HostPoolOptions | undefined
  readonly #fences: RunFences | undefined
  readonly #traces: RunTraces
  readonly #warned = new Set<string>()
  #pool: Promise<VmPool> | undefined
  /** Runs and sandboxes that are being started. */
  readonly #starts = new Set<Promise<unknown>>()
  /** Sandboxes that are open. */
  readonly #sandboxes = new Set<AsyncDisposable>()
  readonly #closing = new AbortController()

  constructor({ state, queue, openIndex, pool, fences }: RunStarterParts) {
    this.#state = state
    this.#queue = queue
    this.#openIndex = openIndex
    this.#poolOptions = pool
    this.#fences = fences
    this.#traces = new RunTraces(state.env)
  }

  /** Starts with a signal that the end of the host aborts as well; the end waits for it. */
  async start<O extends { readonly signal?: AbortSignal }, T>(
    options: O,
    begin: (options: O) => Promise<T>,
  ): Promise<T> {
    const signals = [this.#closing.signal, ...(options.signal === undefined ? [] : [options.signal])]
    const started = begin({ ...options, signal: AbortSignal.any(signals) })
    this.#starts.add(started)
    try {
      return await started
    } catch (error) {
      this.requireOpen()
      throw error
    } finally {
      this.#starts.delete(started)
    }
  }

  /**
   * Starts a new run.
   * @param carriesOut the workflow of the run. Absent: none @param runId absent: a new id
   */
  async run(
    options: RunOptions,
    carriesOut?: Pick<PlannedRun, 'given' | 'workflow'>,
    runId?: string,
  ): Promise<Run> {
    const { given, workflow } = carriesOut ?? {}
    const resolved = await this.#plan(options)
    const planned = runId === undefined ? resolved : { ...resolved, runId, ...this.#ofFleet(runId) }
    const plan = given === undefined || workflow === undefined ? planned : { ...planned, given, workflow }
    requireTask(plan)
    await this.#state.runs.clearScratch()
    await keepLeftMoments(this.#state.runs)
    await clearLeftStages(this.#state.folders)
    await this.#boundMoments()
    await requireRoomForRun(this.#state.folders.runs, keptBoundsOf(await this.#state.settings.config()))
    options.signal?.throwIfAborted()
    const { startWithinMs } = options.queue ?? {}
    const startBy = startWithinMs === undefined ? {} : { startBy: Date.now() + startWithinMs }
    const entry = { runId: plan.runId, isContinued: false, ...startBy }
    const turn = await this.#enterQueue(options.queue, entry, false)
    try {
      const run = await this.#beginRun(turn === undefined ? plan : { ...plan, turn }, options)
      await turn?.settled
      return run
    } catch (error) {
      turn?.leave()
      throw error
    }
  }

  /** Continues a run whose process has ended, or that sleeps. */
  async resume(paths: RunPaths, options: ResumeOptions): Promise<Run> {
    if (options.takeOver === true) await endRunHolder(paths.locks, paths.runId)
    const record = await this.#openRecord(paths)
    try {
      if (record.state.end !== null)
        throw new CaissonError('not_possible_now', `${paths.runId} has ended (${record.state.end.outcome})`)
      const read = await readStoredRun(paths)
      const imported = await readImported(paths.directory)
      if (imported !== undefined) await this.#requireSameImage(paths.runId, imported, options)
      const bound =
        imported === undefined ? read : withinLimits(read, (await this.#state.settings.config()).limits)
      const stored = withinLimits(bound, options.limits ?? {})
      const given = checkRunOptions(resumedOptions(stored, options))
      const planned = await this.#plan(given)
      // Was read for the plan.
      const configured = mcpServersOf(planned.config.mcpServers)
      const servers = { own: planned.mcp?.servers ?? {}, configured: configured.ok ? configured.value : {} }
      const task = imported === undefined ? stored.task : withValues(stored.task, imported.withheld, servers)
      // Nobody resumed it: a fleet continues what its host lost.
      const isOfFleet = this.#fences?.of(paths.runId) !== undefined
      const { fromBeginning = false, endIfCancelled = isOfFleet } = options
      const resumed = { task, fromBeginning, endIfCancelled, importedLines: importedLinesOf(imported) }
      const plan = { ...planned, runId: paths.runId, resumed, ...this.#ofFleet(paths.runId) }
      this.#traces.observe(record.feed, plan, options, (notes) => this.warn(notes))
      this.observers.follow(record, (note) => this.warn([note]))
      const { isContinued = true, startBy } = record.state.queue ?? {}
      const entry = { runId: paths.runId, isContinued, ...(startBy === undefined ? {} : { startBy }) }
      const turn = await this.#enterQueue(given.queue, entry, true)
      const run = new Run(turn === undefined ? plan : { ...plan, turn }, record)
      this.#attend(run, given)
      await turn?.settled
      return run
    } catch (error) {
      await record[Symbol.asyncDispose]()
      throw error
    }
  }

  /** Runs a run again from its recording. */
  async replay(
    from: RunPaths,
    { signal, ...options }: ReplayOptions & { readonly signal?: AbortSignal },
  ): Promise<Replay> {
    const { folders, runs } = this.#state
    const planned = await planReplay(from, options, this.#state)
    const { plan, setup, replays, journal, answers, recording } = planned
    await requireRoomForRun(folders.runs, keptBoundsOf(await this.#state.settings.config()))
    const paths = await runs.create(plan.runId)
    try {
      const { workspaceReady } = replays
      const signalOf = signal ?? this.#closing.signal
      await placeBase(from, paths, { setup, workspaceReady, folders, signal: signalOf })
      const record = await RunRecord.open(paths)
      const prepareMachine = async (building: BuildOptions) => ({
        image: await prepareImage(building, folders),
      })
      const run = new Run({ ...plan, prepareMachine }, record)
      return new ActiveReplay({ run, store: runs, replays: from.runId, journal, answers, recording })
    } catch (error) {
      await runs.remove(plan.runId)
      throw error
    }
  }

  /** @throws {CaissonError} where the VM cannot be started */
  async sandbox(options: SandboxOptions): Promise<Sandbox> {
    const sandbox = await startSandbox(options, this.#state, (ended) => this.#sandboxes.delete(ended))
    this.#sandboxes.add(sandbox)
    return sandbox
  }

  /** Resolves once the pool's VMs are ready; does nothing without a pool. */
  async warm(options: Pick<RunOptions, 'onProgress' | 'signal'>): Promise<void> {
    if (this.#poolOptions === undefined) return
    const pool = await this.#openPool(this.#poolOptions, options)
    await pool.whenFull(options.signal)
  }

  /** @throws {CaissonError} `not_possible_now` once it is closed */
  requireOpen(): void {
    if (this.#closing.signal.aborted) throw new CaissonError('not_possible_now', 'the host is closed')
  }

  /** Warns of each once, where the application learns of nothing else before the run has a journal. */
  warn(notes: readonly string[]): void {
    for (const note of notes) {
      if (!this.#warned.has(note)) process.emitWarning(note, 'CaissonWarning')
      this.#warned.add(note)
    }
  }

  /** Aborts what is being started, ends the sandboxes and the pool, and sends the traces that wait. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#queue?.close()
    await Promise.allSettled(this.#starts)
    await Promise.all([...this.#sandboxes].map((sandbox) => sandbox[Symbol.asyncDispose]()))
    const pool = await this.#pool?.catch(() => undefined)
    await pool?.close()
    await this.#traces.close()
  }

  #ofFleet(runId: string): Pick<PlannedRun, 'isOfFleet' | 'sharedKeys' | 'source'> {
    const isOfFleet = this.#fences?.of(runId) !== undefined
    const { keys, source } = this.#fences ?? {}
    return {
      isOfFleet,
      ...(isOfFleet && source !== undefined ? { source } : {}),
      ...(keys === undefined ? {} : { sharedKeys: keys }),
    }
  }

  async #openRecord(paths: RunPaths): Promise<RunRecord> {
    const fence = this.#fences?.of(paths.runId)
    return await RunRecord.open(paths, fence === undefined ? {} : { fence })
  }

  async #beginRun(plan: PlannedRun, options: RunOptions): Promise<Run> {
    const paths = await this.#state.runs.create(plan.runId)
    if (plan.vm.recoveries !== 0)
      await storeRun(
        paths,
        { ...options, workspace: plan.directory, model: plan.provider.model },
        taskOf(plan, plan.approvePlan),
      )
    await keepReplaySetup(paths, plan)
    const record = await this.#openRecord(paths)
    this.#traces.observe(record.feed, plan, options, (notes) => this.warn(notes))
    this.observers.follow(record, (note) => this.warn([note]))
    const run = new Run(plan, record)
    this.#attend(run, options)
    return run
  }

  /** A disk of another image or agent means nothing to this one. @throws {CaissonError} `version_mismatch` */
  async #requireSameImage(
    runId: string,
    { image: made }: Pick<ImportedRun, 'image'>,
    options: Pick<ResumeOptions, 'onProgress' | 'signal'>,
  ): Promise<void> {
    if (made === null) return
    const { key, agentDigest } = await prepareImage(options, this.#state.folders)
    const other =
      key !== made.key
        ? `the image ${made.key}, and here is ${key}`
        : agentDigest !== made.agentDigest
          ? `the agent ${made.agentDigest}, and here is ${agentDigest}`
          : undefined
    if (other === undefined) return
    throw new CaissonError('version_mismatch', `${runId} was made with ${other}; it cannot be continued`, {
      remedy: 'continue it with the version of Caisson that exported it',
    })
  }

  async #plan(options: RunOptions): Promise<PlannedRun> {
    const run = await resolveRun(options, this.#state, (notes) => this.warn(notes))
    return { ...run, prepareMachine: (building) => this.#prepareMachine(run, building) }
  }

  /** With a pool where its VMs are of the run's kind. */
  async #prepareMachine(
    { folders, vm, continues }: Pick<PlannedRun, 'folders' | 'vm' | 'continues'>,
    { onProgress, signal }: BuildOptions,
  ): Promise<RunMachine> {
    const building = { onProgress, signal: AbortSignal.any([signal, this.#closing.signal]) }
    const image = await prepareImage(building, folders)
    this.requireOpen()
    // A run that continues has a VM that was kept for it.
    if (this.#poolOptions === undefined || vm.start === 'cold' || continues !== undefined) return { image }
    const pool = await this.#openPool(this.#poolOptions, building)
    return pool.fits(vmOptions({ folders, vm, image }, {})) ? { image, pool } : { image }
  }

  #openPool(
    { vm: { disk, ...vm } = {}, ...bounds }: HostPoolOptions,
    options: Pick<RunOptions, 'onProgress' | 'signal'>,
  ): Promise<VmPool> {
    this.requireOpen()
    this.#pool ??= prepareImage(options, this.#state.folders).then((image) => {
      this.requireOpen()
      const { onProgress } = options
      const deps = { warmUp, ...(onProgress === undefined ? {} : { onProgress }) }
      return new VmPool(
        { ...vm, image: disk ?? image, folders: this.#state.folders, stopsWhenDiskFull: true },
        deps,
        bounds,
      )
    })
    // What failed is tried anew by whoever asks next.
    this.#pool.catch(() => {
      this.#pool = undefined
    })
    return this.#pool
  }

  /**
   * Undefined: the host has no queue.
   * @param isAccepted whether it was accepted earlier: no bound counts. @throws {CaissonError} `queue_full`
   */
  async #enterQueue(
    {
      lane = runDefaults.queue.lane,
      priority = runDefaults.queue.priority,
      laneMaxAtWork,
    }: RunQueueOptions = {},
    entry: Pick<QueueEntry, 'runId' | 'isContinued' | 'startBy'>,
    isAccepted: boolean,
  ): Promise<Turn | undefined> {
    if (this.#queue === undefined) return undefined
    await this.#openIndex()
    if (!isAccepted) this.#queue.requireRoom(lane, laneMaxAtWork)
    const bound = laneMaxAtWork === undefined ? {} : { laneMaxAtWork }
    return this.#queue.enter({ ...entry, lane, priority, ...bound })
  }

  /** Connects the run's approvals to who answers them; bounds what ended runs keep when it is one of them. */
  #attend(run: Run, { onApproval, approvals: { interactive, mode } = {} }: RunOptions): void {
    const warn = (text: string): void => this.warn([text])
    void run.ended.then(() => this.#boundMoments()).catch(() => undefined)
    if (onApproval !== undefined) void answerApprovals(run, onApproval, warn)
    else if (interactive === undefined && mode === undefined) void warnOfUnanswered(run, warn)
  }

  /** Frees the disks of ended runs beyond the bounds. */
  async #boundMoments(): Promise<void> {
    await boundMoments(this.#state.runs, momentBoundsOf(await this.#state.settings.config()), Date.now())
  }
}
