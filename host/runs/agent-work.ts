/**
 * The work of a run's agents on the task: submits it and waits for its end, which is a completion, a cancellation, the
 * deadline, a loss, or that the run goes to sleep. Stops the clock and saves the VM while a person is waited for.
 */
import * as z from 'zod'
import { AwakeLimit } from '#specs/node/awake-timer.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import type { Completion, Task } from '#specs/protocol/task.ts'
import type { ApprovalQueue } from '../approvals/queue.ts'
import { checkArguments } from '../files/check-arguments.ts'
import type { RunRecord } from '../journal/run-record.ts'
import type { HoldReason } from './deadline.ts'
import { type Ending, endingOfCompletion } from './ending.ts'
import type { AgentControl } from './guest/agent-control.ts'
import type { Guest } from './guest/guest.ts'
import { failureOfWake } from './guest/guest-end.ts'
import { IdleHibernation, type Sleeper } from './guest/idle-hibernation.ts'
import { IdleSleep } from './idle-sleep.ts'
import type { RunClock } from './run-clock.ts'
import { untilAborted } from './until-aborted.ts'

/** Time for the agent to complete a cancelled task before the VM is ended. */
const cancelGraceMs = 10_000

interface AgentWorkParts {
  readonly record: RunRecord
  readonly approvals: ApprovalQueue
  readonly control: AgentControl
  readonly clock: RunClock
  /** Ends the run at once. */
  readonly stop: AbortSignal
  /** 0: never. */
  readonly hibernateAfterMs: number
  /** 0: never. */
  readonly sleepAfterMs: number
  /** Whether another agent can continue after this failure. */
  readonly canRecover: (error: unknown) => boolean
  /** The VM is saved: another run may use one. */
  readonly leaveQueue: () => void
  /** Resolves when the run may use a VM again. */
  readonly queueAgain: () => Promise<void>
}

/** The run sleeps: its agent ends, and its questions wait on. */
export interface Sleeping {
  /** Resolves once one of its questions is decided. */
  readonly answered: Promise<void>
}

export class AgentWork {
  readonly #parts: AgentWorkParts
  readonly #cancelled = Promise.withResolvers<string>()
  #sleep: IdleSleep | undefined
  #hibernation: IdleHibernation | undefined
  #guest: Guest | undefined
  #hasBegun = false

  constructor(parts: AgentWorkParts) {
    this.#parts = parts
  }

  /** Whether an agent has the task, or is about to get it. If so, it is asked to stop before the VM is ended. */
  get hasBegun(): boolean {
    return this.#hasBegun
  }

  /** Resolves when somebody cancels the run. */
  get cancelled(): Promise<unknown> {
    return this.#cancelled.promise
  }

  cancel(by: string): void {
    this.#cancelled.resolve(by)
  }

  /** Adds (+1) or removes (-1) a reason to pause the run's deadline, and to save the VM after a while. */
  hold(change: number, reason: HoldReason): void {
    this.#parts.clock.hold(change, reason)
    this.#hibernation?.hold(change)
    this.#sleep?.hold(change, reason)
  }

  /**
   * Pauses or resumes the VM's processors and the run's deadline. The agent does not notice.
   * @returns why this is not possible now: no VM, or a saved one; undefined on success
   */
  async setVmPaused(paused: boolean): Promise<string | undefined> {
    checkArguments('whether to pause cannot be used', z.boolean(), paused)
    const { clock } = this.#parts
    const guest = this.#guest
    if (guest === undefined || !clock.isStarted) return 'the run has no active VM'
    const was = guest.isPaused
    const problem = await guest.setPaused(paused)
    if (guest.isPaused !== was) clock.hold(paused ? 1 : -1, 'pause')
    return problem
  }

