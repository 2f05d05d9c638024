/** Passes tasks from the host to the loop: one at a time, each run at most once, cancelled by id. */
import type { Task } from '#specs/protocol/task.ts'
import { Steering, type SteerMessage } from './steering.ts'

export interface ReceivedTask {
  readonly task: Task
  /** Aborted by a cancel; its reason is the host's text. */
  readonly signal: AbortSignal
  /** Called whenever the host starts or stops asking a person on the agent's behalf. */
  onHold(listener: (waiting: boolean) => void): void
  readonly steering: Steering
}

/** Number of remembered finished runs, so that a task resubmitted after a lost session does not run again. */
const rememberedRuns = 64

export class TaskInbox {
  #current: {
    task: Task
    controller: AbortController
    hold: (waiting: boolean) => void
    steering: Steering
  } | null = null
  #taken = false
  #onTask: (() => void) | null = null
  readonly #finished: string[] = []

  /** The submitted run that has not been completed. */
  get currentRunId(): string | undefined {
    return this.#current?.task.runId
  }

  /** `known`: that run is active or over, nothing changes; `busy`: another one is active. */
  submit(task: Task): 'accepted' | 'known' | 'busy' {
    if (this.#current?.task.runId === task.runId || this.#finished.includes(task.runId)) return 'known'
    if (this.#current !== null) return 'busy'
    this.#current = {
      task,
      controller: new AbortController(),
      hold: () => undefined,
      steering: new Steering(),
    }
    this.#taken = false
    this.#onTask?.()
    return 'accepted'
  }

  /** False for an unknown run; a finished run stays as it is. */
  cancel(runId: string, reason: string): boolean {
    if (this.#current?.task.runId !== runId) return this.#finished.includes(runId)
    this.#current.controller.abort(reason)
    return true
  }

  /** False for an unknown run. */
  hold(runId: string, waiting: boolean): boolean {
    if (this.#current?.task.runId !== runId) return this.#finished.includes(runId)
    this.#current.hold(waiting)
    return true
  }

  /** `busy`: too many unseen messages; a finished run answers `over`. */
  steer(runId: string, message: SteerMessage): 'taken' | 'busy' | 'over' | 'unknown' {
    if (this.#current?.task.runId === runId) return this.#current.steering.push(message)
    return this.#finished.includes(runId) ? 'over' : 'unknown'
  }

  /** False for an unknown run; a finished run stays as it is. */
  pause(runId: string, paused: boolean): boolean {
    if (this.#current?.task.runId !== runId) return this.#finished.includes(runId)
    this.#current.steering.setPaused(paused)
    return true
  }

  /** The next task; null once `signal` is aborted. Only one caller may wait. */
  async receiveTask(signal: AbortSignal): Promise<ReceivedTask | null> {
    while (!signal.aborted) {
      if (this.#current !== null && !this.#taken) {
        this.#taken = true
        const current = this.#current
        const onHold = (listener: (waiting: boolean) => void): void => {
          current.hold = listener
        }
        return { task: current.task, signal: current.controller.signal, onHold, steering: current.steering }
      }
      await new Promise<void>((resolve) => {
        this.#onTask = resolve
        signal.addEventListener('abort', () => resolve(), { once: true })
      })
    }
    return null
  }

  /** Accepts the next task from here on. */
  finish(runId: string): void {
    if (this.#current?.task.runId !== runId) return
    this.#current = null
    this.#finished.push(runId)
    if (this.#finished.length > rememberedRuns) this.#finished.shift()
  }
}
