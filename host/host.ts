/** The library's front door: a host that starts runs, lists them, and brings their changes home. */
import { CaissonError, requireText, withCode } from '#specs/errors.ts'
import { ApprovalRules } from '#specs/protocol/approval.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { refuseOtherNames } from './approvals/rules.ts'
import {
  checkCallOptions,
  checkEgressRules,
  checkHostOptions,
  checkModelOptions,
  checkRunOptions,
  checkSandboxOptions,
} from './check-options.ts'
import type { Config } from './config/schema.ts'
import { RunClient } from './control/run-client.ts'
import { VmDirectory } from './control/vms.ts'
import { PersistentGrants } from './egress/persistent-grants.ts'
import { makePolicy, type Policy } from './egress/policy.ts'
import { describeMissingPrice, priceOf } from './gateway/budget.ts'
import { codeHook } from './hooks/code-hook.ts'
import type { HostOptions, HostPoolOptions } from './host-options.ts'
import { ensureImage, type Image } from './image/image.ts'
import { RunRecord } from './journal/run-record.ts'
import { newRunId, RunStore } from './journal/run-store.ts'
import { mcpServersOf } from './mcp/config.ts'
import { McpPins } from './mcp/pins.ts'
import { NoteStore } from './memory/note-store.ts'
import { contextTokensOf } from './providers/model-choice.ts'
import type { ProviderChoice } from './providers/providers.ts'
import { openRecording, recordedProvider } from './recording/open.ts'
import type { Recording } from './recording/replay.ts'
import type { RunOptions } from './run-options.ts'
import { answerApprovals, warnOfUnanswered } from './runs/approval-handler.ts'
import { RunChanges } from './runs/changes.ts'
import { findContinued } from './runs/continued-run.ts'
import { findGivenPlan, type GivenPlan, givenPlanOf, requireAgents } from './runs/given-plan.ts'
import { warmUp } from './runs/guest/warm-up.ts'
import { findHeld, type HeldPaths } from './runs/prepare.ts'
import { type ResolvedRun, vmOptions } from './runs/resolved-run.ts'
import { Run } from './runs/run.ts'
import { RunNotes } from './runs/run-notes.ts'
import { defaultKeptBounds, type KeptBounds, requireRoomForRun } from './runs/storage-bounds.ts'
import { readTaskContext } from './runs/task-context.ts'
import { type RunUndo, undoRun } from './runs/undo-run.ts'
import { Sandbox } from './sandbox/sandbox.ts'
import { openSandboxNetwork } from './sandbox/sandbox-network.ts'
import { StandaloneVm } from './sandbox/standalone-vm.ts'
import type { SandboxOptions } from './sandbox-options.ts'
import { SecretChanges, Secrets } from './secrets/secrets.ts'
import { Settings } from './settings.ts'
import { skillRoots, UserSkills } from './skills/user-skills.ts'
import { type Folders, prepareFolders, resolveFolders } from './state/folders.ts'
import { prepareHostTools } from './tools/host-tools.ts'
import { requirePossible, toolListOf } from './tools/tool-list.ts'
import { prepareTemplate } from './vm/open-vm.ts'
import { VmPool } from './vm/vm-pool.ts'
import { checkDirectory } from './workspace/index.ts'

export type { HostOptions, HostPoolOptions } from './host-options.ts'
export type { RunOptions } from './run-options.ts'
export type { SandboxOptions } from './sandbox-options.ts'

export class Host implements AsyncDisposable {
  readonly folders: Folders
  readonly runs: RunStore
  /** Running VMs of this user, of whatever process. */
  readonly vms: VmDirectory
  /** Secrets that are set or revoked while runs are under way, over those of the configuration. */
  readonly secrets = new SecretChanges()
  /** Answers about ways out that were given for always: to list and to revoke, also while runs are under way. */
  readonly grants: PersistentGrants
  /** What is remembered of workspaces, and the notes of proposals: to list, to change and to remove. */
  readonly notes: NoteStore
  /** What MCP servers said of themselves when they were allowed: to list and to remove. */
  readonly mcpPins: McpPins
  readonly #env: Readonly<Record<string, string | undefined>>
  readonly #poolOptions: HostPoolOptions | undefined
  readonly #settings: Settings
  #pool: Promise<VmPool> | undefined
  readonly #warned = new Set<string>()
  /** Sandboxes that are open or being opened. */
  readonly #sandboxes = new Set<AsyncDisposable>()
  #isClosed = false

