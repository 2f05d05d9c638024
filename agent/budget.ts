/**
 * What one run may still spend: wall time, tool calls, tokens. The first bound that is passed trips the budget, which
 * aborts its signal for good. The clock stands still while a person thinks about an approval.
 */
import type { RunReason } from '#specs/protocol/error.ts'
import { addUsage, noUsage, type RunLimits, type Usage } from '#specs/protocol/task.ts'

export type LimitReason = Extract<RunReason, 'limit_calls' | 'limit_time' | 'limit_tokens'>

export class RunBudget {
  readonly #limits: RunLimits
  readonly #now: () => number
  readonly #controller = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #spentMs = 0
  /** When the clock was last started; null while it stands. */
  #startedAt: number | null
  #waiting = 0
  #held: PromiseWithResolvers<void> | null = null
  #stopped = false
  #calls = 0
  #usage: Usage = noUsage
  #tripped: { reason: LimitReason; message: string } | null = null

  /** Starts the clock. `now` counts milliseconds and never goes back. */
  constructor(limits: RunLimits, now: () => number = () => performance.now()) {
    this.#limits = limits
    this.#now = now
    this.#startedAt = now()
    this.#arm()
  }

  /** Aborted once a bound is passed. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  get tripped(): { readonly reason: LimitReason; readonly message: string } | null {
    return this.#tripped
  }

  get usage(): Usage {
    return this.#usage
  }

  /** What may still be spent: tool calls, tokens in and out, milliseconds. */
  get left(): { readonly calls: number; readonly tokens: number; readonly wallMs: number } {
    const { maxToolCalls, maxTokens, maxWallMs } = this.#limits
    const runningMs = this.#startedAt === null ? 0 : this.#now() - this.#startedAt
    return {
      calls: Math.max(0, maxToolCalls - this.#calls),
      tokens: Math.max(0, maxTokens - this.#usage.inputTokens - this.#usage.outputTokens),
      wallMs: Math.max(0, Math.round(maxWallMs - this.#spentMs - runningMs)),
    }
  }

  /** Takes one tool call; false when none is left. */
  takeCall(): boolean {
    if (this.#calls >= this.#limits.maxToolCalls) {
      this.#trip('limit_calls', `the run used its ${this.#limits.maxToolCalls} tool calls`)
      return false
    }
    this.#calls++
    return true
  }

  addUsage(usage: Usage): void {
    this.#usage = addUsage(this.#usage, usage)
    const tokens = this.#usage.inputTokens + this.#usage.outputTokens
    if (tokens > this.#limits.maxTokens) {
      this.#trip('limit_tokens', `the run used ${tokens} of ${this.#limits.maxTokens} tokens`)
    }
  }

  /** Awaits `work` with the clock standing; several may wait at once. */
  async whileWaiting<T>(work: Promise<T>): Promise<T> {
    if (this.#waiting++ === 0) this.#halt()
    try {
      return await work
    } finally {
      if (--this.#waiting === 0 && this.#tripped === null && !this.#stopped) {
        this.#startedAt = this.#now()
        this.#arm()
      }
    }
  }

  /** Lets the clock stand while the host says so; said twice it is the same. */
  hold(waiting: boolean): void {
    if (waiting === (this.#held !== null)) return
    if (waiting) {
      this.#held = Promise.withResolvers<void>()
      void this.whileWaiting(this.#held.promise)
    } else {
      this.#held?.resolve()
      this.#held = null
    }
  }

  /** Ends the clock; the budget trips no more by time. */
  stop(): void {
    this.#stopped = true
    this.#halt()
  }

  #halt(): void {
    clearTimeout(this.#timer)
    if (this.#startedAt !== null) this.#spentMs += this.#now() - this.#startedAt
    this.#startedAt = null
  }

  #arm(): void {
    const leftMs = Math.max(0, this.#limits.maxWallMs - this.#spentMs)
    // setTimeout fires at once beyond 2^31 - 1.
    this.#timer = setTimeout(() => this.#checkTime(), Math.min(leftMs, 2 ** 31 - 1))
  }

  #checkTime(): void {
    if (this.#startedAt === null) return
    this.#spentMs += this.#now() - this.#startedAt
    this.#startedAt = this.#now()
    if (this.#spentMs < this.#limits.maxWallMs) this.#arm()
    else this.#trip('limit_time', `the run used its ${this.#limits.maxWallMs} ms of time`)
  }

  #trip(reason: LimitReason, message: string): void {
    if (this.#tripped !== null) return
    this.#tripped = { reason, message }
    this.#halt()
    this.#controller.abort(new Error(message))
  }
}
