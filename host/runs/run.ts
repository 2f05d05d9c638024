import { CaissonError, errorMessage, requireText } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { asksAboutPlan } from '../approvals/plan-question.ts'
import { type AnswerResult, type ApprovalAnswer, ApprovalQueue } from '../approvals/queue.ts'
import {
  type AnswerActor,
  agentsAtWork,
  type CancelAgentOptions,
  type CancelOptions,
  type RunActor,
  type RunHandle,
  type RunResult,
  readActor,
  readAnswerActor,
  readCancel,
  readCancelAgent,
  readForkRequest,
  readSteer,
  readSubAgentPath,
  requireDone,
  requireRevoked,
  resultOf,
  type SteerOptions,
} from '../control/run-handle.ts'
import { ControlServer } from '../control/server.ts'
import { type ForkRequest, type Forks, forkRun } from '../forks/fork-run.ts'
import { isNow } from '../forks/moment.ts'
import { RunHooks } from '../hooks/run-hooks.ts'
import type { FeedItem, WatchOptions } from '../journal/run-feed.ts'
import type { RunRecord } from '../journal/run-record.ts'
import { RunStore } from '../journal/run-store.ts'
import type { EarlierAnswers } from '../recording/replay.ts'
import { CheckpointDisk } from '../vm/checkpoints/checkpoint-disk.ts'
import { DEFAULT_HIBERNATE_AFTER_MS, DEFAULT_SLEEP_AFTER_MS } from '../vm/vm-options.ts'
import { AgentWork, type Sleeping } from './agent-work.ts'
import { askAfterRun, askBeforeRun, beginRun } from './begin-run.ts'
import { collectChanges } from './collect-changes.ts'
import { DiskSpaceWait } from './disk-space-wait.ts'
import { checkPlan, type Ending, endingWithoutAgent, nameKeptVm, runEnding } from './ending.ts'
import { AgentControl, HiddenApprovals } from './guest/agent-control.ts'
import { AgentEventValidator } from './guest/agent-event-validator.ts'
import { Guest } from './guest/guest.ts'
import { checkAnswer, readResult } from './output-schema.ts'
import { type PreparedWorkspace, prepareWorkspace, reopenWorkspace, tellBuild } from './prepare.ts'
import { Recovery } from './recovery.ts'
import { type PlannedRun, type ResolvedRun, workflowOf } from './resolved-run.ts'
import { RunClock } from './run-clock.ts'
import { RunDisk } from './run-disk.ts'
import { untilAborted } from './until-aborted.ts'

/** Time for an untrusted agent to acknowledge a cancellation. */
const disbeliefGraceMs = 2_000

export class Run implements RunHandle {
  readonly id: string
  /** Resolves with the final state, or with one without an end when the run left this process sleeping; never rejects. */
  readonly ended: Promise<RunState>
  readonly #plan: PlannedRun
  readonly #record: RunRecord
  readonly #approvals: ApprovalQueue
  readonly #claims: AgentEventValidator
  readonly #control: AgentControl
  readonly #hooks: RunHooks
  readonly #approvesPlan: boolean
  readonly #stop = new AbortController()
  readonly #diskSpace: DiskSpaceWait
  readonly #startedAt = performance.now()
  readonly #clock: RunClock
  readonly #recovery: Recovery
  readonly #work: AgentWork
  #guest: Guest | undefined
  /** Resolves when the questions are known that another process left. */
  readonly #restored = Promise.withResolvers<void>()
  readonly #unseen = new HiddenApprovals((waiting) => this.#guest?.holdTask(waiting))
  #cancelling = false
  /** For another process, or for this one later: nobody would carry a cancellation out. */
  #hasLeft = false
  /** A person ended the VM; it is not kept. */
  #isVmStopped = false
  /** Whether it has slept: what then fails before an agent works can be tried again. */
  #hasSlept = false
  /** Why the model's server takes no requests of this run for long, and until when. */
  #modelLimit: CaissonError | undefined
  /** Whether its journal is closed and its lock is free. */
  #isOver = false

