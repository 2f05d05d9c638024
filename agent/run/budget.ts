/**
 * What a run may still spend: wall time, tool calls, tokens. The first exceeded limit trips the budget and aborts its
 * signal permanently. The clock stops while a person considers an approval.
 * A sub-agent's budget is a part of its parent's: the parent pays what the part spends. A part trips alone. Parts
 * never get more than the parent has left; the unused remainder returns at the part's end.
 */

import type { RunReason } from '#specs/protocol/error.ts'
import type { AgentLimits } from '#specs/protocol/plan.ts'
import { addUsage, noUsage, type RunLimits, type Usage } from '#specs/protocol/task.ts'

type LimitReason = Extract<RunReason, 'limit_calls' | 'limit_time' | 'limit_tokens'>

/** The limits of a run that a budget counts. */
export type RunBudgetLimits = Pick<RunLimits, 'maxToolCalls' | 'maxTokens' | 'maxWallMs'>

/** Share of the remaining time for a sub-agent that asks for none: its parent needs time for the result. */
const wallShare = 0.75

export class RunBudget {
  readonly #limits: RunBudgetLimits
  readonly #parent: RunBudget | null
  readonly #parts = new Set<RunBudget>()
  readonly #now: () => number
  readonly #controller = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #spentMs = 0
  /** When the clock was last started; null while it is stopped. */
  #startedAt: number | null = null
  #waiting: number
  #held: PromiseWithResolvers<void> | null = null
  #stopped = false
  #calls = 0
  #usage: Usage = noUsage
  #tripped: { reason: LimitReason; message: string } | null = null

  /** Starts the clock. `now` is monotonic, in milliseconds. */
  constructor(limits: RunBudgetLimits, now: () => number = () => performance.now(), parent?: RunBudget) {
    this.#limits = limits
    this.#parent = parent ?? null
    this.#now = now
    // A part may begin while a person considers an approval.
    this.#waiting = parent === undefined ? 0 : parent.#whole.#waiting
    if (this.#waiting === 0) this.#start()
  }

  /**
   * Reserves a part of what is left, with its own clock that starts now; null when nothing is left.
   * @param wanted what the part asks for, capped by what is left. An absent number of calls or tokens is an equal
   * share with the parent and the other parallel parts
   * @param atOnce maximum number of parallel parts, including this one
   */
  part(wanted: AgentLimits, atOnce: number): RunBudget | null {
    const sharers = Math.max(1, atOnce - this.#parts.size) + 1
    const share = (left: number): number => Math.floor(left / sharers)
    const { calls, tokens, wallMs } = this.#left()
    const maxToolCalls = Math.min(wanted.maxToolCalls ?? share(calls), calls)
    const maxTokens = Math.min(wanted.maxTokens ?? share(tokens), tokens)
    const maxWallMs = Math.floor(Math.min(wanted.maxWallMs ?? wallMs * wallShare, wallMs))
    if (this.#stopped || this.#tripped !== null || maxToolCalls < 1 || maxTokens < 1 || maxWallMs < 1)
      return null
    const part = new RunBudget({ maxToolCalls, maxTokens, maxWallMs }, this.#now, this)
    this.#parts.add(part)
    return part
  }

  get limits(): RunBudgetLimits {
    return this.#limits
  }

  /** What is neither spent nor reserved by a part; of the time, what is not spent. */
  #left(): { calls: number; tokens: number; wallMs: number } {
    let calls = this.#limits.maxToolCalls - this.#calls
    let tokens = this.#limits.maxTokens - tokensOf(this.#usage)
    for (const part of this.#parts) {
      calls -= Math.max(0, part.#limits.maxToolCalls - part.#calls)
      tokens -= Math.max(0, part.#limits.maxTokens - tokensOf(part.#usage))
    }
    const runningMs = this.#startedAt === null ? 0 : this.#now() - this.#startedAt
    return { calls, tokens, wallMs: this.#limits.maxWallMs - this.#spentMs - runningMs }
  }

  /** Aborted once a limit is exceeded. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  get tripped(): { readonly reason: LimitReason; readonly message: string } | null {
    return this.#tripped
  }

  get usage(): Usage {
    return this.#usage
  }

  /** What is neither spent nor reserved: tool calls, input and output tokens, milliseconds. */
  get left(): { readonly calls: number; readonly tokens: number; readonly wallMs: number } {
    const { calls, tokens, wallMs } = this.#left()
    return {
      calls: Math.max(0, calls),
      tokens: Math.max(0, tokens),
      wallMs: Math.max(0, Math.round(wallMs)),
    }
  }

  /** Takes one tool call; false when none is left. */
  takeCall(): boolean {
    if (this.#calls >= this.#limits.maxToolCalls) {
      this.#trip('limit_calls', `${this.#who} used its ${this.#limits.maxToolCalls} tool calls`)
      return false
    }
    if (this.#parent?.takeCall() === false) return false
    this.#calls++
    return true
  }

  addUsage(usage: Usage): void {
    this.#usage = addUsage(this.#usage, usage)
    this.#parent?.addUsage(usage)
    const tokens = tokensOf(this.#usage)
    if (tokens > this.#limits.maxTokens) {
      this.#trip('limit_tokens', `${this.#who} used ${tokens} of ${this.#limits.maxTokens} tokens`)
    }
  }

  /**
   * Awaits `work` with the clock stopped; several may wait at once. While a part waits, the clocks of the whole and
   * of all its parts are stopped, since they share one time.
   */
  async whileWaiting<T>(work: Promise<T>): Promise<T> {
    const whole = this.#whole
    whole.#wait()
    try {
      return await work
    } finally {
      whole.#resume()
    }
  }

  get #whole(): RunBudget {
    return this.#parent === null ? this : this.#parent.#whole
  }

  get #who(): string {
    return this.#parent === null ? 'the run' : 'the sub-agent'
  }

  #wait(): void {
    if (this.#waiting++ === 0) this.#halt()
    for (const part of this.#parts) part.#wait()
  }

  #resume(): void {
    for (const part of this.#parts) part.#resume()
    if (--this.#waiting > 0 || this.#tripped !== null || this.#stopped) return
    this.#start()
  }

  /** Stops the clock while the host requests it; repeated requests have no effect. */
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

  /** Ends the clock; time no longer trips the budget. A part returns its remainder to its parent. */
  stop(): void {
    this.#stopped = true
    this.#halt()
    if (this.#parent !== null) this.#parent.#parts.delete(this)
  }

  #halt(): void {
    clearTimeout(this.#timer)
    if (this.#startedAt !== null) this.#spentMs += this.#now() - this.#startedAt
    this.#startedAt = null
  }

  #start(): void {
    this.#startedAt = this.#now()
    const leftMs = Math.max(0, this.#limits.maxWallMs - this.#spentMs)
    // setTimeout fires at once beyond 2^31 - 1.
    this.#timer = setTimeout(() => this.#checkTime(), Math.min(leftMs, 2 ** 31 - 1))
  }

  #checkTime(): void {
    this.#halt()
    if (this.#spentMs < this.#limits.maxWallMs) this.#start()
    else this.#trip('limit_time', `${this.#who} used its ${this.#limits.maxWallMs} ms of time`)
  }

  #trip(reason: LimitReason, message: string): void {
    if (this.#tripped !== null) return
    this.#tripped = { reason, message }
    this.#halt()
    this.#controller.abort(new Error(message))
  }
}

function tokensOf(usage: Usage): number {
  return usage.inputTokens + usage.outputTokens
}
