/**
 * Saves the VM of a run that waits only for a person, and wakes it when there is work. Decides when; the given VM
 * decides how. Requests run one at a time.
 */
import type { RunState } from '#specs/protocol/run-state.ts'

/**
 * Whether a tool runs without a question to a person, according to the agent. A false report only keeps the VM awake.
 * A program waits where a call that it made does.
 */
export function isAtWork({
  openCalls,
  pendingApprovals,
}: Pick<RunState, 'openCalls' | 'pendingApprovals'>): boolean {
  const asked = new Set(Object.values(pendingApprovals).map(({ callId }) => callId))
  for (const callId of [...asked]) {
    const parent = openCalls[callId]?.parentCallId
    if (parent !== undefined) asked.add(parent)
  }
  return Object.keys(openCalls).some((callId) => !asked.has(callId))
}

export interface Sleeper {
  /** Whether the run waits for anything besides the person. */
  isBusy(): boolean
  /** Rejects when the VM continues instead. */
  sleep(): Promise<void>
  /** Rejects when the VM is lost. */
  wake(): Promise<void>
}

export class IdleHibernation {
  readonly #sleeper: Sleeper
  readonly #afterMs: number
  readonly #onLost: (cause: unknown) => void
  #waiting = 0
  #timer: NodeJS.Timeout | undefined
  #isHibernated = false
  /**
   * A saved VM has no process or pipe that keeps this process alive, and the answer may arrive over the control socket.
   */
  #keepAlive: NodeJS.Timeout | undefined
  #isOver = false
  #last: Promise<void> = Promise.resolve()

  /** @param afterMs how long to wait for a person before the VM is saved */
  constructor(sleeper: Sleeper, afterMs: number, onLost: (cause: unknown) => void) {
    this.#sleeper = sleeper
    this.#afterMs = afterMs
    this.#onLost = onLost
  }

  /** One question more (+1) or fewer (-1) waits for a person. */
  hold(change: number): void {
    this.#waiting += change
    // The answered call continues even while other questions wait.
    if (change < 0) void this.wake()
    if (this.#waiting > 0) this.#arm()
  }

  /** Resolves when the VM is awake, or lost. */
  wake(): Promise<void> {
    clearTimeout(this.#timer)
    return this.#enqueue(async () => {
      if (!this.#isHibernated) return
      this.#isHibernated = false
      await this.#sleeper.wake().catch(this.#onLost)
      clearInterval(this.#keepAlive)
      if (this.#waiting > 0) this.#arm()
    })
  }

  /** Prevents further saves; resolves when the current one is done. A saved VM stays saved. */
  async end(): Promise<void> {
    this.#isOver = true
    clearTimeout(this.#timer)
    await this.#last
    clearInterval(this.#keepAlive)
  }

  #arm(): void {
    clearTimeout(this.#timer)
    if (this.#isOver) return
    // Node fires longer timers immediately.
    this.#timer = setTimeout(() => void this.#hibernate(), Math.min(this.#afterMs, 2 ** 31 - 1))
    this.#timer.unref()
  }

  async #hibernate(): Promise<void> {
    await this.#enqueue(async () => {
      if (this.#waiting === 0 || this.#isHibernated) return
      if (this.#sleeper.isBusy()) return this.#arm()
      // An answer that arrives meanwhile queues a wake behind this save.
      await this.#sleeper.sleep().then(
        () => {
          this.#isHibernated = true
          this.#keepAlive = setInterval(() => undefined, 2 ** 31 - 1)
        },
        // The VM continues as before; try again later.
        () => this.#arm(),
      )
    })
  }

  #enqueue(work: () => Promise<void>): Promise<void> {
    const turn = this.#last.then(() => (this.#isOver ? undefined : work()))
    this.#last = turn.catch(() => undefined)
    return turn
  }
}
