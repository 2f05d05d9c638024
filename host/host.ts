/** The library's front door: a host that starts runs, lists them, and brings their changes home. */
import { existsSync } from 'node:fs'
import path from 'node:path'
import { Readable, type Writable } from 'node:stream'
import * as z from 'zod'
import { CaissonError, hasCode, requireText, withCode } from '#specs/errors.ts'
import type { WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import { type FileContent, FileContents } from '#specs/protocol/file-contents.ts'
import { RunMetadata } from '#specs/protocol/host-event.ts'
import { WorkspacePath } from '#specs/protocol/text.ts'
import type { TraceEntry } from '#specs/service/task-resources.ts'
import { ApiKeys } from './api-keys/api-keys.ts'
import type { AnswerResult, ApprovalAnswer } from './approvals/decisions.ts'
import { packWorkspace } from './archive/pack-workspace.ts'
import {
  type UnpackedWorkspace,
  type UnpackWorkspaceOptions,
  unpackWorkspace,
} from './archive/unpack-workspace.ts'
import { type Blame, type BlameOptions, blameFile } from './blame/blame.ts'
import {
  checkCallOptions,
  checkChangeOptions,
  checkExport,
  checkHostOptions,
  checkImport,
  checkModelOptions,
  checkReplayOptions,
  checkResumeOptions,
  checkRunOptions,
  checkSandboxOptions,
  checkUnpack,
} from './check-options.ts'
import { compareRuns, type RunComparison } from './compare/compare-runs.ts'
import type { Take } from './compare/merge-runs.ts'
import { type MergedRuns, type MergeOptions, mergeRuns } from './compare/merged-run.ts'
import { openResult, resultsMaxCount } from './compare/results.ts'
import { writeResult } from './compare/score-runs.ts'
import { withoutOverridden } from './config/overrides.ts'
import type { Config } from './config/schema.ts'
import { cancelRunAt, type RunClient } from './control/run-client.ts'
import {
  type AnswerActor,
  type CancelOptions,
  type RunActor,
  type RunHandle,
  readActor,
  readAnswerActor,
  readCancel,
} from './control/run-handle.ts'
import { VmDirectory } from './control/vms.ts'
import { watchRuns } from './control/watch-runs.ts'
import { HostIndex } from './database/host-index.ts'
import { checkImage, type Finding, runDoctor } from './doctor/doctor.ts'
import { PersistentGrants } from './egress/persistent-grants.ts'
import type { EgressPolicy } from './egress/policy.ts'
import { type ExportOptions, exportRun } from './export-run.ts'
import { checkArguments, SignalOption } from './files/check-arguments.ts'
import type { RunFences } from './fleet-runs/run-fences.ts'
import {
  connectTo,
  type ForkOptions,
  forkAnyRun,
  type RewindOptions,
  readForkOptions,
  rewindAnyRun,
} from './fork-runs.ts'
import type { Forks } from './forks/fork-run.ts'
import type { Rewound } from './forks/rewind.ts'
import {
  defaultMaxAtWork,
  type HostOptions,
  type HostQueueOptions,
  type SandboxOptions,
} from './host-options.ts'
import type { Image } from './image/image.ts'
import { type ImportOptions, type ImportResult, importRun } from './import-run.ts'
import type { FeedItem } from './journal/run-feed.ts'
import { type RunPaths, RunStore } from './journal/run-store.ts'
import { type JwtOptions, type JwtVerifier, openJwtVerifiers } from './jwt/jwt.ts'
import { keptBoundsOf } from './kept-bounds.ts'
import { McpPins } from './mcp/pins.ts'
import { NoteStore } from './memory/note-store.ts'
import { type Messenger, openMessenger } from './notify/messenger.ts'
import { openSignIns } from './open-sign-ins.ts'
import type { ProviderChoice } from './providers/providers.ts'
import { type HostQueue, type QueueLimits, RunQueue } from './queue/run-queue.ts'
import type { ReplayOptions } from './replay-run.ts'
import {
  chooseProvider,
  type HostState,
  prepareImage,
  readSkills,
  requireDirectory,
  resolveEgress,
} from './resolve-run.ts'
import type { RunObserver } from './run-observers.ts'
import type { ResumeOptions, RunOptions } from './run-options.ts'
import { RunStarter } from './run-starter.ts'
import { answerAnywhere, revokeAnywhere } from './runs/answer-anywhere.ts'
import { type ChangesPlace, RunChanges } from './runs/changes.ts'
import { cancelStored } from './runs/end-stored.ts'
import { readGivenContents } from './runs/given-contents.ts'
import { findHeld, type HeldPaths, inspectPaths, type PathFate } from './runs/prepare.ts'
import type { Replay } from './runs/replay/replay.ts'
import type { Run } from './runs/run.ts'
import { RunNotes } from './runs/run-notes.ts'
import { requireRoomForRun } from './runs/storage-bounds.ts'
import { readTrace } from './runs/task-answer.ts'
import { type ChangeOptions, undoRun } from './runs/undo-run.ts'
import type { ExecOptions } from './sandbox/guest-command.ts'
import type { Sandbox } from './sandbox/sandbox.ts'
import { SecretChanges } from './secrets/secrets.ts'
import { Settings } from './settings.ts'
import type { UserSkills } from './skills/user-skills.ts'
import { readWorkflow, type WorkflowOptions } from './start-workflow.ts'
import { type Folders, prepareFolders, resolveFolders } from './state/folders.ts'
import { TemplateStore, toVmTemplate, type VmTemplate } from './vm/template/template-store.ts'
import { userStore } from './workflows/sqlite-store.ts'
import type { WorkflowStore } from './workflows/workflow-store.ts'
import type { UndoSummary } from './workspace/index.ts'

export type { HostOptions, HostPoolOptions, HostQueueOptions, SandboxOptions } from './host-options.ts'
export type { ResumeOptions, RunOptions } from './run-options.ts'
export type { WorkflowOptions } from './start-workflow.ts'

/** What a command did over the result of a run. */
export interface TestedRun {
  readonly runId: string
  /** Null where the time limit ended it. */
  readonly exitCode: number | null
  readonly timedOut: boolean
  /** Of the command alone. */
  readonly durationMs: number
  /** Text of the VM. */
  readonly stdout: string
  readonly stderr: string
}

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
  /** Published workflows; a {@link WorkspaceManager} publishes and lists. */
  readonly workflows: WorkflowStore
  /** What MCP servers said of themselves when they were allowed: to list and to remove. */
  readonly mcpPins: McpPins
  /** Keys of the HTTP service: to create, to list and to revoke, also while it runs. */
  readonly apiKeys: ApiKeys
  /** Runs that wait; null without the option `queue`. */
  readonly queue: HostQueue | null
  readonly #runQueue: RunQueue | undefined
  #index: HostIndex | undefined
  #openingIndex: Promise<void> | undefined
  readonly #state: HostState
  readonly #starter: RunStarter
  readonly #fences: RunFences | undefined

  /** Starts nothing and reads no file. @throws {OptionsError} for an option that cannot be used */
  constructor(options: HostOptions = {}) {
    const config = checkHostOptions(options)
    const { overrides = [] } = options
    const env = withoutOverridden(options.env ?? process.env, overrides)
    this.folders = resolveFolders(env)
    this.#fences = options.fences
    this.runs = new RunStore(this.folders, () => this.#index, options.fences?.source, options.fences?.enter)
    this.#runQueue = options.queue && new RunQueue(queueLimits(options.queue), () => this.#index)
    this.queue = this.#runQueue ?? null
    this.vms = new VmDirectory(this.folders)
    this.grants = new PersistentGrants(this.folders)
    this.notes = new NoteStore(this.folders, options.notes)
    this.workflows = options.workflows ?? userStore(this.folders)
    this.mcpPins = new McpPins(this.folders)
    this.apiKeys = new ApiKeys(this.folders, Date.now, options.apiKeys)
    const { folders, runs, secrets, notes, mcpPins } = this
    const settings = new Settings({ folders, env }, config, overrides)
    const signIns = openSignIns(settings, { folders, env })
    this.#state = { env, folders, settings, runs, secrets, notes, mcpPins, signIns }
    this.#starter = new RunStarter({
      state: this.#state,
      queue: this.#runQueue,
      openIndex: () => this.openIndex(),
      pool: options.pool,
      fences: options.fences,
    })
  }

  /**
   * Checks JWTs of an issuer, or of up to 16, for the HTTP service, with keys of files or addresses. @throws {OptionsError}
   * @throws {CaissonError} `invalid_options` when a file cannot be used, or an issuer is named twice
   */
  async openJwt(options: JwtOptions | readonly JwtOptions[]): Promise<JwtVerifier> {
    const { settings } = this.#state
    const dispatcher = async () => settings.network(await settings.config()).dispatcher()
    return await withCode(() => openJwtVerifiers([options].flat(), { dispatcher }))
  }

  /**
   * Sends to the webhooks of the configuration, for the HTTP service. They are as they are now, until it is opened again.
   * @throws {CaissonError} `invalid_config`, also for a webhook whose secret cannot be used
   */
  async openMessenger(): Promise<Messenger> {
    const { settings } = this.#state
    return await withCode(async () => {
      const config = await settings.config()
      const network = settings.network(config)
      return await openMessenger(config.notify, { network, resolveKey: settings.resolveKey })
    })
  }

  /** The configuration that a run would start with now. @throws {CaissonError} `invalid_config` */
  async config(): Promise<Config> {
    return await withCode(() => this.#state.settings.config())
  }

  /**
   * The provider that a run would use for this model; no key is fetched and no server asked. @throws {CaissonError}
   * `invalid_config` @throws {CaissonError} `provider_unavailable`
   */
  async provider(options: Pick<RunOptions, 'model' | 'replay'> = {}): Promise<ProviderChoice> {
    return await withCode(async () => {
      checkModelOptions(options)
      return (await chooseProvider(options, await this.config(), this.#state, false)).choice
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
      await this.#starter.warm(options)
    }, options)
  }

  /**
   * Opens the index of a host with a queue, which its first run opens otherwise; does nothing without a queue. What is wrong
   * with it and is corrected becomes a Node warning.
   * @throws {CaissonError} `state_unavailable` while another program holds it, `version_mismatch` when it is of a newer version
   */
  async openIndex(): Promise<void> {
    if (this.#runQueue === undefined) return
    this.#starter.requireOpen()
    this.#openingIndex ??= this.#openIndex()
    // What failed is tried anew by whoever asks next.
    this.#openingIndex.catch(() => {
      this.#openingIndex = undefined
    })
    await this.#openingIndex
  }

  async #openIndex(): Promise<void> {
    await withCode(async () => {
      await prepareFolders(this.folders)
      const file = path.join(this.folders.home, 'index.sqlite')
      const index = await HostIndex.open(file, (text) => this.#starter.warn([text]))
      const runIds = new Set(await this.runs.ids())
      index.queue((table) => table.keepOnly(runIds))
      this.#index = index
    })
  }

  /**
   * Aborts what is being started, lets waiting runs leave this process as they are, ends the sandboxes, and the pool with
   * all its VMs, also of runs that are still at work; there are no more runs afterwards. Sends the traces that wait, for at
   * most three seconds.
   */
  async close(): Promise<void> {
    await this.#starter.close()
    this.#index?.[Symbol.dispose]()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /**
   * Starts a run and returns when its journal is open; {@link Run.watch} shows its progress, {@link Run.result} its end.
   * Call it from the main thread: a VM ends with the thread that started it.
   * Without `onApproval` and without `approvals`, approvals are denied, and a warning says what to pass.
   * @throws {OptionsError} for an option that cannot be used
   * With a queue, resolves once the journal says whether the run waits.
   * @throws {CaissonError} when folders or provider cannot be used, `queue_full`; then there is no run
   */
  async run(options: RunOptions): Promise<Run> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      const checked = checkRunOptions(options)
      return await this.#starter.start(checked, (started) => this.#starter.run(started))
    }, options)
  }

  /**
   * Starts a run under an id that it has already, such as in a fleet: as {@link run} does otherwise.
   * @throws {CaissonError} as {@link run}; `run_busy` when this host has a run of that id
   */
  async runAs(runId: string, options: RunOptions): Promise<Run> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      const id = this.#requireUnused(runId)
      const checked = checkRunOptions(options)
      return await this.#starter.start(checked, (started) => this.#starter.run(started, undefined, id))
    }, options)
  }

  /**
   * Starts a run that carries out a workflow: the same as {@link run}, whose plan is the workflow's. Its final answer is the
   * workflow's result, as JSON where that is no text; {@link RunResult} then has it as `value`.
   * @param workflow a file, `AGENT@VERSION` of the store, or what {@link WorkspaceManager} read
   * @throws {WorkflowError} for a workflow that cannot run, or an input that does not fit @throws {OptionsError}
   * @throws {CaissonError} as {@link run}
   */
  async startWorkflow(workflow: string | URL | WorkspaceData, options: WorkflowOptions = {}): Promise<Run> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      const read = await readWorkflow(workflow, options, await this.config(), this.workflows)
      const checked = checkRunOptions(read.options)
      return await this.#starter.start(checked, (started) => this.#starter.run(started, read))
    }, options)
  }

  /** Starts a workflow under an id that its run has already, such as in a fleet: as {@link startWorkflow} does otherwise. */
  async startWorkflowAs(
    runId: string,
    workflow: string | URL | WorkspaceData,
    options: WorkflowOptions = {},
  ): Promise<Run> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      const id = this.#requireUnused(runId)
      const read = await readWorkflow(workflow, options, await this.config(), this.workflows)
      const checked = checkRunOptions(read.options)
      return await this.#starter.start(checked, (started) => this.#starter.run(started, read, id))
    }, options)
  }

  /** @throws {CaissonError} `run_busy` when this host has a run of that id */
  #requireUnused(runId: string): string {
    const { runId: id, directory } = this.runs.paths(runId)
    if (existsSync(directory)) throw new CaissonError('run_busy', `this host has a run ${id} already`)
    return id
  }

  /**
   * Checks options as {@link run} does first, and starts nothing: for a run that starts later, or elsewhere.
   * @throws {OptionsError} for an option that cannot be used
   */
  checkRun(options: RunOptions): void {
    checkRunOptions(options)
  }

  /**
   * Continues a run whose host process ended before the run did, from its last checkpoint, with the same id. What the
   * application passed as functions it passes again.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `run_not_found`, `run_busy` while another process has it, `not_possible_now` when it has ended
   */
  async resume(name: string, options: ResumeOptions = {}): Promise<Run> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      const checked = checkResumeOptions(options)
      const paths = await this.runs.find(name)
      if ((await this.#elsewhere(paths)) !== undefined)
        throw new CaissonError(
          'run_busy',
          `hosts of the fleet carry ${paths.runId} out, with an agent each`,
          {
            remedy: `have it queued for them: POST /v1/runs/${paths.runId}/resume`,
          },
        )
      return await this.#starter.start(checked, (started) => this.#starter.resume(paths, started))
    }, options)
  }

  /**
   * Runs a run again without a network, from what was recorded: answers of its model, of the web and of host tools, and
   * decisions of people. Resolves when the replay has started; its result names the first difference.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `run_not_found`, `run_busy`, `invalid_recording`; `not_possible_now` when the workspace is not as
   *   it was
   */
  async replay(name: string, options: ReplayOptions = {}): Promise<Replay> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      checkReplayOptions(options)
      const paths = await this.runs.find(name)
      await this.runs.fetch(paths.runId)
      return await this.#starter.start(options, (started) => this.#starter.replay(paths, started))
    }, options)
  }

  /**
   * Writes a run as one file, for {@link importRun} on this machine or another. Keys and secrets that this host knows are
   * not in it. Ends `to` when all of it is written.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `run_not_found`, `run_busy`; `denied` when a part that cannot be changed holds a key
   */
  async exportRun(name: string, to: Writable, options: ExportOptions = {}): Promise<void> {
    await withCode(async () => {
      checkExport(to, options)
      const paths = await this.runs.find(name)
      await this.runs.fetch(paths.runId)
      await exportRun(paths, to, this.#state, options)
    }, options)
  }

  /**
   * Makes a run of an archive, whole or not at all. What the run was permitted elsewhere is not permitted here.
   * @throws {CaissonError} `invalid_archive`, `workspace_refused`, `no_space`, `limit_reached`; `not_possible_now` when
   *   another run has its id
   */
  async importRun(from: Readable, options: ImportOptions = {}): Promise<ImportResult> {
    return await withCode(async () => {
      checkImport(from, options)
      return await importRun(from, this.#state, keptBoundsOf(await this.config()), options)
    }, options)
  }

  /**
   * Answers an approval of a run, whether or not a process carries it out. Without one the decision is journaled, and
   * {@link Host.resume} then continues the run. The first answer counts, of all processes.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `run_not_found`, `not_possible_now` when the run has ended, `run_busy`
   */
  async answer(
    name: string,
    approvalId: string,
    answer: ApprovalAnswer,
    actor?: AnswerActor,
  ): Promise<AnswerResult> {
    return await withCode(async () => {
      requireText('approvalId', approvalId)
      const who = readAnswerActor(actor)
      const paths = await this.runs.find(name)
      const elsewhere = await this.#elsewhere(paths)
      if (elsewhere !== undefined) return await elsewhere.answer(approvalId, answer, who)
      return await answerAnywhere(paths, approvalId, answer, who.by)
    })
  }

  /**
   * Revokes an answer for a run, whether or not a process carries the run out. `host.runs.runAnswers()` lists them.
   * @param name as in {@link RunStore.find}
   * @param approvalId the approval that was answered so
   * @throws {CaissonError} `run_not_found`, `run_busy`, `not_possible_now` when the run has ended or no such answer
   * applies
   */
  async revokeAnswer(name: string, approvalId: string, actor?: RunActor): Promise<void> {
    await withCode(async () => {
      requireText('approvalId', approvalId)
      const { by } = readActor(actor)
      const paths = await this.runs.find(name)
      const elsewhere = await this.#elsewhere(paths)
      if (elsewhere !== undefined) return await elsewhere.revokeAnswer(approvalId, { by })
      await revokeAnywhere(paths, approvalId, by)
    })
  }

  /**
   * Makes runs that continue another one from a moment of it, each in a folder of its own; {@link resume} starts them, in
   * VMs of their own. The other run stays as it is, also while it is at work.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `not_possible_now` when it has no such moment, or does not keep its disk
   */
  async fork(name: string, options: ForkOptions): Promise<Forks> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      const request = readForkOptions(options)
      const paths = await this.runs.find(name)
      await requireRoomForRun(this.folders.runs, keptBoundsOf(await this.config()))
      return await forkAnyRun(this.runs, paths, request, this.#fences)
    })
  }

  /**
   * Cancels a run, whether or not a process carries it out. Without one its changes are not collected.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `run_not_found`, `run_busy`, `not_possible_now` when the run has ended
   */
  async cancel(name: string, options?: CancelOptions): Promise<void> {
    await withCode(async () => {
      const { by, now } = readCancel(options)
      const paths = await this.runs.find(name)
      const elsewhere = await this.#elsewhere(paths)
      if (elsewhere !== undefined) return await elsewhere.cancel({ by, now })
      try {
        await cancelRunAt(paths.control, { by, now })
      } catch (error) {
        if (!hasCode(error, 'connection_lost')) throw error
        await cancelStored(paths, by)
      }
    })
  }

  /**
   * Makes a run that takes the place of another one from a moment of it; {@link resume} starts it. The other run is ended,
   * if it has not ended.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `not_possible_now` as {@link fork}, and when it did something outside its VM since
   */
  async rewind(name: string, options: RewindOptions): Promise<Rewound> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      const paths = await this.runs.find(name)
      await requireRoomForRun(this.folders.runs, keptBoundsOf(await this.config()))
      return await rewindAnyRun(this.runs, paths, options, this.#fences)
    })
  }

  /**
   * Makes a folder of an uncompressed tar archive that anybody can have made, such as a workspace for a run: whole, or not
   * at all. Refuses paths and links that lead out of it, all but files, directories and links, and more than 1 GiB.
   * @param to a new folder in one that exists
   * @throws {CaissonError} `invalid_archive`, `limit_reached`, `no_space`, `not_possible_now`
   */
  async unpackWorkspace(
    from: Readable,
    to: string,
    options: UnpackWorkspaceOptions = {},
  ): Promise<UnpackedWorkspace> {
    return await withCode(async () => {
      requireText('the folder', to)
      checkUnpack(from, options)
      return await unpackWorkspace(from, path.resolve(to), options)
    }, options)
  }

  /**
   * A tar archive of what a folder has, as {@link unpackWorkspace} takes it. Reading it throws `file_not_found`, and
   * `not_possible_now` for what no archive can have.
   */
  packWorkspace(directory: string): Readable {
    requireText('the folder', directory)
    return Readable.from(packWorkspace(directory))
  }

  /**
   * Compares the changes of runs that began with the same files, such as forks of one run, path by path.
   * @param names as in {@link RunStore.find}
   * @throws {CaissonError} `not_possible_now` when one brought no changes, `invalid_options` when their files differ
   */
  async compare(names: readonly string[]): Promise<RunComparison> {
    return await withCode(async () => await compareRuns(this.runs, await this.#fetchAll(names)))
  }

  /**
   * Runs a command over what went into the VM of a run, with its changes, in a VM of its own, without network access.
   * @param name as in {@link RunStore.find}
   * @throws {CaissonError} `not_possible_now` when the run brought no changes or does not keep its files
   */
  async testRun(name: string, command: string, options: ExecOptions = {}): Promise<TestedRun> {
    return await withCode(async () => {
      requireText('the command', command)
      const { runId } = await this.runs.find(name)
      await this.runs.fetch(runId)
      await using result = await writeResult(await openResult(this.runs, runId))
      const { signal } = options
      await using sandbox = await this.sandbox({
        workspace: result.directory,
        ...(signal === undefined ? {} : { signal }),
      })
      const startedAt = performance.now()
      const { exitCode, timedOut, stdout, stderr } = await sandbox.exec(command, options)
      const durationMs = Math.round(performance.now() - startedAt)
      return { runId, exitCode, timedOut, durationMs, stdout, stderr }
    })
  }

  /**
   * Merges the changes of runs that began with the same files into the changes of a new run, which are reviewed, applied
   * and undone as any run's. Where they differ and `takes` does not decide, there are conflicts and no run.
   * @param names as in {@link RunStore.find}
   * @throws {CaissonError} as {@link compare}
   */
  async merge(
    names: readonly string[],
    takes: readonly Take[] = [],
    options: MergeOptions = {},
  ): Promise<MergedRuns> {
    return await withCode(async () => {
      const { metadata } = checkArguments('the options of the call cannot be used', MergeSchema, options)
      checkArguments('the choices cannot be used', Takes, takes)
      const runIds = await this.#fetchAll(names)
      const found = await Promise.all(
        takes.map(async (take) => ({ ...take, runId: (await this.runs.find(take.runId)).runId })),
      )
      await requireRoomForRun(this.folders.runs, keptBoundsOf(await this.config()))
      return await mergeRuns(this.runs, runIds, found, metadata === undefined ? {} : { metadata })
    })
  }

  /** Their ids, once this machine has their files. */
  async #fetchAll(names: readonly string[]): Promise<string[]> {
    checkArguments('the names of the runs cannot be used', RunNames, names)
    const runIds = await Promise.all(names.map(async (name) => (await this.runs.find(name)).runId))
    for (const runId of new Set(runIds)) await this.runs.fetch(runId)
    return runIds
  }

  /**
   * A VM without a task: commands, files and ports, for as long as it is not closed. Resolves when its agent has answered.
   * Call it from the main thread: a VM ends with the thread that started it.
   * @throws {OptionsError} for an option that cannot be used. @throws {CaissonError} where the VM cannot be started
   */
  async sandbox(options: SandboxOptions = {}): Promise<Sandbox> {
    return await withCode(async () => {
      this.#starter.requireOpen()
      const checked = checkSandboxOptions(options)
      return await this.#starter.start(checked, (started) => this.#starter.sandbox(started))
    }, options)
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
   * Calls an observer with each event of the runs that this host starts or continues from now on, as it is journaled.
   * Nothing is done for it, unlike for a watcher, and an error that it throws is only warned of.
   * @returns a function that ends this
   */
  observeRuns(observer: RunObserver): () => void {
    return this.#starter.observers.add(observer)
  }

  /** The saved VMs that others begin from, most recently used first, as `caisson vm templates` shows them. */
  async templates(): Promise<readonly VmTemplate[]> {
    return (await new TemplateStore(this.folders.cache).list()).map(toVmTemplate)
  }

  /**
   * Looks at all that a VM needs on this machine, as `caisson doctor` does. Never rejects for what it finds.
   * @param options `fresh`: try accelerators again, which takes up to 15 s where one is broken. Default: false
   * @throws {OptionsError}
   */
  async doctor(options: { readonly fresh?: boolean } = {}): Promise<readonly Finding[]> {
    return await withCode(async () => {
      const { fresh } = checkArguments('the options of the call cannot be used', DoctorOptions, options)
      const { env, folders } = this.#state
      return await runDoctor({
        ...{ folders, env, fresh },
        checkImage: () => checkImage({ cacheDir: folders.cache }),
      })
    })
  }

  /**
   * A run that another process of this user carries out, to watch, answer and cancel; null when none does.
   * @param name as in {@link RunStore.find}. @throws {CaissonError} `run_not_found`
   */
  async attach(name: string): Promise<RunClient | null> {
    return await connectTo(this.runs, await withCode(() => this.runs.find(name)))
  }

  /**
   * As {@link attach}, also for a run of the fleet that another host carries out, or that waits for a host or for people.
   * @throws {CaissonError} `run_not_found`
   */
  async reach(name: string): Promise<RunHandle | null> {
    const paths = await withCode(() => this.runs.find(name))
    const elsewhere = await withCode(
      async () => await this.#fences?.elsewhere?.(paths, { orBeginning: true }),
    )
    return elsewhere === undefined ? await connectTo(this.runs, paths) : elsewhere
  }

  /** Undefined: on this machine. @throws {CaissonError} `not_possible_now` for a run of the fleet that has ended */
  async #elsewhere(paths: RunPaths): Promise<RunHandle | undefined> {
    const found = await this.#fences?.elsewhere?.(paths)
    if (found === null) throw new CaissonError('not_possible_now', `${paths.runId} has ended`)
    return found
  }

  /**
   * The changes that a run brought home, to review, apply and undo. @throws {CaissonError} `run_not_found`
   */
  async changes(runId: string): Promise<RunChanges> {
    return await withCode(async () => {
      await this.runs.fetch(runId)
      return await RunChanges.open(runId, this.runs, this.folders, await this.#placeOf(runId))
    })
  }

  /** Changes are read also where they cannot be applied. */
  async #placeOf(runId: string): Promise<ChangesPlace> {
    try {
      const directory = await this.#fences?.workspaceOf?.(runId)
      return directory === undefined ? {} : { directory }
    } catch (error) {
      if (hasCode(error, 'workspace_refused', 'file_not_found')) return { refusal: error }
      throw error
    }
  }

  /**
   * Where each line of a file that a run changed is from: the workspace, or a call with its turn, task and approval.
   * @param name as in {@link RunStore.find} @param file a path of the run's changes
   * @throws {CaissonError} `invalid_options` for a path without a change; `not_possible_now` when it has no lines to
   *   explain, more than 1 MiB or 20,000 of them, or what went into the VM was not kept
   */
  async blame(name: string, file: string, options: BlameOptions = {}): Promise<Blame> {
    return await withCode(async () => {
      requireText('the path', file)
      checkArguments('the options of the call cannot be used', BlameSchema, options)
      const { runId } = await this.runs.find(name)
      return await blameFile(this.runs, await this.changes(runId), file, options)
    }, options)
  }

  /**
   * Undoes what a run applied; needs nothing of the run but its apply log. @throws {CaissonError}
   * `not_possible_now`, `run_busy`, `state_corrupted`, `run_not_found`
   */
  async undo(runId: string, options: ChangeOptions = {}): Promise<UndoSummary> {
    return await withCode(async () => {
      checkChangeOptions(options)
      return await undoRun(runId, this.runs, this.folders, options)
    }, options)
  }

  /**
   * The tool calls of a run and its sub-agents, in the order of their starts; inputs and outputs are untrusted.
   * @param name as in {@link RunStore.find}. @throws {CaissonError} `run_not_found`
   */
  async trace(name: string): Promise<TraceEntry[]> {
    return await withCode(async () => await readTrace(this.runs, (await this.runs.find(name)).runId))
  }

  /** What a run proposed to remember, to keep or to drop. @throws {CaissonError} `run_not_found` */
  async runNotes(runId: string): Promise<RunNotes> {
    return await withCode(() => RunNotes.open(runId, this.runs, this.notes))
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

  /**
   * What becomes of paths when a directory is copied for a run: whether each goes into the VM, or why it stays out.
   * @param paths at most 256, relative to the workspace
   * @param contents as the option `files.contents`
   * @throws {CaissonError} `invalid_options`, `workspace_refused`
   */
  async inspectPaths(
    paths: readonly string[],
    options: {
      readonly workspace?: string
      readonly contents?: Readonly<Record<string, FileContent>>
    } = {},
  ): Promise<Record<string, PathFate>> {
    return await withCode(async () => {
      checkArguments('the paths cannot be inspected', InspectedPaths, { paths, options })
      const { workspace = process.cwd(), contents = {} } = options
      const root = requireDirectory(workspace, this.folders)
      return await inspectPaths(this.folders, root, paths, readGivenContents(contents, root))
    })
  }

  /** The user's skills, as a run would get them now. @throws {CaissonError} `invalid_config` */
  async skills(): Promise<UserSkills> {
    return await withCode(async () => readSkills(await this.config(), this.#state))
  }
}

function queueLimits({
  maxAtWork,
  maxWaiting = 1_000,
  maxWaitingPerLane = 200,
}: HostQueueOptions): QueueLimits {
  return { maxAtWork: maxAtWork ?? defaultMaxAtWork(), maxWaiting, maxWaitingPerLane }
}

const InspectedPaths = z.strictObject({
  paths: z.array(WorkspacePath).max(256),
  options: z.strictObject({ workspace: z.string().min(1).optional(), contents: FileContents.optional() }),
})
const DoctorOptions = z.strictObject({ fresh: z.boolean().default(false) })
const Takes = z
  .array(
    z.strictObject({
      runId: z.string().min(1),
      path: WorkspacePath,
      hunks: z.array(z.int().min(1)).min(1).max(10_000).optional(),
    }),
  )
  .max(10_000)
const BlameSchema = z.strictObject({ signal: SignalOption })
const MergeSchema = z.strictObject({ metadata: RunMetadata.optional() })
const RunNames = z.array(z.string().min(1)).min(2).max(resultsMaxCount)
