/** The library's front door: a host that starts runs, lists them, and brings their changes home. */
import { CaissonError, requireText, withCode } from '#specs/errors.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import {
  checkCallOptions,
  checkHostOptions,
  checkModelOptions,
  checkResumeOptions,
  checkRunOptions,
  checkSandboxOptions,
} from './check-options.ts'
import { withoutOverridden } from './config/overrides.ts'
import type { Config } from './config/schema.ts'
import { RunClient } from './control/run-client.ts'
import { VmDirectory } from './control/vms.ts'
import { watchRuns } from './control/watch-runs.ts'
import { PersistentGrants } from './egress/persistent-grants.ts'
import type { EgressPolicy } from './egress/policy.ts'
import type { HostOptions, HostPoolOptions, SandboxOptions } from './host-options.ts'
import type { Image } from './image/image.ts'
import type { FeedItem } from './journal/run-feed.ts'
import { RunRecord } from './journal/run-record.ts'
import { type RunPaths, RunStore } from './journal/run-store.ts'
import { McpPins } from './mcp/pins.ts'
import { NoteStore } from './memory/note-store.ts'
import type { ProviderChoice } from './providers/providers.ts'
import {
  chooseProvider,
  type HostState,
  prepareImage,
  readSkills,
  requireAccelerator,
  requireDirectory,
  resolveEgress,
  resolveRun,
} from './resolve-run.ts'
import type { ResumeOptions, RunOptions } from './run-options.ts'
import { RunTraces } from './run-traces.ts'
import { answerApprovals, warnOfUnanswered } from './runs/approval-handler.ts'
import { RunChanges } from './runs/changes.ts'
import { warmUp } from './runs/guest/warm-up.ts'
import { findHeld, type HeldPaths } from './runs/prepare.ts'
import {
  type BuildOptions,
  type PlannedRun,
  type RunMachine,
  requireTask,
  taskOf,
  vmOptions,
} from './runs/resolved-run.ts'
import { Run } from './runs/run.ts'
import { RunNotes } from './runs/run-notes.ts'
import { defaultKeptBounds, type KeptBounds, requireRoomForRun } from './runs/storage-bounds.ts'
import { undoRun } from './runs/undo-run.ts'
import { Sandbox } from './sandbox/sandbox.ts'
import { openSandboxNetwork } from './sandbox/sandbox-network.ts'
import { StandaloneVm } from './sandbox/standalone-vm.ts'
import { SecretChanges } from './secrets/secrets.ts'
import { Settings } from './settings.ts'
import type { UserSkills } from './skills/user-skills.ts'
import { type Folders, resolveFolders } from './state/folders.ts'
import { readStoredRun, resumedOptions, storeRun } from './stored-run.ts'
import { VmPool } from './vm/vm-pool.ts'
import type { UndoSummary } from './workspace/index.ts'

export type { HostOptions, HostPoolOptions, SandboxOptions } from './host-options.ts'
export type { ResumeOptions, RunOptions } from './run-options.ts'

export class Host implements AsyncDisposable {
  readonly folders: Folders
  readonly runs: RunStore
  /** Running VMs of this user, of whatever process. */
  readonly vms: VmDirectory
  /** Secrets that are set or revoked while runs are under way, over those of the configuration. */
  readonly secrets = new SecretChanges()
  /** Permanent answers about network access: to list and to revoke, also while runs are under way. */
  readonly grants: PersistentGrants
  /** What is remembered of workspaces, and the notes of proposals: to list, to change and to remove. */
  readonly notes: NoteStore
  /** What MCP servers said of themselves when they were allowed: to list and to remove. */
  readonly mcpPins: McpPins
  readonly #poolOptions: HostPoolOptions | undefined
  readonly #state: HostState
  #pool: Promise<VmPool> | undefined
  readonly #warned = new Set<string>()
  /** Sandboxes that are open. */
  readonly #sandboxes = new Set<AsyncDisposable>()
  readonly #traces: RunTraces
  /** Runs and sandboxes that are being started. */
  readonly #starts = new Set<Promise<unknown>>()
  readonly #closing = new AbortController()

