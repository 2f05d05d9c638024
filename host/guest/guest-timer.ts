/**
 * A time limit for the guest's answers. It counts neither time in which this process stood still nor time in which the
 * VM's process did (SIGSTOP, swapping): its monitor does not answer then, and nothing in the guest runs.
 */
import { AwakeTimer } from '#specs/node/awake-timer.ts'

/** Settles once the VM's process has answered. */
export type ProbeVm = () => Promise<unknown>

const tickMs = 1_000
/** A VM whose monitor takes longer stands still. */
const stillMs = 2_000

export class GuestTimer {
  readonly #timeoutMs: number
  readonly #onEnd: () => void
  readonly #probe: ProbeVm | undefined
  #leftMs: number
  #step: AwakeTimer | null = null
  /** Time since the open probe was sent; null without one. */
  #probedMs: number | null = null
  /** Whether the time is over, and the VM is asked whether it ran until then. */
  #isLast = false

  /**
   * Calls `onEnd` after `timeoutMs`. A VM that stood still and continues has the whole time again.
   * @param probe absent: only this process is watched
   */
  constructor(timeoutMs: number, onEnd: () => void, probe?: ProbeVm) {
    this.#timeoutMs = timeoutMs
    this.#leftMs = timeoutMs
    this.#onEnd = onEnd
    this.#probe = probe
    this.#wait()
  }

  cancel(): void {
    this.#step?.cancel()
  }

  #wait(): void {
    // At the end of the time the open probe is waited for.
    const leftMs = this.#leftMs < 1 ? tickMs : this.#leftMs
    const stepMs = Math.min(leftMs, tickMs, this.#timeoutMs / 4)
    this.#step = new AwakeTimer(stepMs, () => this.#onStep(stepMs))
  }

  #onStep(stepMs: number): void {
    if (this.#probedMs !== null) this.#probedMs += stepMs
    const isStill = (this.#probedMs ?? 0) >= Math.min(stillMs, this.#timeoutMs / 2)
    this.#leftMs = isStill ? this.#timeoutMs : Math.max(0, this.#leftMs - stepMs)
    const isAnswered = this.#probedMs === null
    if (this.#leftMs < 1 && isAnswered && (this.#isLast || this.#probe === undefined)) {
      this.#onEnd()
      return
    }
    this.#isLast = this.#leftMs < 1 && (this.#isLast || isAnswered)
    this.#ask()
    this.#wait()
  }

  #ask(): void {
    if (this.#probe === undefined || this.#probedMs !== null) return
    this.#probedMs = 0
    const answered = (): void => {
      this.#probedMs = null
    }
    this.#probe().then(answered, answered)
  }
}
