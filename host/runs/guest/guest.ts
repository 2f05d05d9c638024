/**
 * The guest of one run on the host's side: the VM, the link to its agent, the gateway and the change-set stream. Turns
 * everything the guest does into journal events, answers and failures with a reason.
 */

import { writeFile } from 'node:fs/promises'
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import {
  type RequestMethod,
  taskCancel,
  taskCancelAgent,
  taskCheckpoint,
  taskHold,
  taskPause,
  taskSteer,
  workspaceLook,
  workspaceOpen,
  workspaceReset,
} from '#specs/protocol/methods.ts'
import type { ParamsInput, ResultOf, RpcFailure } from '#specs/protocol/peer.ts'
import type { Completion, Task } from '#specs/protocol/task.ts'
import { GuestAccess } from '../../control/guest-access.ts'
import type { VmInfo } from '../../control/messages.ts'
import { serveVm } from '../../control/serve-vm.ts'
import type { ControlServer } from '../../control/server.ts'
import type { VmService } from '../../control/services.ts'
import { type AgentLink, type LinkEnd, openAgentLink, type SessionInfo } from '../../guest/agent-link.ts'
import { BoundedLog } from '../../journal/bounded-log.ts'
import type { Recorder } from '../../recording/recorder.ts'
import { pauseVm, unpauseVm } from '../../vm/hibernation/pause.ts'
import { GuestUnresponsiveError, openVm, type StartedVm } from '../../vm/open-vm.ts'
import type { VmExit } from '../../vm/vm.ts'
import type { ChangeSet } from '../../workspace/change-set.ts'
import type { WorkspaceResult } from '../../workspace/index.ts'
import { DiskGuard, type DiskSpaceWait } from '../disk-space-wait.ts'
import { type PreparedWorkspace, requireValue, tellBuild } from '../prepare.ts'
import { type ResolvedRun, vmOptions } from '../resolved-run.ts'
import type { AgentMessage, ControlledAgent } from './agent-control.ts'
import { AgentVms } from './agent-vms.ts'
import { ChangeStream, collectFrom } from './change-stream.ts'
import { describeVmExit, failureOfAnswer, failureOfLink, WorkEnds } from './guest-end.ts'
import type { GuestClaims, GuestParts, GuestRecord, SubAgentParts } from './guest-parts.ts'
import { describeReady, GuestVm } from './guest-vm.ts'
import { isAtWork } from './idle-hibernation.ts'
import { LiveChanges } from './live-changes.ts'
import { RunCheckpoints } from './run-checkpoints.ts'
import { openRunGateway, type RunGateway } from './run-gateway.ts'
import { agentHandlers } from './run-requests.ts'
import { VmUse } from './vm-use.ts'
import { warmUp } from './warm-up.ts'

/** Time for the agent to answer in its first session, after init is ready. */
const sessionTimeoutMs = 60_000
/** The same for a copy of a template, whose agent is already waiting. */
const cloneSessionTimeoutMs = 20_000
/** Time for requests that should take a second: set the clock, mount, accept the task. */
const requestTimeoutMs = 60_000
/** After the link ended: time for the VM to report why. */
const lastWordMs = 2_000

/** Requests of the user's other processes over the control socket. */
type VmRequests = Pick<VmService, 'stop' | 'setPaused'>

export class Guest implements AsyncDisposable, ControlledAgent {
  readonly #plan: ResolvedRun
  readonly #record: GuestRecord
  readonly #vm: GuestVm
  readonly #link: AgentLink
  readonly #outside: RunGateway
  readonly #log: BoundedLog
  readonly #ends = new WorkEnds()
  readonly #changes: ChangeStream
  #session: SessionInfo | null = null
  readonly #access: GuestAccess
  readonly #workspaceOpen = Promise.withResolvers<void>()
  #control: ControlServer | null = null
  #closing = false
  #isPaused = false
  readonly #diskSpace: DiskSpaceWait
  readonly #disk: DiskGuard
  #rest: 'none' | 'saving' | 'hibernated' = 'none'
  #requests: VmRequests | null = null
  readonly #use: VmUse
  readonly #live: LiveChanges
  readonly #checkpoints: RunCheckpoints
  /** Undefined in the VM of a sub-agent, which has none below it. */
  readonly #agents: AgentVms | undefined
  readonly #subAgent: SubAgentParts | undefined
  #isTaskPaused = false

