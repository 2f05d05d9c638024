import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { Completion } from '#specs/protocol/task.ts'
import { asksAboutPlan } from '../approvals/plan-question.ts'
import { type ApprovalAnswer, ApprovalQueue } from '../approvals/queue.ts'
import {
  application,
  type CancelOptions,
  type RunActor,
  type RunHandle,
  type RunResult,
  requireDone,
  resultOf,
} from '../control/run-handle.ts'
import { ControlServer } from '../control/server.ts'
import { RunHooks } from '../hooks/run-hooks.ts'
import type { FeedItem } from '../journal/run-feed.ts'
import type { RunRecord } from '../journal/run-record.ts'
import { findSavedVm } from '../vm/hibernation/hibernate.ts'
import { flaggedPaths } from '../workspace/index.ts'
import { Deadline } from './deadline.ts'
import { RoomKeeper } from './disk-space-wait.ts'
import { type Ending, endingOf } from './ending.ts'
import { AgentControl } from './guest/agent-control.ts'
import { AgentEventValidator } from './guest/agent-event-validator.ts'
import { Guest } from './guest/guest.ts'
import { HiddenApprovals } from './guest/hidden-approvals.ts'
import { IdleHibernation } from './guest/idle-hibernation.ts'
import { type PreparedWorkspace, prepareWorkspace, requireValue } from './prepare.ts'
import type { ResolvedRun } from './resolved-run.ts'
import { taskOf } from './task.ts'

/** Time that the agent has to complete a cancelled task before the VM is ended. */
const cancelGraceMs = 10_000
/** Time that an agent which is not believed any more has to hear that it is to stop. */
const disbeliefGraceMs = 2_000
/** A person who has not answered by then is not about to: the VM's memory is given back until the answer. */
const defaultHibernateAfterMs = 5 * 60_000
/** Time over the run's own wall time before the host ends the run itself; the agent is expected to keep the limit. */
const wallGraceMs = 15_000

export class Run implements RunHandle {
  readonly id: string
  /** Resolves with the final state; never rejects. */
  readonly ended: Promise<RunState>
  readonly #plan: ResolvedRun
  readonly #record: RunRecord
  readonly #approvals: ApprovalQueue
  readonly #claims: AgentEventValidator
  readonly #control: AgentControl
  readonly #hooks: RunHooks
  readonly #approvesPlan: boolean
  readonly #stop = new AbortController()
  readonly #room: RoomKeeper
  readonly #cancelled = Promise.withResolvers<string>()
  readonly #startedAt = performance.now()
  #deadline: Deadline | undefined
  #nap: IdleHibernation | undefined
  #guest: Guest | undefined
  readonly #unseen = new HiddenApprovals((waiting) => this.#guest?.holdTask(waiting))
  #cancelling = false
  /** Whether the agent has, or is about to have, the task, so that it is to be asked before the VM is ended. */
  #working = false