  /** Submits the task and waits for its end. @throws {CaissonError} when the agent or the VM is lost */
  async perform(guest: Guest, task: () => Task): Promise<Ending | Sleeping> {
    const { clock, control, stop, canRecover } = this.#parts
    this.#hasBegun = true
    this.#guest = guest
    const expired = Promise.withResolvers<string>()
    const running = clock.start(() => expired.resolve('the time limit'))
    const sleeping = Promise.withResolvers<Sleeping>()
    const hibernation = this.#startHibernation(guest)
    using _ = this.#startSleep(guest, sleeping.resolve)
    let isSleeping = false
    try {
      const completed = untilAborted(
        guest.perform(task(), () => control.begin(guest)),
        stop,
      )
      completed.catch(() => undefined)
      const first = await Promise.race([
        completed,
        this.#cancelled.promise.then((by) => ({ stop: 'cancelled' as const, by })),
        expired.promise.then((by) => ({ stop: 'limit_time' as const, by })),
        sleeping.promise,
      ])
      if ('answered' in first) {
        isSleeping = true
        control.lose()
        return first
      }
      if (!('stop' in first)) return endingOfCompletion(first)
      return await this.#cancelWork(guest, completed, first.stop, first.by)
    } catch (error) {
      if (canRecover(error)) control.lose()
      throw error
    } finally {
      if (!control.isLost) control.end()
      // Paused just as it ended: it could never be resumed.
      if (!stop.aborted) await this.setVmPaused(false)
      running[Symbol.dispose]()
      if (!stop.aborted && !isSleeping) await hibernation?.wake()
      await hibernation?.end()
      this.#hibernation = undefined
    }
  }

  #startHibernation(guest: Guest): IdleHibernation | undefined {
    const { hibernateAfterMs } = this.#parts
    if (hibernateAfterMs > 0)
      this.#hibernation = new IdleHibernation(this.#sleeperOf(guest), hibernateAfterMs, (cause) =>
        guest.lose(failureOfWake(cause)),
      )
    return this.#hibernation
  }

  /** A saved VM leaves its place to another run. The clock stands still until it has one again. */
  #sleeperOf(guest: Guest): Sleeper {
    const { clock, leaveQueue, queueAgain } = this.#parts
    return {
      isBusy: () => guest.isBusy(),
      sleep: async () => {
        await guest.sleep()
        leaveQueue()
      },
      wake: async () => {
        clock.hold(1, 'queue')
        await queueAgain().finally(() => clock.hold(-1, 'queue'))
        await guest.wake()
      },
    }
  }

  #startSleep(guest: Guest, resolve: (sleeping: Sleeping) => void): IdleSleep {
    const { sleepAfterMs, approvals, control, record } = this.#parts
    this.#sleep = new IdleSleep({
      afterMs: sleepAfterMs,
      canSleep: () =>
        record.state.checkpoint !== null &&
        (approvals.pending.length > 0 || control.isPaused) &&
        // A program in the middle of its calls is saved with its VM, and only there.
        Object.values(record.state.openCalls).every(({ parentCallId }) => parentCallId === undefined) &&
        !guest.isBusy(),
      onSleep: () => resolve({ answered: approvals.park() }),
    })
    return this.#sleep
  }

  async #cancelWork(
    guest: Guest,
    completed: Promise<Completion>,
    reason: RunReason,
    by: string,
  ): Promise<Ending> {
    const { record, control, approvals } = this.#parts
    await record.host({ type: 'cancel-request', by, ...(reason === 'cancelled' ? {} : { limit: true }) })
    await this.setVmPaused(false)
    control.end()
    approvals.close()
    const message = reason === 'cancelled' ? `cancelled by ${by}` : `the run reached ${by}`
    using grace = new AwakeLimit(cancelGraceMs)
    const summary = await Promise.race([
      guest
        .cancel(message, grace.signal)
        .then(() => completed)
        .then((completion) => completion.summary),
      new Promise<string>((resolve) =>
        grace.signal.addEventListener('abort', () => resolve(''), { once: true }),
      ),
    ])
    return { outcome: reason === 'cancelled' ? 'cancelled' : 'failed', reason, message, summary }
  }
}