  private constructor(
    plan: ResolvedRun,
    parts: GuestParts,
    workspace: PreparedWorkspace,
    { vm, origin }: StartedVm,
    { log, recorder }: { readonly log: BoundedLog; readonly recorder: Recorder },
  ) {
    const { record, claims, diskSpace } = parts
    this.#plan = plan
    this.#record = record
    this.#diskSpace = diskSpace
    this.#vm = new GuestVm(vm, record.paths.disk, {
      onExit: (exit) => this.#onVmExit(exit),
      onDiskFull: () => void this.#disk.onFull(this.#vm.current),
    })
    this.#disk = new DiskGuard({
      diskSpace,
      isPaused: () => this.#isPaused,
      onFrozen: (frozen) => this.#link.setFrozen(frozen),
      onLost: (cause) => this.#ends.lose(cause),
    })
    this.#log = log
    this.#changes = new ChangeStream(plan.runId)
    const note = (event: HostEvent) => this.#note(event)
    this.#outside = openRunGateway(plan, { ...parts, log, recorder, note })
    this.#checkpoints = new RunCheckpoints(() => this.#vm.current, { ...parts, recorder, log })
    this.#subAgent = parts.subAgent
    if (parts.subAgent === undefined) this.#agents = this.#openAgents(parts, workspace)
    this.#access = new GuestAccess({
      link: () => this.#link,
      ready: () => this.#workspaceOpen.promise,
      onAccess: (access) => this.#noteSoon({ type: 'vm-access', ...access }),
    })
    this.#link = this.#openLink(origin.from === 'template', claims)
    this.#use = new VmUse(record, () => (this.#rest === 'none' ? this.#vm.current : undefined))
    this.#live = new LiveChanges(record, () =>
      this.isReachable ? this.#link.request(workspaceLook, {}, { timeoutMs: requestTimeoutMs }) : undefined,
    )
    void this.#link.closed.then((end) => this.#onLinkEnd(end))
  }

  /**
   * Starts the VM, waits for its agent and opens the workspace.
   * @param requests requests of other processes to the VM, and through it to the run
   */
  static async start(
    plan: ResolvedRun,
    parts: GuestParts,
    workspace: PreparedWorkspace,
    signal: AbortSignal,
    requests: VmRequests,
  ): Promise<Guest> {
    const { record } = parts
    await using undo = new AsyncDisposableStack()
    const log = undo.use(await BoundedLog.open(record.paths.agentLog, limits.runMaxLogBytes))
    const recorder = await record.openRecorder(plan.provider)
    const { checkpointDisk } = parts
    const layers = checkpointDisk === undefined ? {} : { checkpointDisk }
    const options = vmOptions(plan, { workspaceDisk: workspace.disk, signal, ...layers })
    const {
      continues,
      vm: { start = 'auto' },
    } = plan
    const sources = {
      warmUp,
      onProgress: tellBuild('template', plan, record),
      start,
      // An agent that continues a run needs its disk, and no VM of another.
      ...(parts.earlier !== undefined || continues === undefined
        ? {}
        : { saved: { runId: continues.runId, directory: continues.kept } }),
      ...(parts.earlier !== undefined || workspace.vm === undefined ? {} : { pooled: workspace.vm }),
    }
    const guest = await openVm(options, sources, async (started) => {
      const opened = new Guest(plan, parts, workspace, started, { log, recorder })
      try {
        await opened.#greet(started, signal)
        return opened
      } catch (error) {
        await opened.#leave()
        throw error
      }
    })
    undo.move()
    try {
      guest.#requests = requests
      await guest.#serveControl()
      const how = plan.mode === 'plan' ? { readOnly: true } : {}
      await guest.#ask('opening the workspace', workspaceOpen, how, signal)
      guest.#workspaceOpen.resolve()
      return guest
    } catch (error) {
      await guest[Symbol.asyncDispose]()
      throw error
    }
  }

  /**
   * Submits the task and waits for its completion.
   * @throws {CaissonError} when the agent or the VM is lost, or an event is invalid
   */
  async perform(task: Task, onAccepted: () => void): Promise<Completion> {
    const accepted = await this.#ends.orLost(this.#link.submitTask(task, { timeoutMs: requestTimeoutMs }))
    if (!accepted.ok) return await this.#fail('handing over the task', accepted.error)
    onAccepted()
    return await this.#ends.completion()
  }

  /** Asks the agent to cancel. Resolves when the agent has answered, or `signal` aborts. */
  async cancel(reason: string, signal: AbortSignal): Promise<void> {
    await this.#link.request(taskCancel, { runId: this.#plan.runId, reason }, { signal })
  }

  /** Resolves when the guest has answered or the link is closed, over any number of sessions. */
  async steer(message: AgentMessage): Promise<Result<unknown, RpcFailure>> {
    const elsewhere = await this.#agents?.find(message.agentPath)?.catch(() => undefined)
    if (elsewhere !== undefined) return await elsewhere.steer(message)
    return await this.#link.request(taskSteer, { runId: this.#plan.runId, ...message })
  }

  /** Resolves like {@link steer}. */
  async cancelAgent(agentPath: string, reason: string): Promise<Result<unknown, RpcFailure>> {
    // One with a VM is cancelled by its parent's agent, which then withdraws its request for it.
    const isWhole = this.#agents?.has(agentPath) === true
    const elsewhere = isWhole ? undefined : await this.#agents?.find(agentPath)?.catch(() => undefined)
    if (elsewhere !== undefined) return await elsewhere.cancelAgent(agentPath, reason)
    return await this.#link.request(taskCancelAgent, { runId: this.#plan.runId, agentPath, reason })
  }

  /** Resolves like {@link steer}. */
  async setTaskPaused(paused: boolean): Promise<Result<unknown, RpcFailure>> {
    this.#isTaskPaused = paused
    await this.#agents?.each((guest) => guest.setTaskPaused(paused))
    return await this.#link.request(taskPause, { runId: this.#plan.runId, paused })
  }

  get isReachable(): boolean {
    return this.#rest === 'none' && !this.#isPaused
  }

  /** Asks the agent to pause or resume its clock. Never rejects. */
  async holdTask(waiting: boolean): Promise<void> {
    await this.#agents?.each((guest) => guest.holdTask(waiting))
    await this.#link.request(taskHold, { runId: this.#plan.runId, waiting }, { timeoutMs: requestTimeoutMs })
  }

  /** Collects the change set. @throws {CaissonError} */
  async collect(
    workspace: PreparedWorkspace,
    onProgress: (entries: number, contentBytes: number) => void,
  ): Promise<ChangeSet> {
    this.#live[Symbol.dispose]()
    const { runId } = this.#plan
    const { manifest } = workspace
    const runDirectory = this.#record.paths.directory
    const parts = {
      runId,
      runDirectory,
      manifest,
      link: this.#link,
      changes: this.#changes,
      diskSpace: this.#diskSpace,
      onProgress,
    }
    const collected = await this.#ends.orLost(collectFrom(parts))
    if (collected.ok) return collected.value
    const { error } = collected
    if (error.of === 'guest') return await this.#fail('collecting the changes', error.failure)
    return requireValue({ ok: false, error: error.failure } as WorkspaceResult<never>)
  }

  /** Whether the guest waits for anything besides a person's answer. */
  isBusy(): boolean {
    if (this.#agents?.isBusy === true) return true
    if (this.#isPaused || this.#disk.isWaiting || this.#outside.gateway.isBusy() || this.#access.isBusy())
      return true
    return isAtWork(this.#record.state)
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  /**
   * Pauses or resumes the VM's processors.
   * @returns why this is not possible now; undefined on success
   */
  async setPaused(paused: boolean): Promise<string | undefined> {
    if (this.#control === null || this.#rest !== 'none' || this.#closing) return 'the VM is not running now'
    if (paused === this.#isPaused) return undefined
    this.#isPaused = paused
    await this.#agents?.each((guest) => guest.setPaused(paused))
    if (paused) this.#link.setFrozen(true)
    try {
      await (paused ? pauseVm(this.#vm.current) : unpauseVm(this.#vm.current))
      return undefined
    } catch (error) {
      return `the VM did not do it: ${errorMessage(error)}`
    } finally {
      if (!paused) this.#link.setFrozen(false)
    }
  }

  /** Saves the VM to disk and ends its process. @throws {CaissonError} `vm_failed` when the VM continues instead */
  async sleep(): Promise<void> {
    const startedAt = performance.now()
    await this.#save((directory) => this.#vm.sleep(directory), this.#record.paths.hibernated)
    // The VM is saved even if this cannot be journaled: a failure here must not look like a failed save.
    this.#noteSoon({ type: 'vm-sleep', durationMs: Math.round(performance.now() - startedAt) })
  }

  /** Restores the saved VM in a new session. @throws {VmError} */
  async wake(): Promise<void> {
    const startedAt = performance.now()
    const woken = await this.#vm.wake()
    if (woken === undefined) return
    this.#rest = 'none'
    this.#link.attachPorts(this.#vm.current.rpc, this.#vm.current.http)
    const durationMs = Math.round(performance.now() - startedAt)
    await this.#record.host({ type: 'vm-wake', durationMs, ...woken })
    await this.#serveControl()
  }

  /**
   * Saves the VM for a later run, without the workspace and its changes. Files in the home folder and in /tmp stay.
   * @throws {CaissonError} `vm_failed` when the save failed; nothing of it remains
   */
  async keep(signal: AbortSignal): Promise<void> {
    // An agent without a completion would wait indefinitely for this run's host and accept no other task.
    if (!this.#ends.hasCompleted) throw new CaissonError('agent_lost', 'the agent still has the task')
    await this.#ask('closing the workspace', workspaceReset, { keepHome: true }, signal)
    await this.#save((directory) => this.#vm.keep(directory), this.#record.paths.kept)
    await this.#record.host({ type: 'vm-kept' })
  }

  async #save(save: (directory: string) => Promise<void>, directory: string): Promise<void> {
    this.#rest = 'saving'
    await this.#link.park()
    try {
      await save(directory)
      this.#rest = 'hibernated'
    } catch (error) {
      this.#rest = 'none'
      this.#link.attachPorts(this.#vm.current.rpc, this.#vm.current.http)
      this.#log.write({ at: Date.now(), from: 'host', level: 'warn', message: String(error) })
      throw error
    }
    const control = this.#control
    this.#control = null
    await control?.[Symbol.asyncDispose]()
  }

  /** The VM cannot continue: the run ends with this reason. */
  lose(cause: unknown): void {
    this.#ends.lose(cause)
  }

  /**
   * Has the agent make a checkpoint of this moment: its effects and events wait until it is there.
   * @returns why there is none of this moment; undefined when there is
   */
  async makeCheckpoint(): Promise<string | undefined> {
    if (!this.isReachable || this.#disk.isWaiting) return 'its VM is paused or hibernated'
    const known = this.#record.state.checkpoint?.checkpointId
    const answer = await this.#ends.orLost(
      this.#link.request(taskCheckpoint, { runId: this.#plan.runId }, { timeoutMs: requestTimeoutMs }),
    )
    if (!answer.ok) return `its agent made none: ${answer.error.message}`
    if (answer.value.outcome === 'busy') return 'a call that changes something is under way'
    const { checkpoint } = this.#record.state
    // The agent is not trusted: what counts is the line of the journal.
    return checkpoint === null || checkpoint.checkpointId === known ? 'it makes no checkpoints' : undefined
  }

  /** Another disk that begins at a checkpoint of this VM's; the VM works on. @throws {CaissonError} `not_possible_now` */
  async forkDisk(to: string, checkpointId: string): Promise<void> {
    const { checkpoints } = this.#vm.current
    if (checkpoints === undefined)
      throw new CaissonError('not_possible_now', `the VM of ${this.#plan.runId} has no checkpoints`)
    await checkpoints.fork(to, checkpointId)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#leave()
    await this.#control?.[Symbol.asyncDispose]()
    const written = writeFile(this.#record.paths.console, this.#vm.consoleText(), { mode: 0o600 })
    await written.catch(() => undefined)
    await this.#log[Symbol.asyncDispose]()
  }

  /** Closes the link, the gateway and the VM. */
  async #leave(): Promise<void> {
    this.#closing = true
    this.#disk.end()
    this.#use[Symbol.dispose]()
    this.#live[Symbol.dispose]()
    await this.#agents?.close()
    await this.#link[Symbol.asyncDispose]()
    await this.#outside.close()
    await this.#vm.stop()
  }

  /**
   * Opens the first session while the guest gets its random bytes and the time.
   * @throws GuestUnresponsiveError for a clone that does not answer
   */
  async #greet(started: StartedVm, signal: AbortSignal): Promise<void> {
    const { vm, origin } = started
    const cloned = origin.from === 'template'
    const startedAt = performance.now()
    const timeoutMs = cloned ? cloneSessionTimeoutMs : sessionTimeoutMs
    const ready = await this.#ends.orLost(this.#link.ready({ signal, timeoutMs }))
    if (!ready.ok && cloned && !signal.aborted) throw new GuestUnresponsiveError(ready.error.message)
    if (!ready.ok) throw this.#failureOf('waiting for the agent', ready.error)
    await vm.fresh
    this.#session = ready.value
    await this.#record.host(describeReady(started, performance.now() - startedAt, this.#plan.image))
  }

  async #ask<M extends RequestMethod>(
    doing: string,
    method: M,
    params: ParamsInput<M>,
    signal: AbortSignal,
  ): Promise<ResultOf<M>> {
    const answer = await this.#ends.orLost(
      this.#link.request(method, params, { signal, timeoutMs: requestTimeoutMs }),
    )
    if (!answer.ok) return await this.#fail(doing, answer.error)
    return answer.value
  }

  /** The run continues without a control socket: only inspection from other processes is lost. */
  async #serveControl(): Promise<void> {
    const { runId, directory, folders } = this.#plan
    try {
      this.#control = await serveVm({
        vm: this.#vm.current,
        vms: folders.vms,
        access: this.#access,
        state: () => this.#stateNow(),
        run: { runId, directory },
        egress: () => this.#plan.egress,
        onStop: (now) => this.#requests?.stop(now),
        setPaused: async (paused) => await this.#requests?.setPaused(paused),
      })
    } catch (cause) {
      const message = `no control socket: ${String(cause)}`
      this.#log.write({ at: Date.now(), from: 'host', level: 'warn', message })
    }
  }

  #openAgents(parts: GuestParts, workspace: PreparedWorkspace): AgentVms {
    return new AgentVms({
      plan: this.#plan,
      parts,
      workspace,
      vm: () => this.#vm.current,
      budget: this.#outside.gateway.budget,
      isTaskPaused: () => this.#isTaskPaused,
      start: (...args) => Guest.start(...args),
    })
  }

  #openLink(cloned: boolean, claims: GuestClaims): AgentLink {
    return openAgentLink({
      cloned,
      probe: () => this.#vm.current.qmp.probe(),
      rpc: this.#vm.current.rpc,
      http: this.#vm.current.http,
      onStream: (stream, headers) => this.#onStream(stream, headers),
      onSessionStart: ({ number, resumed }) =>
        this.#noteSoon({ type: 'session-start', session: number, resumed }),
      onSessionEnd: ({ number, reason, message }) => {
        if (!this.#closing)
          this.#noteSoon({ type: 'session-end', session: number, reason, message: message.slice(0, 2_000) })
      },
      onAgentLost: ({ message }) => this.#ends.loseAgent('agent_lost', message),
      onBug: (method, cause) =>
        this.#log.write({ at: Date.now(), from: 'host', level: 'error', method, cause: String(cause) }),
      onBrokenClaim: ({ message }) => this.#ends.loseAgent('protocol_violation', message),
      handlers: agentHandlers({
        record: this.#record,
        log: this.#log,
        claims,
        objection: (agentPath, event) => this.#agents?.check(agentPath, event) ?? null,
        onToolEnd: () => this.#live.note(),
        requests: this.#outside.requests,
        onCompletion: (completion) => this.#ends.complete(completion),
        ...(this.#agents === undefined ? {} : { runAgent: this.#agents.run }),
        // A sub-agent begins again with its parent, from the parent's checkpoint.
        makeCheckpoint: async (checkpointId) =>
          this.#subAgent === undefined &&
          this.#plan.replays === undefined &&
          (await this.#checkpoints.make(checkpointId)),
        onJournalFull: (error) => this.#loseForJournal(error),
        onUnrecorded: (cause) => this.#ends.lose(cause),
      }),
    })
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    if (this.#access.handleStream(stream, headers)) return
    if (this.#subAgent?.handleStream(stream, headers) || this.#agents?.handleStream(stream, headers)) return
    if (this.#changes.handleStream(stream, headers)) return
    this.#outside.gateway.handleStream(stream, headers)
  }

  #onVmExit(exit: VmExit): void {
    const message = describeVmExit(exit)
    this.#noteSoon({ type: 'vm-end', expected: false, message })
    this.#ends.lose(new CaissonError('vm_lost', message))
  }

  #stateNow(): VmInfo['state'] {
    if (this.#closing) return 'stopping'
    if (this.#session === null) return 'starting'
    return this.#isPaused ? 'paused' : 'running'
  }

  #onLinkEnd(end: LinkEnd): void {
    if (this.#closing) return
    // A VM that ends closes its ports first, but its own exit reason is more useful.
    const waitMs = end.reason === 'port_closed' ? 500 : 0
    setTimeout(() => this.#ends.lose(failureOfLink(end)), waitMs).unref()
  }

  /** @throws the error that ended the VM if the link ended with it, else the failure of the request */
  async #fail(doing: string, failure: RpcFailure): Promise<never> {
    if (failure.code === 'closed') await this.#ends.orLost(sleep(lastWordMs))
    throw this.#failureOf(doing, failure)
  }

  #failureOf(doing: string, failure: RpcFailure): CaissonError {
    return failureOfAnswer(doing, failure, this.#vm.current.console.text())
  }

  #noteSoon(event: HostEvent): void {
    void this.#note(event)
  }

  /** Whether it is written. If the journal fails here, it fails again at the next event that is awaited. */
  async #note(event: HostEvent): Promise<boolean> {
    try {
      await this.#record.host(event)
      return true
    } catch (cause) {
      if (hasCode(cause, 'limit_reached')) this.#loseForJournal(cause)
      else this.#ends.lose(cause)
      return false
    }
  }

  /** The guest sent too many events: the run ends, and its changes are still collected. */
  #loseForJournal(error: CaissonError): void {
    this.#ends.loseAgent('protocol_violation', error.message)
  }
}