  constructor(plan: ResolvedRun, record: RunRecord) {
    this.id = plan.runId
    this.#plan = plan
    this.#record = record
    const { mode, given, limits, approvals } = plan
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
      maxAgents: limits.maxAgents,
      hooks: this.#hooks.ofAgent,
      ...(given === undefined ? {} : { plan: given.plan }),
    })
    this.#approvals = new ApprovalQueue({
      ...approvals,
      record: (event) => this.#note(event),
      onWaiting: (change, isUnseen) => {
        this.#hold(change)
        if (isUnseen) this.#unseen.hold(change)
      },
      findPlanProblems: (next) => this.#claims.findPlanProblems(next),
      onPlanAllowed: (allowed) => this.#claims.allowPlan(allowed),
    })
    this.#control = new AgentControl({
      note: (event) => this.#note(event),
      onHold: (change) => this.#hold(change),
    })
    this.#room = new RoomKeeper({
      onNotice: (notice) => record.delta('root', notice),
      onWaited: (event) => void this.#note(event).catch(() => undefined),
      onHold: (change) => this.#deadline?.hold(change),
      maxWaitMs: limits.maxWallMs,
    })
    record.waitForRoom(this.#room.wait)
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

  /** All events so far, then events and deltas as they come, until the run has ended. */
  watch(): AsyncIterableIterator<FeedItem> {
    return this.#record.feed.watch()
  }

  async answer(approvalId: string, answer: ApprovalAnswer): Promise<boolean> {
    return this.#approvals.answer(approvalId, answer)
  }

  /** Whether an approval waits for an answer. */
  hasPendingApproval(approvalId: string): boolean {
    return this.#approvals.pending.includes(approvalId)
  }

  /** Resolves when the approval does not wait for an answer any more. */
  whenResolved(approvalId: string): Promise<void> {
    return this.#approvals.whenResolved(approvalId)
  }

  /** This process answers no more approvals: those that wait and those to come are denied. The run goes on. */
  async detach(): Promise<void> {
    this.#approvals.detach()
  }

  async result(): Promise<RunResult> {
    return resultOf(this.id, await this.ended, this.journalHead)
  }

  async cancel({ by = application, now = false }: CancelOptions = {}): Promise<void> {
    if (now) this.#stop.abort(new CaissonError('cancelled', `ended at once by ${by}`))
    else if (!this.#working) this.#stop.abort(new CaissonError('cancelled', `cancelled by ${by}`))
    if (this.#cancelling) return
    this.#cancelling = true
    this.#room.giveUp(`cancelled by ${by}`)
    this.#cancelled.resolve(by)
  }

  async steer(text: string, { by = application }: RunActor = {}): Promise<void> {
    await requireDone(this.#control.steer(text, by))
  }

  /** The VM's processors keep running; to stop those use {@link setVmPaused}. A VM that is paused for long is hibernated. */
  async pause({ by = application }: RunActor = {}): Promise<void> {
    await requireDone(this.#control.setPaused(true, by))
  }

  async resume({ by = application }: RunActor = {}): Promise<void> {
    await requireDone(this.#control.setPaused(false, by))
  }

  /** One reason more (+1) or less (-1) for the run's time to stand still, and for the VM to be saved after a while. */
  #hold(change: number): void {
    this.#deadline?.hold(change)
    this.#nap?.hold(change)
  }

  /** Lets other processes of the user watch, answer, steer, pause and cancel; a run goes on without. */
  #serveControl(path: string): void {
    const opening = ControlServer.open(path, { run: this }).catch(() => null)
    // After its end: watchers are told how it ended.
    void this.ended.then(async () => (await opening)?.[Symbol.asyncDispose]())
  }

  /**
   * Lets the VM's processors stand still, or go on; the run's time limit stands still with them. The agent knows nothing of
   * it; to have it hold between two effects use {@link pause}.
   * @returns the reason when that cannot be now: no VM at work, or one that is saved
   */
  async setVmPaused(paused: boolean): Promise<string | undefined> {
    const guest = this.#guest
    const deadline = this.#deadline
    if (guest === undefined || deadline === undefined) return 'the run has no VM at work now'
    const was = guest.isPaused
    const problem = await guest.setPaused(paused)
    if (guest.isPaused !== was) deadline.hold(paused ? 1 : -1)
    return problem
  }

  async #live(): Promise<RunState> {
    await using record = this.#record
    let ending: Ending
    try {
      ending = await this.#carryOut()
    } catch (error) {
      // Whatever broke after the run was told to stop broke because of that.
      ending = endingOf(this.#stop.signal.aborted ? this.#stop.signal.reason : error)
    }
    ending = await this.#nameKeptVm(ending)
    this.#approvals.close()
    await this.#askAfter(ending).catch(() => undefined)
    this.#hooks.close()
    const durationMs = Math.round(performance.now() - this.#startedAt)
    await record.conclude({ type: 'run-end', ...ending, usage: record.state.usage, durationMs })
    return record.state
  }

  /** A run that ended before it took the VM that it was to continue in leaves it: that takes disk, and is said. */
  async #nameKeptVm(ending: Ending): Promise<Ending> {
    const { continues } = this.#plan
    if (continues === undefined || ending.outcome === 'completed') return ending
    if ((await findSavedVm(continues.kept).catch(() => undefined)) === undefined) return ending
    const { keptBy } = continues
    const message =
      `${ending.message.slice(0, 7_500)}\nThe VM of ${keptBy} is kept. Go on in it: caisson run --continue ${keptBy} "TASK". ` +
      `Remove it with its run: caisson runs rm ${keptBy}`
    return { ...ending, message }
  }

  /** The hooks behind the run; what they say of it is in the journal. A run that was ended at once does not wait long. */
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

  async #carryOut(): Promise<Ending> {
    await this.#begin()
    await using workspace = await prepareWorkspace(this.#plan, this.#record, this.#stop.signal)
    const parts = {
      record: this.#record,
      approvals: this.#approvals,
      claims: this.#claims,
      hooks: this.#hooks,
      room: this.#room,
    }
    await using guest = await Guest.start(this.#plan, parts, workspace, this.#stop.signal, {
      stop: (now) => void this.cancel({ by: 'caisson vm stop', now }),
      setPaused: (paused) => this.setVmPaused(paused),
    })
    this.#guest = guest
    const ending = await this.#work(guest).catch((error: unknown) => endingWithoutAgent(error))
    if (ending.reason === 'protocol_violation')
      await guest.cancel(ending.message.slice(0, 1_000), AbortSignal.timeout(disbeliefGraceMs))
    const isOnlyPlan = this.#plan.mode === 'plan'
    const collected = isOnlyPlan ? this.#checkPlan(ending) : await this.#collect(guest, workspace, ending)
    // A VM that could not be saved ends as any other; the next run begins with a new one and is told.
    if (this.#plan.keep && ending.outcome !== 'cancelled')
      await guest.keep(this.#stop.signal).catch((cause: unknown) => this.#noteNotKept(cause))
    return collected
  }

  #noteNotKept(cause: unknown): Promise<void> {
    const message = errorMessage(cause).slice(0, 2_000)
    return this.#note({ type: 'vm-keep-failed', message })
  }

  async #begin(): Promise<void> {
    const { prompt, provider, directory, limits, image, continues, mode, given } = this.#plan
    await this.#note({
      type: 'run-start',
      prompt,
      model: provider.model,
      provider: provider.name,
      directory,
      ...(continues === undefined ? {} : { continues: continues.runId }),
      ...(mode === 'work' ? {} : { mode }),
      ...(this.#approvesPlan ? { approvePlan: true } : {}),
      ...(given === undefined ? {} : { planFrom: given.from.slice(0, 500) }),
      limits,
      imageKey: image.key,
      agentDigest: image.agentDigest,
    })
    const { model, name } = provider
    const about = { prompt, directory, mode, model, provider: name }
    const { decision, reason = '' } = await this.#hooks.ask('before-run', about, this.#stop.signal)
    this.#stop.signal.throwIfAborted()
    if (decision === 'deny') throw new CaissonError('denied', `a hook refused the run: ${reason}`)
  }

  /** Hands over the task and waits for its end: by the agent, a cancellation, the deadline, or a loss. */
  async #work(guest: Guest): Promise<Ending> {
    const { limits } = this.#plan
    this.#working = true
    const expired = Promise.withResolvers<string>()
    using deadline = new Deadline(limits.maxWallMs + wallGraceMs, () => expired.resolve('the time limit'))
    this.#deadline = deadline
    const nap = this.#startNap(guest)
    try {
      const onAccepted = () => this.#control.begin(guest)
      const completed = this.#guarded(
        guest.perform(taskOf(this.#plan, this.#hooks, this.#approvesPlan), onAccepted),
      )
      completed.catch(() => undefined)
      const first = await Promise.race([
        completed,
        this.#cancelled.promise.then((by) => ({ stop: 'cancelled' as const, by })),
        expired.promise.then((by) => ({ stop: 'limit_time' as const, by })),
      ])
      if (!('stop' in first)) return endingOfCompletion(first)
      return await this.#cancelWork(guest, completed, first.stop, first.by)
    } finally {
      this.#control.end()
      // Paused just as it ended: nobody could resume it any more.
      if (!this.#stop.signal.aborted) await this.setVmPaused(false)
      this.#deadline = undefined
      if (!this.#stop.signal.aborted) await nap?.rouse()
      await nap?.end()
      this.#nap = undefined
    }
  }

  #startNap(guest: Guest): IdleHibernation | undefined {
    const { hibernateAfterMs = defaultHibernateAfterMs } = this.#plan.vm
    if (hibernateAfterMs > 0)
      this.#nap = new IdleHibernation(guest, hibernateAfterMs, (cause) => guest.lose(cause))
    return this.#nap
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

  /** Of a run that only plans nothing comes home but the plan, which is in the journal. */
  #checkPlan(ending: Ending): Ending {
    if (ending.outcome !== 'completed' || this.#record.state.plan !== null) return ending
    const message = 'the agent says that its plan is made, but gave none'
    return { ...ending, outcome: 'failed', reason: 'protocol_violation', message }
  }

  /** The change set comes home after a failure too, as far as the VM still answers; the ending then stays what it was. */
  async #collect(guest: Guest, workspace: PreparedWorkspace, ending: Ending): Promise<Ending> {
    try {
      const received = await this.#guarded(guest.collect(workspace))
      const flagged = requireValue(await this.#guarded(flaggedPaths(workspace.manifest, received))).slice(
        0,
        1_000,
      )
      const { contentBytes, sha256 } = received
      await this.#note({
        type: 'changes-ready',
        entries: received.entries.size,
        contentBytes,
        flagged,
        sha256,
      })
      return ending
    } catch (error) {
      if (ending.outcome === 'completed') throw error
      const { message } = endingOf(error)
      return {
        ...ending,
        message: `${ending.message}\nits changes did not come home: ${message}`.slice(0, 8_000),
      }
    }
  }

  /** `work`, or the failure that ends the run at once. */
  async #guarded<T>(work: Promise<T>): Promise<T> {
    const { signal } = this.#stop
    // It has begun, and fails for itself when the run has ended meanwhile: with nobody listening that ends the process.
    work.catch(() => undefined)
    signal.throwIfAborted()
    const aborted = Promise.withResolvers<never>()
    const onAbort = () => aborted.reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      return await Promise.race([work, aborted.promise])
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  #note(event: HostEvent): Promise<void> {
    return this.#record.host(event)
  }
}

/** An agent that is lost, or that said what cannot be, ends the run, but its VM may still give the changes. */
function endingWithoutAgent(error: unknown): Ending {
  if (hasCode(error, 'agent_lost', 'protocol_violation')) return endingOf(error)
  throw error
}

function endingOfCompletion({ outcome, reason, message, summary }: Completion): Ending {
  // The agent's word on its own end is a claim; an outcome and a reason that do not agree are a failure of the agent.
  if ((outcome === 'completed') !== (reason === 'completed')) {
    return {
      outcome: 'failed',
      reason: 'protocol_violation',
      message: `the agent reported ${outcome} because of ${reason}`,
      summary,
    }
  }
  return { outcome, reason, message, summary }
}