  /** Starts nothing and reads no file. @throws {OptionsError} for an option that cannot be used */
  constructor(options: HostOptions = {}) {
    checkHostOptions(options)
    this.#poolOptions = options.pool
    const env = options.env ?? process.env
    this.folders = resolveFolders(env)
    this.#settings = new Settings({ folders: this.folders, env }, options.config)
    this.runs = new RunStore(this.folders)
    this.vms = new VmDirectory(this.folders)
    this.grants = new PersistentGrants(this.folders)
    this.notes = new NoteStore(this.folders)
    this.mcpPins = new McpPins(this.folders)
    this.#env = env
  }

  /** The configuration that a run would start with now. @throws {CaissonError} `invalid_config` */
  async config(): Promise<Config> {
    return await withCode(() => this.#settings.config())
  }

  /**
   * The provider that a run would use for this model; no key is fetched. @throws {CaissonError}
   * `invalid_config` @throws {CaissonError} `provider_unavailable`
   */
  async provider(options: Pick<RunOptions, 'model' | 'replay'> = {}): Promise<ProviderChoice> {
    return await withCode(async () => {
      checkModelOptions(options)
      return (await this.#choose(await this.config(), options)).choice
    })
  }

  async #choose(
    config: Config,
    { model, replay }: Pick<RunOptions, 'model' | 'replay'>,
  ): Promise<{ readonly choice: ProviderChoice; readonly recording?: Recording }> {
    if (replay === undefined) return { choice: await this.#settings.chooseProvider(config, model) }
    const recording = await openRecording(replay, (name) => this.runs.find(name))
    return { choice: recordedProvider(recording), recording }
  }

  /**
   * What may leave the VM of a run with these rules of its own. @throws {CaissonError} `invalid_config`
   * @throws {CaissonError} `invalid_rules` @throws {OptionsError}
   */
  async egressPolicy(rules: readonly EgressRule[] = []): Promise<Policy> {
    return await withCode(async () => policyOf(await this.config(), rules))
  }

  /** The image, built when it is not there. */
  async image(options: Pick<RunOptions, 'onProgress' | 'signal'> = {}): Promise<Image> {
    return await withCode(async () => {
      checkCallOptions(options)
      return await this.#image(options)
    }, options?.signal)
  }

  /** For callers whose options were checked; those of a run have further fields. */
  async #image({ onProgress = () => undefined, signal }: Pick<RunOptions, 'onProgress' | 'signal'>) {
    await prepareFolders(this.folders)
    return await ensureImage({
      cacheDir: this.folders.cache,
      onProgress,
      ...(signal === undefined ? {} : { signal }),
    })
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
    }, options?.signal)
  }

  /**
   * Ends the sandboxes, and the pool with all its VMs, also of runs that are still at work; there are no more
   * runs afterwards.
   */
  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#sandboxes].map((sandbox) => sandbox[Symbol.asyncDispose]()))
    const pool = await this.#pool?.catch(() => undefined)
    await pool?.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /**
   * Starts a run and returns when its journal is open; {@link Run.watch} shows its progress, {@link Run.result} its end.
   * Call it from the main thread: a VM ends with the thread that started it.
   * Without `onApproval` or `interactive` nothing answers approvals: they are denied, and a warning says what to pass.
   * @throws {OptionsError} for an option that cannot be used. @throws when folders, provider or image
   * cannot be; then there is no run
   */
  async run(options: RunOptions): Promise<Run> {
    return await withCode(async () => {
      if (this.#isClosed) throw new CaissonError('not_possible_now', 'the host is closed')
      checkRunOptions(options)
      const plan = await this.#plan(options)
      await this.#prepareTemplate(plan, options)
      await this.runs.clearScratch()
      await requireRoomForRun(this.folders.runs, keptBoundsOf(await this.config()))
      const paths = await this.runs.create(plan.runId)
      const run = new Run(plan, await RunRecord.open(paths))
      this.#attend(run, options)
      return run
    }, options?.signal)
  }

  /** Connects the run's approvals to who answers them. */
  #attend(run: Run, { onApproval, interactive, approve }: RunOptions): void {
    const warn = (text: string): void => this.#warn([text])
    if (onApproval !== undefined) void answerApprovals(run, onApproval, warn)
    else if (interactive === undefined && approve === undefined) void warnOfUnanswered(run, warn)
  }

  /**
   * A VM without a task: commands, files and ports, for as long as it is not closed. Resolves when its agent has answered.
   * Call it from the main thread: a VM ends with the thread that started it.
   * @throws {OptionsError} for an option that cannot be used. @throws {CaissonError} where the VM cannot be started
   */
  async sandbox(options: SandboxOptions = {}): Promise<Sandbox> {
    return await withCode(async () => {
      if (this.#isClosed) throw new CaissonError('not_possible_now', 'the host is closed')
      checkSandboxOptions(options)
      const { workspace, vm, egress, signal } = options
      const config = await this.config()
      const policy = policyOf(config, egress?.rules)
      const network = this.#settings.network(config)
      const directory = workspace === undefined ? {} : { directory: this.#directory(workspace) }
      const bench = await StandaloneVm.open({
        image: await this.#image(options),
        folders: this.folders,
        network: (log) => openSandboxNetwork({ policy, network, log }),
        ...directory,
        ...(vm === undefined ? {} : { vm }),
        ...(signal === undefined ? {} : { signal }),
      })
      // From here on the end of the host ends it.
      this.#sandboxes.add(bench)
      try {
        await bench.ready
        signal?.throwIfAborted()
        const sandbox: Sandbox = await Sandbox.open(this.vms.socketOf(bench.vm.id), {
          stopped: bench.stopped,
          exited: bench.vm.exited,
          [Symbol.asyncDispose]: async () => {
            this.#sandboxes.delete(sandbox)
            await bench[Symbol.asyncDispose]()
          },
        })
        if (this.#isClosed) throw new CaissonError('not_possible_now', 'the host is closed')
        this.#sandboxes.delete(bench)
        this.#sandboxes.add(sandbox)
        return sandbox
      } catch (error) {
        this.#sandboxes.delete(bench)
        await bench[Symbol.asyncDispose]()
        throw error
      }
    }, options?.signal)
  }

  /**
   * A run that another process of this user carries out, to watch, answer and cancel; null when none does.
   * @param name as in {@link RunStore.find}. @throws {CaissonError} `run_not_found`
   */
  async attach(name: string): Promise<RunClient | null> {
    const { runId, control } = await withCode(() => this.runs.find(name))
    return await RunClient.connect(runId, control).catch(() => null)
  }

  /** The changes that a run brought home, to review, apply and undo. @throws {CaissonError} `run_not_found` */
  async changes(runId: string): Promise<RunChanges> {
    return await withCode(() => RunChanges.open(runId, this.runs, this.folders))
  }

  /**
   * Takes back what a run applied; needs nothing of the run but its apply log. @throws {CaissonError}
   * `not_possible_now`, `run_busy`, `state_corrupted`, `run_not_found`
   */
  async undo(runId: string, options: { readonly signal?: AbortSignal } = {}): Promise<RunUndo> {
    return await withCode(async () => {
      checkCallOptions(options)
      return await undoRun(runId, this.runs, this.folders, options)
    }, options?.signal)
  }

  /** What a run proposed to remember, to keep or to drop. @throws {CaissonError} `run_not_found` */
  async runNotes(runId: string): Promise<RunNotes> {
    return await withCode(() => RunNotes.open(runId, this.runs, this.folders))
  }

  /**
   * What of a directory stays out of a VM because earlier runs changed its ignore rules and nobody accepted that; see
   * `acceptIgnoreRules`. @throws {CaissonError} `workspace_refused`
   */
  async heldByRules(workspace: string = process.cwd()): Promise<HeldPaths> {
    return await withCode(async () => {
      requireText('workspace', workspace)
      return await findHeld(this.folders, this.#directory(workspace))
    })
  }

  /** The user's skills, as a run would be told of them now. @throws {CaissonError} `invalid_config` */
  async skills(): Promise<UserSkills> {
    return await withCode(async () =>
      UserSkills.read(skillRoots(await this.config(), this.folders, this.#env)),
    )
  }

  /** Warns of each once, where the application is told of nothing else before the run has a journal. */
  #warn(notes: readonly string[]): void {
    for (const note of notes) {
      if (!this.#warned.has(note)) process.emitWarning(note, 'CaissonWarning')
      this.#warned.add(note)
    }
  }

  async #plan(options: RunOptions): Promise<ResolvedRun> {
    const { workspace = process.cwd(), include = [], vm = {}, mode = 'work' } = options
    const hostTools = prepareHostTools(options.hostTools ?? {})
    const tools = toolListOf(options.tools)
    const given = await this.#givenPlan(options)
    const prompt = options.prompt.trim() === '' && given !== undefined ? promptOf(given) : options.prompt
    const config = await this.config()
    const network = this.#settings.network(config)
    const { choice, recording } = await this.#choose(config, options)
    const limits = RunLimits.parse({ ...config.limits, ...options.limits })
    if (given !== undefined) requireAgents(given, limits.maxAgents)
    const vectors = await this.#settings.chooseEmbeddings(config, limits.maxCostUsd)
    const unpriced = describeMissingPrice(limits.maxCostUsd, priceOf(choice), choice.model)
    if (unpriced !== null) throw new CaissonError('invalid_config', unpriced)
    const directory = this.#directory(workspace)
    const { rules } = ApprovalRules.parse({ rules: options.approvalRules ?? [] })
    refuseOtherNames(rules, 'the approval rules')
    const continues =
      options.continue === undefined ? undefined : await findContinued(this.runs, options.continue, directory)
    // After the directory: from then on no program, such as one that prints a key, comes from it.
    const provider = await this.#settings.fetchKey(choice)
    // Of a recording nothing is asked, and so no key.
    const embeddings =
      vectors &&
      (await this.#settings.fetchKey(recording === undefined ? vectors : { ...vectors, keySource: null }))
    const { resolveKey } = this.#settings
    const mcpServers = mcpServersOf(config.mcpServers, options.mcpServers)
    if (!mcpServers.ok) throw new CaissonError('invalid_config', mcpServers.error)
    requirePossible(tools ?? [], {
      hostTools: hostTools.keys(),
      mcpServers: Object.keys(mcpServers.value),
      directory,
    })
    const contextTokens = contextTokensOf(config, provider.model)
    const egress = policyOf(config, options.egress?.rules)
    const hooks = [...(await this.#settings.hooks(config)), ...(options.hooks ?? []).map(codeHook)]
    if (options.onNotes !== undefined) options.onNotes(choice.notes)
    else if (options.onProgress === undefined) this.#warn(choice.notes)
    const plan: ResolvedRun = {
      mode,
      approvePlan: options.approvePlan ?? false,
      ...(given === undefined ? {} : { given }),
      ...(contextTokens === undefined ? {} : { contextTokens }),
      ...(continues === undefined ? {} : { continues }),
      keep: options.keepVm ?? continues !== undefined,
      runId: newRunId(),
      folders: this.folders,
      image: await this.#image(options),
      config,
      network,
      egress,
      secrets: new Secrets(config.secrets, resolveKey, this.secrets),
      resolveKey,
      ...(recording === undefined ? {} : { recording }),
      provider,
      ...(embeddings === undefined ? {} : { embeddings }),
      prompt,
      ...(await readTaskContext(config, await this.skills(), this.notes, directory, options.onProgress)),
      directory,
      include,
      acceptIgnoreRules: options.acceptIgnoreRules ?? false,
      limits,
      vm,
      approvals: {
        mode: options.approve ?? 'ask',
        rules,
        interactive: options.interactive ?? options.onApproval !== undefined,
      },
      ...(options.context === undefined ? {} : { context: options.context }),
      ...(tools === undefined ? {} : { tools }),
      hostTools,
      mcp: { servers: mcpServers.value, pins: this.mcpPins },
      hooks,
    }
    const pool = await this.#poolFor(plan, options)
    return pool === undefined ? plan : { ...plan, pool }
  }

  /** @throws {CaissonError} `invalid_plan` @throws {CaissonError} `state_unavailable` */
  async #givenPlan({ mode, plan, planFrom }: RunOptions): Promise<GivenPlan | undefined> {
    if (plan === undefined && planFrom === undefined) return undefined
    if (plan !== undefined && planFrom !== undefined)
      throw new CaissonError('invalid_plan', 'two plans are given: leave plan or planFrom out')
    if (mode === 'plan')
      throw new CaissonError(
        'invalid_plan',
        'a run makes a plan alone or carries out one that is there: leave one of the two out',
      )
    return planFrom === undefined ? givenPlanOf(plan) : await findGivenPlan(this.runs, planFrom)
  }

  async #poolFor(plan: ResolvedRun, options: RunOptions): Promise<VmPool | undefined> {
    // A run that goes on has a VM that was kept for it.
    const hasOther = plan.vm.start === 'cold' || plan.continues !== undefined
    if (this.#poolOptions === undefined || hasOther) return undefined
    const pool = await this.#openPool(this.#poolOptions, options)
    return pool.fits(vmOptions(plan, {})) ? pool : undefined
  }

  #openPool(
    { vm: { disk, start: _, ...vm } = {}, ...bounds }: HostPoolOptions,
    options: Pick<RunOptions, 'onProgress' | 'signal'>,
  ): Promise<VmPool> {
    if (this.#isClosed) throw new CaissonError('not_possible_now', 'the host is closed')
    this.#pool ??= this.#image(options).then((image) => {
      if (this.#isClosed) throw new CaissonError('not_possible_now', 'the host is closed')
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

  /** Before the run, so that somebody is told why the first one takes longer; what fails here the run itself reports. */
  async #prepareTemplate(plan: ResolvedRun, { onProgress, signal }: RunOptions): Promise<void> {
    if (plan.pool !== undefined) return
    const deps = {
      warmUp,
      ...(plan.vm.start === undefined ? {} : { start: plan.vm.start }),
      ...(onProgress === undefined ? {} : { onProgress }),
    }
    await prepareTemplate(vmOptions(plan, { ...(signal ? { signal } : {}) }), deps).catch(() => undefined)
    signal?.throwIfAborted()
  }

  /** Refused here already: a mistake needs no image and leaves no run. */
  #directory(workspace: string): string {
    const { home, cache, config } = this.folders
    const checked = checkDirectory(workspace, { ownFolders: [home, cache, config] })
    if (checked.ok) return checked.value
    throw new CaissonError('workspace_refused', checked.error.message)
  }
}

/** The task that a plan without one stands for. */
function promptOf({ plan, prompt }: GivenPlan): string {
  return prompt ?? plan.goal
}

/**
 * @throws {CaissonError} `invalid_rules` naming the rule that cannot be used; those of the configuration were
 * looked at with it
 */
function policyOf({ egress }: Config, rules: readonly EgressRule[] = []): Policy {
  const own = checkEgressRules(rules)
  const policy = makePolicy({ configuration: egress.rules, run: own, otherwise: egress.default })
  if (policy.ok) return policy.value
  throw new CaissonError('invalid_rules', policy.error)
}

function keptBoundsOf({ kept }: Config): KeptBounds {
  const { maxRuns, maxBytes } = defaultKeptBounds
  return {
    maxRuns: kept.maxRuns ?? maxRuns,
    maxBytes: kept.maxGiB === undefined ? maxBytes : kept.maxGiB * 1024 ** 3,
  }
}
