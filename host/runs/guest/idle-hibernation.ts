/**
 * Saves the VM of a run that only waits for a person, and wakes it when there is something to do. Decides when; how a
 * VM is saved is not known here. Whatever is asked of it happens one after the other.
 */
import type { RunState } from '#specs/protocol/run-state.ts'

/** Whether a tool is at work that no person is asked about, as the agent says: one that lies only stays awake. */
export function isAtWork({
  openCalls,
  pendingApprovals,
}: Pick<RunState, 'openCalls' | 'pendingApprovals'>): boolean {
  const asked = new Set(Object.values(pendingApprovals).map(({ callId }) => callId))
  return Object.keys(openCalls).some((callId) => !asked.has(callId))
}

export interface Sleeper {
  /** Whether something else than the person is being waited for. */
  isBusy(): boolean
  /** Rejects when the VM goes on instead. */
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
  #isAsleep = false
  /** A sleeping VM has no process or pipe by which this process would live on, and the answer may come by the control socket. */
  #vigil: NodeJS.Timeout | undefined
  #isOver = false
  #last: Promise<void> = Promise.resolve()

  /** @param afterMs how long a person is waited for before the VM is saved */
  constructor(sleeper: Sleeper, afterMs: number, onLost: (cause: unknown) => void) {
    this.#sleeper = sleeper
    this.#afterMs = afterMs
    this.#onLost = onLost
  }

  /** One question more (+1) or less (-1) waits for a person. */
  hold(change: number): void {
    this.#waiting += change
    // Who was answered goes on, though others still wait.
    if (change < 0) void this.rouse()
    if (this.#waiting > 0) this.#arm()
  }

  /** Resolves when the VM is awake, or is lost. */
  rouse(): Promise<void> {
    clearTimeout(this.#timer)
    return this.#enqueue(async () => {
      if (!this.#isAsleep) return
      this.#isAsleep = false
      await this.#sleeper.wake().catch(this.#onLost)
      clearInterval(this.#vigil)
      if (this.#waiting > 0) this.#arm()
    })
  }

  /** Nothing begins any more; resolves when what had begun is done. A VM that is asleep stays so. */
  async end(): Promise<void> {
    this.#isOver = true
    clearTimeout(this.#timer)
    await this.#last
    clearInterval(this.#vigil)
  }

  #arm(): void {
    clearTimeout(this.#timer)
    if (this.#isOver) return
    // Longer timers overflow in Node and fire at once.
    this.#timer = setTimeout(() => void this.#doze(), Math.min(this.#afterMs, 2 ** 31 - 1))
    this.#timer.unref()
  }

  async #doze(): Promise<void> {
    await this.#enqueue(async () => {
      if (this.#waiting === 0 || this.#isAsleep) return
      if (this.#sleeper.isBusy()) return this.#arm()
      // An answer that comes meanwhile stands in line to wake it.
      await this.#sleeper.sleep().then(
        () => {
          this.#isAsleep = true
          this.#vigil = setInterval(() => undefined, 2 ** 31 - 1)
        },
        // It goes on as it was, and is tried again later.
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