  constructor(plan: PlannedRun, record: RunRecord) {
    this.id = plan.runId
    this.#plan = plan
    this.#record = record
    const { mode, given, approvals } = plan
    const givenPlan = given?.plan ?? plan.resumed?.task.plan
    const workflow = workflowOf(plan)
    this.#clock = new RunClock(plan.limits.maxWallMs, record)
    this.#approvesPlan = plan.approvePlan || asksAboutPlan(approvals.rules)
    this.#hooks = new RunHooks({
      runId: plan.runId,
      hooks: plan.hooks ?? [],
      note: (event) => this.#note(event),
      ask: (request, signal) =>
        this.#approvals.ask(request, signal, undefined, { mustAsk: true, isUnseen: true }),
    })
    this.#claims = new AgentEventValidator({
      mode,
      approvePlan: this.#approvesPlan,
      stepModels: [...(plan.stepModels?.keys() ?? [])],
      maxAgents: plan.limits.maxAgents,
      maxDepth: plan.limits.maxDepth,
      hooks: this.#hooks.ofAgent,
      ...(givenPlan === undefined ? {} : { plan: givenPlan }),
      ...(workflow === undefined ? {} : { workflow }),
    })
    const mayWait = workflow === undefined ? undefined : plan.replays === undefined ? 'kept' : 'passed'
    this.#approvals = new ApprovalQueue({
      ...approvals,
      ...(mayWait === undefined ? {} : { mayWait }),
      record: (event) => this.#note(event),
      onWaiting: (change, isUnseen) => {
        this.#work.hold(change, 'approval')
        if (isUnseen) this.#unseen.hold(change)
      },
      findPlanProblems: (next) => this.#claims.findPlanProblems(next),
      onPlanAllowed: (allowed) => this.#claims.allowPlan(allowed),
    })
    this.#control = new AgentControl({
      note: (event) => this.#note(event),
      agentsAtWork: () => agentsAtWork(record.state),
      onHold: (change) => this.#work.hold(change, 'pause'),
    })
    this.#diskSpace = new DiskSpaceWait({
      onNotice: (notice) => record.delta('root', notice),
      onWaited: (event) => void this.#note(event).catch(() => undefined),
      onHold: (change) => this.#clock.hold(change, 'disk'),
      maxWaitMs: plan.limits.maxWallMs,
    })
    record.waitForDiskSpace(this.#diskSpace.wait)
    const parts = {
      record,
      approvals: this.#approvals,
      control: this.#control,
      clock: this.#clock,
    }
    this.#recovery = new Recovery(plan, {
      ...parts,
      claims: this.#claims,
      hooks: this.#hooks,
      approvesPlan: this.#approvesPlan,
    })
    this.#work = new AgentWork({
      ...parts,
      stop: this.#stop.signal,
      hibernateAfterMs: plan.vm.hibernateAfterMs ?? DEFAULT_HIBERNATE_AFTER_MS,
      sleepAfterMs: this.#recovery.maxCount === 0 ? 0 : (plan.vm.sleepAfterMs ?? DEFAULT_SLEEP_AFTER_MS),
      canRecover: (error) => this.#canRecover(error),
      leaveQueue: () => plan.turn?.leave(),
      queueAgain: async () => void (await this.#takeTurn()),
    })
    this.ended = this.#live().finally(() => {
      this.#isOver = true
    })
    this.#serveControl(record.paths.control)
  }

  get state(): RunState {
    return this.#record.state
  }

  /** The hash of the journal's last line. */
  get journalHead(): string {
    return this.#record.head
  }

  /** All events so far, then events and deltas as they arrive, until the run has ended. */
  watch(options?: WatchOptions): AsyncIterableIterator<FeedItem> {
    return this.#record.feed.watch(options)
  }

  async answer(approvalId: string, answer: ApprovalAnswer, actor?: AnswerActor): Promise<AnswerResult> {
    requireText('approvalId', approvalId)
    const { by, via } = readAnswerActor(actor)
    await Promise.race([this.#restored.promise, this.ended])
    return await this.#approvals.answerDurably(approvalId, answer, { name: by, via }, this.ended)
  }

  async revokeAnswer(approvalId: string, actor?: RunActor): Promise<void> {
    requireText('approvalId', approvalId)
    const { by } = readActor(actor)
    requireRevoked(this.id, approvalId, await this.#approvals.revoke(approvalId, by))
  }

  /** Whether an approval is pending. */
  hasPendingApproval(approvalId: string): boolean {
    requireText('approvalId', approvalId)
    return this.#approvals.pending.includes(approvalId)
  }

  /** Number of approvals that are pending. */
  get pendingCount(): number {
    return this.#approvals.pending.length
  }

  /** Resolves when the approval is no longer pending. */
  async whenResolved(approvalId: string): Promise<void> {
    requireText('approvalId', approvalId)
    await this.#approvals.whenResolved(approvalId)
  }

  /** Denies pending and future approvals: this process answers none of them. The run continues. */
  async detach(): Promise<void> {
    this.#approvals.detach()
  }

  async result(): Promise<RunResult> {
    return resultOf(this.id, await this.ended, this.journalHead)
  }

  async cancel(options?: CancelOptions): Promise<void> {
    const { by, now } = readCancel(options)
    if (this.#hasLeft)
      throw new CaissonError('run_busy', `${this.id} is going to sleep, and cannot be cancelled meanwhile`, {
        remedy: 'cancel it again',
      })
    if (now) this.#stop.abort(new CaissonError('cancelled', `ended at once by ${by}`))
    else if (!this.#work.hasBegun) this.#stop.abort(new CaissonError('cancelled', `cancelled by ${by}`))
    if (this.#cancelling) return
    this.#cancelling = true
    this.#diskSpace.giveUp(`cancelled by ${by}`)
    this.#work.cancel(by)
  }

  async steer(text: string, options?: SteerOptions): Promise<void> {
    requireText('the message', text)
    const { by, to } = readSteer(options)
    await requireDone(this.#control.steer(text, by, to))
  }

  async cancelAgent(agentPath: string, options?: CancelAgentOptions): Promise<void> {
    const path = readSubAgentPath(agentPath)
    const { by, reason } = readCancelAgent(options)
    await requireDone(this.#control.cancelAgent(path, reason, by))
  }

  /** The VM's processors keep running; to stop those use {@link setVmPaused}. A VM that is paused for long is hibernated. */
  async pause(actor?: RunActor): Promise<void> {
    const { by } = readActor(actor)
    await requireDone(this.#control.setPaused(true, by))
  }

  async resume(actor?: RunActor): Promise<void> {
    const { by } = readActor(actor)
    await requireDone(this.#control.setPaused(false, by))
  }

  /** Lets the user's other processes watch, answer, steer, pause and cancel. The run continues without it. */
  #serveControl(path: string): void {
    const opening = ControlServer.open(path, { run: this }).catch(() => null)
    // Closes after the run has ended, so that watchers receive its end.
    void this.ended.then(async () => (await opening)?.[Symbol.asyncDispose]())
  }

  /**
   * Pauses or resumes the VM's processors and the run's deadline. The agent does not notice; use {@link pause} to pause
   * it between two effects.
   * @returns why this is not possible now: no VM, or a saved one; undefined on success
   */
  async setVmPaused(paused: boolean): Promise<string | undefined> {
    return await this.#work.setVmPaused(paused)
  }

  /** Makes runs that continue this one from a moment of it; only a checkpoint of `now` delays its work. See `host.fork`. */
  async fork(request: ForkRequest): Promise<Forks> {
    const { folders, provider, source } = this.#plan
    const store = new RunStore(folders, undefined, source)
    const checked = readForkRequest(request)
    if (this.#isOver) return await forkRun({ store, runId: this.id }, checked)
    const notNow = isNow(this.state, checked.at) ? await this.#makeCheckpoint() : undefined
    const live = {
      ...(notNow === undefined ? {} : { notNow }),
      copyDisk: async (to: string, checkpointId: string) => {
        if (this.#guest !== undefined) await this.#guest.forkDisk(to, checkpointId)
        // Between two agents.
        else await CheckpointDisk.fork(this.#record.paths.scratch, to, checkpointId)
      },
      flushRecording: async () => await (await this.#record.openRecorder(provider)).flush(),
    }
    return await forkRun({ store, runId: this.id, live }, checked)
  }

  /** @returns why there is no checkpoint of this moment; undefined when there is */
  async #makeCheckpoint(): Promise<string | undefined> {
    try {
      return this.#guest === undefined ? 'no agent is at work' : await this.#guest.makeCheckpoint()
    } catch (error) {
      // Its agent or its VM was lost meanwhile.
      return errorMessage(error)
    }
  }

  async #live(): Promise<RunState> {
    await using record = this.#record
    await using disk = new RunDisk(record.paths)
    await using held = new AsyncDisposableStack()
    let ending: Ending
    let isParked = false
    try {
      const ended = await this.#execute(disk, held)
      if (ended === 'left') {
        disk.keep()
        this.#hooks.close()
        return record.state
      }
      ending = ended
    } catch (error) {
      isParked = this.#canPark(error)
      // A failure after the stop signal is a consequence of the stop.
      ending = runEnding(this.#stop.signal.aborted ? this.#stop.signal.reason : error)
    } finally {
      // Its VM is gone: the next one may start.
      this.#plan.turn?.leave()
    }
    this.#approvals.close()
    if (isParked) {
      this.#hooks.close()
      return await this.#park(ending, disk)
    }
    ending = await nameKeptVm(ending, this.#plan.continues)
    // A run that was ended at once waits only briefly.
    const signal = this.#stop.signal.aborted ? AbortSignal.timeout(disbeliefGraceMs) : this.#stop.signal
    await askAfterRun(this.#plan, ending, { record, hooks: this.#hooks, signal }).catch(() => undefined)
    this.#hooks.close()
    const durationMs = Math.round(performance.now() - this.#startedAt)
    const end = { type: 'run-end', ...ending, usage: record.state.usage, durationMs } as const
    const makeRoom = () => disk[Symbol.asyncDispose]()
    // A hook's no and the end of its time to begin stand; want of memory does not.
    const isFinal = this.#cancelling || ending.reason === 'denied' || ending.reason === 'queue_timeout'
    const isOfHost = this.#plan.isOfFleet === true && ending.reason === 'environment'
    const isTriedAgain = !isFinal && (this.#plan.resumed !== undefined || this.#hasSlept || isOfHost)
    if (!record.isOwn()) {
      // The run is another process's by now, and so are its files.
      disk.keep()
      record.leave(end)
    } else if (!isTriedAgain || this.#guest !== undefined) await record.conclude(end, makeRoom)
    else {
      // It was not continued, for want of memory or an image, say.
      disk.keep()
      record.leave({ ...end, message: `${end.message}\nTry again: caisson runs resume ${this.id}` })
    }
    return record.state
  }

  /**
   * Whether the run stays as it is in its folder: its host's disk had no space for long, or the model's server takes no
   * requests for long, and nobody ended the run.
   */
  #canPark(error: unknown): boolean {
    if (this.#cancelling || this.#isVmStopped || this.#stop.signal.aborted) return false
    const canContinue = this.#work.hasBegun && this.#recovery.maxCount > 0
    return canContinue && (error === this.#modelLimit || CaissonError.from(error).code === 'no_space')
  }

  async #park(ending: Ending, disk: RunDisk): Promise<RunState> {
    disk.keep()
    const durationMs = Math.round(performance.now() - this.#startedAt)
    const message = `${ending.message}\nThen continue the run: caisson runs resume ${this.id}`
    const { reason } = ending
    // Behind a line that found no space the journal has no other.
    if (this.#modelLimit !== undefined)
      await this.#note({ type: 'run-interrupt', reason, message }).catch(() => undefined)
    this.#record.leave({ type: 'run-end', ...ending, message, usage: this.#record.state.usage, durationMs })
    return this.#record.state
  }

  /**
   * @param held what the run needs until its end is journaled, as another process may have to continue it
   * @returns `left`: the run left this process, and can be continued
   */
  async #execute(disk: RunDisk, held: AsyncDisposableStack): Promise<Ending | 'left'> {
    const { paths } = this.#record
    let earlier: EarlierAnswers | undefined
    const isResumed = this.#plan.resumed !== undefined
    // One that still waited when its process ended has nothing that an image could have made.
    const isNew = !isResumed || this.#record.state.queue?.isContinued === false
    if (!isResumed) await beginRun(this.#plan, this.#approvesPlan, this.#record)
    else if (isNew) earlier = await this.#recover()
    if (isNew) {
      if (!(await this.#takeTurn())) return 'left'
      await askBeforeRun(this.#plan, { hooks: this.#hooks, signal: this.#stop.signal })
    }
    const plan = await this.#prepareMachine()
    if (!isNew) {
      earlier = await this.#recover(plan)
      if (!(await this.#takeTurn())) return 'left'
    }
    this.#restored.resolve()
    const workspace = held.use(
      (earlier === undefined
        ? undefined
        : await reopenWorkspace(paths, this.#record.state.checkpoint !== null)) ??
        (await prepareWorkspace(plan, this.#record, this.#stop.signal)),
    )
    for (;;) {
      // A VM that was lost while it was saved had given its place.
      if (!(await this.#takeTurn())) return 'left'
      try {
        const done = await this.#carryOut(plan, workspace, disk, earlier)
        if (!('answered' in done)) return done
        if (await this.#sleep(done)) return 'left'
        earlier = await this.#recovery.recover('the run slept', 'sleep')
      } catch (error) {
        if (!this.#canRecover(error)) throw error
        earlier = await this.#recovery.recover(errorMessage(error), 'loss')
      }
    }
  }

  /**
   * Without a VM until a question is decided and the run is not paused, or a paused one is resumed, or it is cancelled.
   * True: the run leaves this process.
   */
  async #sleep({ answered }: Sleeping): Promise<boolean> {
    this.#guest = undefined
    this.#hasSlept = true
    const { checkpoint } = this.#record.state
    if (checkpoint === null) throw new CaissonError('internal', 'a run without a checkpoint went to sleep')
    const { isPaused } = this.#control
    const how = isPaused ? { paused: true as const } : {}
    await this.#note({ type: 'run-sleep', checkpointId: checkpoint.checkpointId, ...how })
    const isEnding = this.#cancelling || this.#stop.signal.aborted
    if (this.#plan.leavesOnSleep === true && !isEnding && this.#approvals.leave()) {
      this.#hasLeft = true
      return true
    }
    this.#plan.turn?.leave()
    // Nothing else keeps this process alive.
    const keepAlive = setInterval(() => undefined, 2 ** 31 - 1)
    try {
      const woken = (isPaused ? Promise.resolve() : answered).then(() => this.#control.whenResumed())
      await untilAborted(Promise.race([woken, this.#work.cancelled]), this.#stop.signal)
    } finally {
      clearInterval(keepAlive)
    }
    await this.#approvals.unpark()
    return !(await this.#takeTurn())
  }

  /** Waits until the queue of the host lets the run use a VM. False: the host was closed, and the run leaves this process. */
  async #takeTurn(): Promise<boolean> {
    const { turn } = this.#plan
    if (turn === undefined) return true
    turn.again()
    if (!turn.isAtWork) {
      const since = performance.now()
      const { priority, startBy } = turn.entry
      await this.#note({ type: 'queue-start', priority, ...(startBy === undefined ? {} : { startBy }) })
      turn.settle()
      const onPlace = (place: number, waiting: number) =>
        this.#record.delta('root', {
          type: 'prepare',
          what: 'queue',
          text: describePlace(place, waiting),
          place,
        })
      // Whoever cancels a run that has begun waits for its agent, which needs the VM.
      const skip = this.#work.cancelled
      if ((await turn.wait({ signal: this.#stop.signal, skip, onPlace })) === 'closed') return false
      await this.#note({ type: 'queue-end', waitedMs: Math.round(performance.now() - since) })
    }
    turn.settle()
    return true
  }

  /** @param plan absent: nothing was made that the image has to fit */
  async #recover(plan?: ResolvedRun): Promise<EarlierAnswers> {
    const present = plan && {
      agentDigest: plan.image.agentDigest,
      ...(plan.vm.disk === undefined ? { imageKey: plan.image.key } : {}),
    }
    const earlier = await this.#recovery.recover('the host process of the run ended', 'process', present)
    const { cancelledBy } = this.#recovery
    if (this.#plan.resumed?.endIfCancelled === true && cancelledBy !== undefined) {
      this.#cancelling = true
      this.#work.cancel(cancelledBy)
    }
    return earlier
  }

  /** Has an agent work from the last checkpoint, or from the beginning, to the end, and collects the changes. */
  async #carryOut(
    plan: ResolvedRun,
    workspace: PreparedWorkspace,
    disk: RunDisk,
    earlier: EarlierAnswers | undefined,
  ): Promise<Ending | Sleeping> {
    // A VM of the pool has its disk already.
    const given = earlier === undefined ? workspace.vm?.vm.plan.checkpoints?.disk : undefined
    const parts = {
      record: this.#record,
      approvals: this.#approvals,
      claims: this.#claims,
      hooks: this.#hooks,
      diskSpace: this.#diskSpace,
      hostCallResults: this.#recovery.hostCallResults,
      onModelLimit: (message: string) => {
        this.#modelLimit ??= new CaissonError('model_unreachable', message)
        if (!this.#canPark(this.#modelLimit)) return false
        this.#guest?.lose(this.#modelLimit)
        return true
      },
      elapsedMs: () => this.#clock.elapsedMs,
      // A replay makes no checkpoints; sub-agents in VMs of their own fork the disk.
      ...(this.#recovery.maxCount > 0 || this.#plan.replays !== undefined
        ? { checkpointDisk: given ?? (await disk.open(this.#record.state.checkpoint)) }
        : {}),
      ...(earlier === undefined ? {} : { earlier }),
    }
    await using guest = await Guest.start(plan, parts, workspace, this.#stop.signal, {
      stop: (now) => {
        this.#isVmStopped = true
        void this.cancel({ by: 'caisson vm stop', now })
      },
      setPaused: (paused) => this.setVmPaused(paused),
    })
    this.#guest = guest
    const reported = await this.#work
      .perform(guest, () => this.#recovery.taskNow())
      .catch((error: unknown) => {
        if (this.#canRecover(error)) throw error
        return endingWithoutAgent(error)
      })
    if ('answered' in reported) return reported
    const checked = await checkAnswer(reported, this.#plan.outputSchema)
    const ending = workflowOf(this.#plan) === undefined ? checked : readResult(checked)
    if (ending.reason === 'protocol_violation')
      await guest.cancel(ending.message.slice(0, 1_000), AbortSignal.timeout(disbeliefGraceMs))
    const isOnlyPlan = this.#plan.mode === 'plan'
    const collected = isOnlyPlan
      ? checkPlan(ending, this.#record.state.plan)
      : await collectChanges(guest, workspace, ending, { record: this.#record, signal: this.#stop.signal })
    // A VM that could not be saved is ended. The next run starts a new one, and its prompt says so.
    if (this.#plan.keep && !this.#isVmStopped && !this.#stop.signal.aborted) {
      this.#record.delta('root', { type: 'prepare', what: 'vm', text: 'saving the VM' })
      await guest.keep(this.#stop.signal).catch((cause: unknown) => this.#noteNotKept(cause))
    }
    return collected
  }

  /** Whether the run can continue with another agent. */
  #canRecover(error: unknown): boolean {
    if (this.#cancelling || this.#isVmStopped || this.#stop.signal.aborted) return false
    return this.#recovery.isPossible(error)
  }

  /** Watchers see how far it is. */
  async #prepareMachine(): Promise<ResolvedRun> {
    const onProgress = tellBuild('image', this.#plan, this.#record)
    const machine = await this.#plan.prepareMachine({ onProgress, signal: this.#stop.signal })
    this.#stop.signal.throwIfAborted()
    return { ...this.#plan, ...machine }
  }

  #noteNotKept(cause: unknown): Promise<void> {
    const message = errorMessage(cause).slice(0, 2_000)
    return this.#note({ type: 'vm-keep-failed', message })
  }

  #note(event: HostEvent): Promise<void> {
    return this.#record.host(event)
  }
}

function describePlace(place: number, waiting: number): string {
  return place === 1
    ? `waiting for its turn: next of ${waiting}`
    : `waiting for its turn: number ${place} of ${waiting} in the queue`
}
