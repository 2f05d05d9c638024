import * as z from 'zod'
import { CaissonError, errorMessage, hasCode, requireText } from '#specs/errors.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { Completion, Task } from '#specs/protocol/task.ts'
import { asksAboutPlan } from '../approvals/plan-question.ts'
import { type AnswerResult, type ApprovalAnswer, ApprovalQueue } from '../approvals/queue.ts'
import {
  type AnswerActor,
  type CancelOptions,
  type RunActor,
  type RunHandle,
  type RunResult,
  readActor,
  readAnswerActor,
  readCancel,
  requireDone,
  resultOf,
} from '../control/run-handle.ts'
import { ControlServer } from '../control/server.ts'
import { checkArguments } from '../files/check-arguments.ts'
import { RunHooks } from '../hooks/run-hooks.ts'
import type { FeedItem, WatchOptions } from '../journal/run-feed.ts'
import type { RunRecord } from '../journal/run-record.ts'
import type { EarlierAnswers } from '../recording/replay.ts'
import type { HostCallResults } from '../tools/calls.ts'
import { DEFAULT_HIBERNATE_AFTER_MS, DEFAULT_RECOVERIES } from '../vm/vm-options.ts'
import { collectChanges, untilAborted } from './collect-changes.ts'
import { Deadline, type HoldReason } from './deadline.ts'
import { DiskSpaceWait } from './disk-space-wait.ts'
import {
  checkPlan,
  type Ending,
  endingOfCompletion,
  endingWithoutAgent,
  nameKeptVm,
  runEnding,
} from './ending.ts'
import { AgentControl, HiddenApprovals } from './guest/agent-control.ts'
import { AgentEventValidator } from './guest/agent-event-validator.ts'
import { Guest } from './guest/guest.ts'
import { IdleHibernation } from './guest/idle-hibernation.ts'
import { checkAnswer } from './output-schema.ts'
import { Past, readCalls } from './past.ts'
import { type PreparedWorkspace, prepareWorkspace, reopenWorkspace, tellBuild } from './prepare.ts'
import { type PlannedRun, type ResolvedRun, taskOf } from './resolved-run.ts'
import { RunDisk } from './run-disk.ts'

/** Time for the agent to complete a cancelled task before the VM is ended. */
const cancelGraceMs = 10_000
/** Time for an untrusted agent to acknowledge a cancellation. */
const disbeliefGraceMs = 2_000
/** Grace period after the run's wall time before the host ends the run; the agent should enforce the limit itself. */
const wallGraceMs = 15_000

export class Run implements RunHandle {
  readonly id: string
  /** Resolves with the final state; never rejects. */
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
  readonly #cancelled = Promise.withResolvers<string>()
  readonly #startedAt = performance.now()
  readonly #hostCallResults: HostCallResults = new Map()
  #deadline: Deadline | undefined
  /** Until the host ends the run. */
  #leftMs: number
  #hibernation: IdleHibernation | undefined
  #guest: Guest | undefined
  readonly #unseen = new HiddenApprovals((waiting) => this.#guest?.holdTask(waiting))
  #cancelling = false
  /** A person ended the VM; it is not kept. */
  #isVmStopped = false
  /** Whether the agent has the task, or is about to get it. If so, it is asked to stop before the VM is ended. */
  #working = false