  /** Starts nothing and reads no file. @throws {OptionsError} for an option that cannot be used */
  constructor(options: HostOptions = {}) {
    const config = checkHostOptions(options)
    this.#poolOptions = options.pool
    const { overrides = [] } = options
    const env = withoutOverridden(options.env ?? process.env, overrides)
    this.folders = resolveFolders(env)
    this.runs = new RunStore(this.folders)
    this.vms = new VmDirectory(this.folders)
    this.grants = new PersistentGrants(this.folders)
    this.notes = new NoteStore(this.folders)
    this.mcpPins = new McpPins(this.folders)
    const { folders, runs, secrets, notes, mcpPins } = this
    const settings = new Settings({ folders, env }, config, overrides)
    this.#state = { env, folders, settings, runs, secrets, notes, mcpPins }
    this.#traces = new RunTraces(env)
  }

  /** The configuration that a run would start with now. @throws {CaissonError} `invalid_config` */
  async config(): Promise<Config> {
    return await withCode(() => this.#state.settings.config())
  }

  /**
   * The provider that a run would use for this model; no key is fetched. @throws {CaissonError}
   * `invalid_config` @throws {CaissonError} `provider_unavailable`
   */
  async provider(options: Pick<RunOptions, 'model' | 'replay'> = {}): Promise<ProviderChoice> {
    return await withCode(async () => {
      checkModelOptions(options)
      return (await chooseProvider(options, await this.config(), this.#state)).choice
    })
  }

  /**
   * What may leave the VM of a run with these rules of its own. @throws {CaissonError} `invalid_config`
   * @throws {CaissonError} `invalid_rules` @throws {OptionsError}
   */
  async egressPolicy(rules: readonly EgressRule[] = []): Promise<EgressPolicy> {
    return await withCode(async () => resolveEgress(await this.config(), rules))
  }

  /** The image, built when it is not there. */
  async image(options: Pick<RunOptions, 'onProgress' | 'signal'> = {}): Promise<Image> {
    return await withCode(async () => {
      checkCallOptions(options)
      return await prepareImage(options, this.folders)
    }, options)
  }

  /**
   * Resolves once the pool's VMs are ready; does nothing without a pool. The first run begins to fill it otherwise.
   * @throws when there is no image or a VM cannot be started
   */
  async warm(options: Pick<RunOptions, 'onProgress' | 'signal'> = {}): Promise<void> {
    await withCode(async () => {
      checkCallOptions(options)
      if (this.#poolOptions === undefined) return
      const pool = await this.#openPool(this.#poolOptions, options)
      await pool.whenFull(options.signal)
    }, options)
  }

  /**
   * Aborts what is being started, ends the sandboxes, and the pool with all its VMs, also of runs that are still at
   * work; there are no more runs afterwards. Sends the traces that wait, for at most three seconds.
   */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.allSettled(this.#starts)
    await Promise.all([...this.#sandboxes].map((sandbox) => sandbox[Symbol.asyncDispose]()))
    const pool = await this.#pool?.catch(() => undefined)
    await pool?.close()
    await this.#traces.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /**
   * Starts a run and returns when its journal is open; {@link Run.watch} shows its progress, {@link Run.result} its end.
   * Call it from the main thread: a VM ends with the thread that started it.
   * Without `onApproval` and without `approvals`, approvals are denied, and a warning says what to pass.
   * @throws {OptionsError} for an option that cannot be used
   * @throws {CaissonError} when folders or provider cannot be used; then there is no run
   */
  async run(options: RunOptions): Promise<Run> {
    return await withCode(async () => {
      this.#requireOpen()
      const checked = checkRunOptions(options)
      return await this.#start(checked, (started) => this.#startRun(started))
    }, options)
  }

  /**
   * Continues a run whose host process ended before the run did, from its last checkpoint, with the same id. What the
   * application passed as functions it passes again.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `run_not_found`, `run_busy` while another process has it, `not_possible_now` when it has ended
   */
  async resume(name: string, options: ResumeOptions = {}): Promise<Run> {
    return await withCode(async () => {
      this.#requireOpen()
      const checked = checkResumeOptions(options)
      const paths = await this.runs.find(name)
      return await this.#start(checked, (started) => this.#resumeRun(paths, started))
    }, options)
  }

  async #resumeRun(paths: RunPaths, options: ResumeOptions): Promise<Run> {
    const record = await RunRecord.open(paths)
    try {
      if (record.state.end !== null)
        throw new CaissonError('not_possible_now', `${paths.runId} has ended (${record.state.end.outcome})`)
      const stored = await readStoredRun(paths)
      const given = checkRunOptions(resumedOptions(stored, options))
      const plan = { ...(await this.#plan(given)), runId: paths.runId, resumed: { task: stored.task } }
      this.#traces.observe(record.feed, plan, options, (notes) => this.#warn(notes))
      const run = new Run(plan, record)
      this.#attend(run, given)
      return run
    } catch (error) {
      await record[Symbol.asyncDispose]()
      throw error
    }
  }

  async #startRun(options: RunOptions): Promise<Run> {
    const plan = await this.#plan(options)
    requireTask(plan)
    await this.runs.clearScratch()
    await requireRoomForRun(this.folders.runs, keptBoundsOf(await this.config()))
    options.signal?.throwIfAborted()
    const paths = await this.runs.create(plan.runId)
    if (plan.vm.recoveries !== 0)
      await storeRun(
        paths,
        { ...options, workspace: plan.directory, model: plan.provider.model },
        taskOf(plan, plan.approvePlan),
      )
    const record = await RunRecord.open(paths)
    this.#traces.observe(record.feed, plan, options, (notes) => this.#warn(notes))
    const run = new Run(plan, record)
    this.#attend(run, options)
    return run
  }

  /** Starts with a signal that the end of the host aborts as well; the end waits for it. */
  async #start<O extends { readonly signal?: AbortSignal }, T>(
    options: O,
    begin: (options: O) => Promise<T>,
  ): Promise<T> {
    const signals = [this.#closing.signal, ...(options.signal === undefined ? [] : [options.signal])]
    const started = begin({ ...options, signal: AbortSignal.any(signals) })
    this.#starts.add(started)
    try {
      return await started
    } catch (error) {
      this.#requireOpen()
      throw error
    } finally {
      this.#starts.delete(started)
    }
  }

  /** Connects the run's approvals to who answers them. */
  #attend(run: Run, { onApproval, approvals: { interactive, mode } = {} }: RunOptions): void {
    const warn = (text: string): void => this.#warn([text])
    if (onApproval !== undefined) void answerApprovals(run, onApproval, warn)
    else if (interactive === undefined && mode === undefined) void warnOfUnanswered(run, warn)
  }

  /**
   * A VM without a task: commands, files and ports, for as long as it is not closed. Resolves when its agent has answered.
   * Call it from the main thread: a VM ends with the thread that started it.
   * @throws {OptionsError} for an option that cannot be used. @throws {CaissonError} where the VM cannot be started
   */
  async sandbox(options: SandboxOptions = {}): Promise<Sandbox> {
    return await withCode(async () => {
      this.#requireOpen()
      const checked = checkSandboxOptions(options)
      return await this.#start(checked, (started) => this.#startSandbox(started))
    }, options)
  }

  async #startSandbox(options: SandboxOptions): Promise<Sandbox> {
    const { workspace, vm, egress, signal } = options
    await requireAccelerator(vm ?? {}, this.folders, signal)
    const config = await this.config()
    const policy = resolveEgress(config, egress?.rules)
    const network = this.#state.settings.network(config)
    const directory = workspace === undefined ? {} : { directory: requireDirectory(workspace, this.folders) }
    const bench = await StandaloneVm.open({
      image: await prepareImage(options, this.folders),
      folders: this.folders,
      network: (log) => openSandboxNetwork({ policy, network, log }),
      ...directory,
      ...(vm === undefined ? {} : { vm }),
      ...(signal === undefined ? {} : { signal }),
    })
    const end = () => bench[Symbol.asyncDispose]()
    // A start that is aborted ends the VM at once, whatever its agent is doing.
    const onAbort = (): void => void end().catch(() => undefined)
    signal?.addEventListener('abort', onAbort, { once: true })
    try {
      await bench.ready
      signal?.throwIfAborted()
      const sandbox: Sandbox = await Sandbox.open(this.vms.socketOf(bench.vm.id), {
        stopped: bench.stopped,
        exited: bench.vm.exited,
        collect: async () => {
          await requireRoomForRun(this.folders.runs, keptBoundsOf(config))
          return await bench.collect()
        },
        [Symbol.asyncDispose]: async () => {
          this.#sandboxes.delete(sandbox)
          await end()
        },
      })
      signal?.throwIfAborted()
      this.#sandboxes.add(sandbox)
      return sandbox
    } catch (error) {
      await end()
      throw error
    } finally {
      signal?.removeEventListener('abort', onAbort)
    }
  }

  /**
   * One feed over all runs of this user, of this process and of others: the events and deltas of those at work now, from
   * their beginning, and of those that start later. It does not end by itself; leave the loop, or abort the signal.
   */
  watchRuns(options: { readonly signal?: AbortSignal } = {}): AsyncIterableIterator<FeedItem> {
    checkCallOptions(options)
    return watchRuns(this.runs, options.signal)
  }

  /**
   * A run that another process of this user carries out, to watch, answer and cancel; null when none does.
   * @param name as in {@link RunStore.find}. @throws {CaissonError} `run_not_found`
   */
  async attach(name: string): Promise<RunClient | null> {
    const { runId, control } = await withCode(() => this.runs.find(name))
    return await RunClient.connect(runId, control).catch(() => null)
  }

  /**
   * The changes that a run brought home, to review, apply and undo. @throws {CaissonError} `run_not_found`
   */
  async changes(runId: string): Promise<RunChanges> {
    return await withCode(() => RunChanges.open(runId, this.runs, this.folders))
  }

  /**
   * Undoes what a run applied; needs nothing of the run but its apply log. @throws {CaissonError}
   * `not_possible_now`, `run_busy`, `state_corrupted`, `run_not_found`
   */
  async undo(runId: string, options: { readonly signal?: AbortSignal } = {}): Promise<UndoSummary> {
    return await withCode(async () => {
      checkCallOptions(options)
      return await undoRun(runId, this.runs, this.folders, options)
    }, options)
  }

  /** What a run proposed to remember, to keep or to drop. @throws {CaissonError} `run_not_found` */
  async runNotes(runId: string): Promise<RunNotes> {
    return await withCode(() => RunNotes.open(runId, this.runs, this.folders))
  }

  /**
   * What of a directory stays out of a VM because earlier runs changed its ignore rules and nobody accepted that; see
   * `files.acceptIgnoreRules`. @throws {CaissonError} `workspace_refused`
   */
  async heldByRules(workspace: string = process.cwd()): Promise<HeldPaths> {
    return await withCode(async () => {
      requireText('workspace', workspace)
      return await findHeld(this.folders, requireDirectory(workspace, this.folders))
    })
  }

  /** The user's skills, as a run would get them now. @throws {CaissonError} `invalid_config` */
  async skills(): Promise<UserSkills> {
    return await withCode(async () => readSkills(await this.config(), this.#state))
  }

  /** Warns of each once, where the application learns of nothing else before the run has a journal. */
  #warn(notes: readonly string[]): void {
    for (const note of notes) {
      if (!this.#warned.has(note)) process.emitWarning(note, 'CaissonWarning')
      this.#warned.add(note)
    }
  }

  #requireOpen(): void {
    if (this.#closing.signal.aborted) throw new CaissonError('not_possible_now', 'the host is closed')
  }

  async #plan(options: RunOptions): Promise<PlannedRun> {
    const run = await resolveRun(options, this.#state, (notes) => this.#warn(notes))
    return { ...run, prepareMachine: (building) => this.#prepareMachine(run, building) }
  }

  /** With a pool where its VMs are of the run's kind. */
  async #prepareMachine(
    { folders, vm, continues }: Pick<PlannedRun, 'folders' | 'vm' | 'continues'>,
    { onProgress, signal }: BuildOptions,
  ): Promise<RunMachine> {
    const building = { onProgress, signal: AbortSignal.any([signal, this.#closing.signal]) }
    const image = await prepareImage(building, folders)
    this.#requireOpen()
    // A run that continues has a VM that was kept for it.
    if (this.#poolOptions === undefined || vm.start === 'cold' || continues !== undefined) return { image }
    const pool = await this.#openPool(this.#poolOptions, building)
    return pool.fits(vmOptions({ folders, vm, image }, {})) ? { image, pool } : { image }
  }

  #openPool(
    { vm: { disk, ...vm } = {}, ...bounds }: HostPoolOptions,
    options: Pick<RunOptions, 'onProgress' | 'signal'>,
  ): Promise<VmPool> {
    this.#requireOpen()
    this.#pool ??= prepareImage(options, this.folders).then((image) => {
      this.#requireOpen()
      const { onProgress } = options
      const deps = { warmUp, ...(onProgress === undefined ? {} : { onProgress }) }
      return new VmPool(
        { ...vm, image: disk ?? image, folders: this.folders, stopsWhenDiskFull: true },
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
}

function keptBoundsOf({ kept }: Config): KeptBounds {
  const { maxRuns, maxBytes } = defaultKeptBounds
  return {
    maxRuns: kept.maxRuns ?? maxRuns,
    maxBytes: kept.maxGiB === undefined ? maxBytes : kept.maxGiB * 1024 ** 3,
  }
}
