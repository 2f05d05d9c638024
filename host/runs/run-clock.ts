/** The time limit of a run over all its agents. It stands still while the run waits for a person or for disk space. */
import type { RunRecord } from '../journal/run-record.ts'
import { Deadline, type HoldReason } from './deadline.ts'

/** Grace period after the run's wall time before the host ends the run; the agent should enforce the limit itself. */
const wallGraceMs = 15_000

export class RunClock {
  readonly #maxWallMs: number
  readonly #record: Pick<RunRecord, 'delta'>
  #deadline: Deadline | undefined
  /** Until the host ends the run. */
  #leftMs: number

  /** @param record shows watchers the time that is left */
  constructor(maxWallMs: number, record: Pick<RunRecord, 'delta'>) {
    this.#maxWallMs = maxWallMs
    this.#record = record
    this.#leftMs = maxWallMs + wallGraceMs
  }

  /** Whether an agent works, or waits, under the limit. */
  get isStarted(): boolean {
    return this.#deadline !== undefined
  }

  /** Time that counts toward the limit. */
  get elapsedMs(): number {
    const leftMs = this.#deadline?.leftMs ?? this.#leftMs
    return Math.max(0, Math.round(this.#maxWallMs + wallGraceMs - leftMs))
  }

  /** Counts time that another process used. */
  add(elapsedMs: number): void {
    this.#leftMs -= elapsedMs
  }

  /** Until the result is disposed. */
  start(onExpire: () => void): Disposable {
    const deadline = new Deadline(this.#leftMs, onExpire, (leftMs, stoppedBy) =>
      this.#tell(leftMs, stoppedBy),
    )
    this.#deadline = deadline
    return {
      [Symbol.dispose]: () => {
        this.#leftMs = deadline.leftMs
        this.#deadline = undefined
        deadline[Symbol.dispose]()
      },
    }
  }

  /** Adds (+1) or removes (-1) a reason to stand still. */
  hold(change: number, reason: HoldReason): void {
    this.#deadline?.hold(change, reason)
  }

  #tell(leftMs: number, stoppedBy: HoldReason | undefined): void {
    const remainingMs = Math.max(0, Math.round(leftMs - wallGraceMs))
    const why = stoppedBy === undefined ? {} : { stoppedBy }
    this.#record.delta('root', { type: 'time-left', remainingMs, at: Date.now(), ...why })
  }
}