  constructor(plan: PlannedRun, record: RunRecord) {
    this.id = plan.runId
    this.#plan = plan
    this.#record = record
    const { mode, given, approvals } = plan
    const givenPlan = given?.plan ?? plan.resumed?.task.plan
    this.#leftMs = plan.limits.maxWallMs + wallGraceMs
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
      maxAgents: plan.limits.maxAgents,
      hooks: this.#hooks.ofAgent,
      ...(givenPlan === undefined ? {} : { plan: givenPlan }),
    })
    this.#approvals = new ApprovalQueue({
      ...approvals,
      record: (event) => this.#note(event),
      onWaiting: (change, isUnseen) => {
        this.#hold(change, 'approval')
        if (isUnseen) this.#unseen.hold(change)
      },
      findPlanProblems: (next) => this.#claims.findPlanProblems(next),
      onPlanAllowed: (allowed) => this.#claims.allowPlan(allowed),
    })
    this.#control = new AgentControl({
      note: (event) => this.#note(event),
      onHold: (change) => this.#hold(change, 'pause'),
    })
    this.#diskSpace = new DiskSpaceWait({
      onNotice: (notice) => record.delta('root', notice),
      onWaited: (event) => void this.#note(event).catch(() => undefined),
      onHold: (change) => this.#deadline?.hold(change, 'disk'),
      maxWaitMs: plan.limits.maxWallMs,
    })
    record.waitForDiskSpace(this.#diskSpace.wait)
    this.ended = this.#live()
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
    return this.#approvals.answer(approvalId, answer, { name: by, via })
  }

  /** Whether an approval is pending. */
  hasPendingApproval(approvalId: string): boolean {
    requireText('approvalId', approvalId)
    return this.#approvals.pending.includes(approvalId)
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
    if (now) this.#stop.abort(new CaissonError('cancelled', `ended at once by ${by}`))
    else if (!this.#working) this.#stop.abort(new CaissonError('cancelled', `cancelled by ${by}`))
    if (this.#cancelling) return
    this.#cancelling = true
    this.#diskSpace.giveUp(`cancelled by ${by}`)
    this.#cancelled.resolve(by)
  }

  async steer(text: string, actor?: RunActor): Promise<void> {
    requireText('the message', text)
    const { by } = readActor(actor)
    await requireDone(this.#control.steer(text, by))
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

  /** Adds (+1) or removes (-1) a reason to pause the run's deadline, and to save the VM after a while. */
  #hold(change: number, reason: HoldReason): void {
    this.#deadline?.hold(change, reason)
    this.#hibernation?.hold(change)
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
    checkArguments('whether to pause cannot be used', z.boolean(), paused)
    const guest = this.#guest
    const deadline = this.#deadline
    if (guest === undefined || deadline === undefined) return 'the run has no active VM'
    const was = guest.isPaused
    const problem = await guest.setPaused(paused)
    if (guest.isPaused !== was) deadline.hold(paused ? 1 : -1, 'pause')
    return problem
  }

  async #live(): Promise<RunState> {
    await using record = this.#record
    await using disk = new RunDisk(record.paths)
    await using held = new AsyncDisposableStack()
    let ending: Ending
    try {
      ending = await this.#execute(disk, held)
    } catch (error) {
      // A failure after the stop signal is a consequence of the stop.
      ending = runEnding(this.#stop.signal.aborted ? this.#stop.signal.reason : error)
    }
    ending = await nameKeptVm(ending, this.#plan.continues)
    this.#approvals.close()
    await this.#askAfter(ending).catch(() => undefined)
    this.#hooks.close()
    const durationMs = Math.round(performance.now() - this.#startedAt)
    const end = { type: 'run-end', ...ending, usage: record.state.usage, durationMs } as const
    if (this.#plan.resumed === undefined || this.#guest !== undefined) await record.conclude(end)
    else {
      // It was not continued, for want of memory or an image, say.
      disk.keep()
      record.leave({ ...end, message: `${end.message}\nTry again: caisson runs resume ${this.id}` })
    }
    return record.state
  }

  /** Calls the hooks after the run and journals their results. A run that was ended at once waits only briefly. */
  async #askAfter({ outcome, reason, message, summary }: Ending): Promise<void> {
    const { prompt, directory } = this.#plan
    const { changes } = this.#record.state
    const signal = this.#stop.signal.aborted ? AbortSignal.timeout(disbeliefGraceMs) : this.#stop.signal
    await this.#hooks.ask(
      'after-run',
      { prompt, directory, outcome, reason, message, summary, changes },
      signal,
    )
  }

  /** @param held what the run needs until its end is journaled, as another process may have to continue it */
  async #execute(disk: RunDisk, held: AsyncDisposableStack): Promise<Ending> {
    const { paths } = this.#record
    let earlier: EarlierAnswers | undefined
    if (this.#plan.resumed === undefined) await this.#begin()
    else earlier = await this.#recover('the host process of the run ended', true)
    const plan = await this.#prepareMachine()
    const workspace = held.use(
      (earlier === undefined
        ? undefined
        : await reopenWorkspace(paths, this.#record.state.checkpoint !== null)) ??
        (await prepareWorkspace(plan, this.#record, this.#stop.signal)),
    )
    for (;;) {
      try {
        return await this.#carryOut(plan, workspace, disk, earlier)
      } catch (error) {
        if (!this.#canRecover(error)) throw error
        earlier = await this.#recover(errorMessage(error), false)
      }
    }
  }

  /** Has an agent work from the last checkpoint, or from the beginning, to the end, and collects the changes. */
  async #carryOut(
    plan: ResolvedRun,
    workspace: PreparedWorkspace,
    disk: RunDisk,
    earlier: EarlierAnswers | undefined,
  ): Promise<Ending> {
    const parts = {
      record: this.#record,
      approvals: this.#approvals,
      claims: this.#claims,
      hooks: this.#hooks,
      diskSpace: this.#diskSpace,
      hostCallResults: this.#hostCallResults,
      elapsedMs: () => this.#elapsedMs,
      ...(this.#recoveries > 0 ? { checkpointDisk: await disk.open(this.#record.state.checkpoint) } : {}),
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
    const reported = await this.#work(guest).catch((error: unknown) => {
      if (this.#canRecover(error)) throw error
      return endingWithoutAgent(error)
    })
    const ending = await checkAnswer(reported, this.#plan.outputSchema)
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

  get #recoveries(): number {
    return this.#plan.vm.recoveries ?? DEFAULT_RECOVERIES
  }

  /** Time that counts toward the limit. */
  get #elapsedMs(): number {
    const leftMs = this.#deadline?.leftMs ?? this.#leftMs
    return Math.max(0, Math.round(this.#plan.limits.maxWallMs + wallGraceMs - leftMs))
  }

  /** Whether the run can continue with another agent. */
  #canRecover(error: unknown): boolean {
    if (this.#cancelling || this.#isVmStopped || this.#stop.signal.aborted) return false
    return hasCode(error, 'agent_lost', 'vm_lost') && this.#record.state.epoch <= this.#recoveries
  }

  /**
   * Back to the last checkpoint.
   * @param isOther whether another process had the run until now
   * @returns what the next agent is given again
   */
  async #recover(message: string, isOther: boolean): Promise<EarlierAnswers> {
    const { epoch, checkpoint } = this.#record.state
    const checkpointId = checkpoint?.checkpointId ?? null
    const past = new Past(checkpointId)
    await this.#record.visitPast((line) => past.next(line), isOther)
    if (isOther) this.#leftMs -= checkpoint?.elapsedMs ?? 0
    await this.#note({
      type: 'run-resume',
      epoch: epoch + 1,
      checkpointId,
      message: message.slice(0, limits.textMaxChars),
      ...(past.reached.length === 0 ? {} : { reached: past.reached }),
    })
    this.#claims.restore(this.#record.state)
    this.#approvals.restore(past.decided)
    if (isOther) this.#control.restore(past.messages)
    const recording = await this.#record.readExchanges(this.#plan.provider, checkpoint?.exchanges ?? 0)
    for (const [call, result] of readCalls(recording)) this.#hostCallResults.set(call, result)
    past.addUnknownCalls(this.#hostCallResults)
    return recording
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

  async #begin(): Promise<void> {
    const { prompt, provider, directory, metadata, continues, mode, given } = this.#plan
    await this.#note({
      type: 'run-start',
      prompt,
      model: provider.model,
      provider: provider.name,
      directory,
      ...(metadata === undefined ? {} : { metadata }),
      ...(continues === undefined ? {} : { continues: continues.runId }),
      ...(mode === 'work' ? {} : { mode }),
      ...(this.#approvesPlan ? { approvePlan: true } : {}),
      ...(given === undefined ? {} : { planFrom: given.from.slice(0, 500) }),
      limits: this.#plan.limits,
    })
    const { model, name } = provider
    const about = { prompt, directory, mode, model, provider: name }
    const { decision, reason = '' } = await this.#hooks.ask('before-run', about, this.#stop.signal)
    this.#stop.signal.throwIfAborted()
    if (decision === 'deny') throw new CaissonError('denied', `a hook refused the run: ${reason}`)
  }

  /** Submits the task and waits for its end: a completion, a cancellation, the deadline, or a loss. */
  async #work(guest: Guest): Promise<Ending> {
    this.#working = true
    const expired = Promise.withResolvers<string>()
    using deadline = new Deadline(
      this.#leftMs,
      () => expired.resolve('the time limit'),
      (leftMs, stoppedBy) => this.#tellTime(leftMs, stoppedBy),
    )
    this.#deadline = deadline
    const hibernation = this.#startHibernation(guest)
    try {
      const onAccepted = () => this.#control.begin(guest)
      const completed = untilAborted(guest.perform(this.#taskNow(), onAccepted), this.#stop.signal)
      completed.catch(() => undefined)
      const first = await Promise.race([
        completed,
        this.#cancelled.promise.then((by) => ({ stop: 'cancelled' as const, by })),
        expired.promise.then((by) => ({ stop: 'limit_time' as const, by })),
      ])
      if (!('stop' in first)) return endingOfCompletion(first)
      return await this.#cancelWork(guest, completed, first.stop, first.by)
    } catch (error) {
      if (this.#canRecover(error)) this.#control.lose()
      throw error
    } finally {
      if (!this.#control.isLost) this.#control.end()
      this.#leftMs = deadline.leftMs
      // Paused just as it ended: it could never be resumed.
      if (!this.#stop.signal.aborted) await this.setVmPaused(false)
      this.#deadline = undefined
      if (!this.#stop.signal.aborted) await hibernation?.wake()
      await hibernation?.end()
      this.#hibernation = undefined
    }
  }

  /** The task, for an agent that begins it or continues from a checkpoint. */
  #taskNow(): Task {
    const task = this.#taskToDo()
    const { checkpoint } = this.#record.state
    const maxWallMs = Math.max(1, task.limits.maxWallMs - this.#elapsedMs)
    return {
      ...task,
      limits: { ...task.limits, maxWallMs },
      ...(checkpoint === null ? {} : { resume: true as const }),
    }
  }

  /** Of a run from another process: as it was then, with the hooks of now, which the agent must ask. */
  #taskToDo(): Task {
    if (this.#plan.resumed === undefined) return taskOf(this.#plan, this.#approvesPlan)
    const { hooks: _, ...task } = this.#plan.resumed.task
    const hooks = this.#hooks.ofAgent
    return hooks.length === 0 ? task : { ...task, hooks: [...hooks] }
  }

  #tellTime(leftMs: number, stoppedBy: HoldReason | undefined): void {
    const remainingMs = Math.max(0, Math.round(leftMs - wallGraceMs))
    const why = stoppedBy === undefined ? {} : { stoppedBy }
    this.#record.delta('root', { type: 'time-left', remainingMs, at: Date.now(), ...why })
  }

  #startHibernation(guest: Guest): IdleHibernation | undefined {
    const { hibernateAfterMs = DEFAULT_HIBERNATE_AFTER_MS } = this.#plan.vm
    if (hibernateAfterMs > 0)
      this.#hibernation = new IdleHibernation(guest, hibernateAfterMs, (cause) => guest.lose(cause))
    return this.#hibernation
  }

  async #cancelWork(
    guest: Guest,
    completed: Promise<Completion>,
    reason: RunReason,
    by: string,
  ): Promise<Ending> {
    await this.#note({ type: 'cancel-request', by })
    await this.setVmPaused(false)
    this.#control.end()
    this.#approvals.close()
    const message = reason === 'cancelled' ? `cancelled by ${by}` : `the run reached ${by}`
    const grace = AbortSignal.timeout(cancelGraceMs)
    const summary = await Promise.race([
      guest
        .cancel(message, grace)
        .then(() => completed)
        .then((completion) => completion.summary),
      new Promise<string>((resolve) => grace.addEventListener('abort', () => resolve(''), { once: true })),
    ])
    return { outcome: reason === 'cancelled' ? 'cancelled' : 'failed', reason, message, summary }
  }

  #note(event: HostEvent): Promise<void> {
    return this.#record.host(event)
  }
}
