/**
 * What a run may still spend: wall time, tool calls, tokens, model requests, cost, sub-agents. The first exceeded limit
 * trips the budget and aborts its signal permanently. The clock stops while a person considers an approval.
 * A sub-agent's budget is a part of its parent's, down to any depth: all above pay what the part spends. A part trips
 * alone. Parts never get more than the parent has left; the unused remainder returns at the part's end.
 */

import type { RunReason } from '#specs/protocol/error.ts'
import type { AgentLimits } from '#specs/protocol/plan.ts'
import type { ModelPrice } from '#specs/protocol/run-models.ts'
import { addUsage, noUsage, type RunLimits, type Usage } from '#specs/protocol/task.ts'

export type LimitReason = Extract<
  RunReason,
  'limit_calls' | 'limit_time' | 'limit_tokens' | 'limit_requests' | 'limit_cost'
>

/** The limits of a run that a budget counts; an absent one is none. */
export type RunBudgetLimits = Pick<RunLimits, 'maxToolCalls' | 'maxTokens' | 'maxWallMs'> &
  Partial<Pick<RunLimits, 'maxRequests' | 'maxCostUsd' | 'maxAgents'>>

/** What is counted, besides time. */
type Counted = 'calls' | 'tokens' | 'requests' | 'costUsd' | 'agents'
const limitNames = {
  calls: 'maxToolCalls',
  tokens: 'maxTokens',
  requests: 'maxRequests',
  costUsd: 'maxCostUsd',
  agents: 'maxAgents',
} as const satisfies Record<Counted, keyof RunBudgetLimits>

/** The host asks a person for the agent, or the host is silent. */
type HoldReason = 'person' | 'host'

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
  readonly #held = new Map<HoldReason, PromiseWithResolvers<void>>()
  #stopped = false
  readonly #spent: Record<Counted, number> = { calls: 0, tokens: 0, requests: 0, costUsd: 0, agents: 0 }
  readonly #price: ModelPrice | undefined
  #usage: Usage = noUsage
  #tripped: { reason: LimitReason; message: string } | null = null

  /**
   * Starts the clock.
   * @param now monotonic, in milliseconds
   * @param price of the model; absent: cost is not counted
   */
  constructor(
    limits: RunBudgetLimits,
    now: () => number = () => performance.now(),
    price?: ModelPrice,
    parent?: RunBudget,
  ) {
    this.#limits = limits
    this.#parent = parent ?? null
    this.#now = now
    this.#price = price
    // A part may begin while a person considers an approval.
    this.#waiting = parent === undefined ? 0 : parent.#whole.#waiting
    if (this.#waiting === 0) this.#start()
  }

  /**
   * Reserves a part of what is left, with its own clock that starts now; null when nothing is left.
   * @param wanted what the part asks for, capped by what is left. What it does not name is an equal share with the
   * parent and the other parallel parts; of sub-agents nothing is reserved then
   * @param atOnce maximum number of parallel parts, including this one
   */
  part(wanted: AgentLimits, atOnce: number): RunBudget | null {
    const sharers = Math.max(1, atOnce - this.#parts.size) + 1
    const amount = (what: Exclude<Counted, 'agents'>): number => {
      const left = this.#left(what)
      const share = what === 'costUsd' ? left / sharers : Math.floor(left / sharers)
      return Math.min(wanted[limitNames[what]] ?? share, left)
    }
    const [maxToolCalls, maxTokens, maxRequests] = [amount('calls'), amount('tokens'), amount('requests')]
    const maxCostUsd = amount('costUsd')
    const wallMs = this.#wallLeft()
    const maxWallMs = Math.floor(Math.min(wanted.maxWallMs ?? wallMs * wallShare, wallMs))
    const isEmpty = Math.min(maxToolCalls, maxTokens, maxRequests, maxWallMs) < 1 || maxCostUsd <= 0
    if (this.#stopped || this.#tripped !== null || isEmpty) return null
    const limits: RunBudgetLimits = {
      maxToolCalls,
      maxTokens,
      maxWallMs,
      ...(maxRequests === Number.POSITIVE_INFINITY ? {} : { maxRequests }),
      ...(maxCostUsd === Number.POSITIVE_INFINITY ? {} : { maxCostUsd }),
      ...(wanted.maxAgents === undefined ? {} : { maxAgents: Math.min(wanted.maxAgents, this.agentRoom) }),
    }
    const part = new RunBudget(limits, this.#now, this.#price, this)
    this.#parts.add(part)
    return part
  }

  get limits(): RunBudgetLimits {
    return this.#limits
  }

  /** What is neither spent nor reserved by a part; less than nothing after a turn that took more than was left. */
  #left(what: Counted): number {
    return this.#most(what) - this.#spent[what] - this.#reserved(what)
  }

  #most(what: Counted): number {
    return this.#limits[limitNames[what]] ?? Number.POSITIVE_INFINITY
  }

  /** What parts may still spend; one without a limit of its own has what its parts reserved. */
  #reserved(what: Counted): number {
    let sum = 0
    for (const part of this.#parts) {
      const most = part.#most(what)
      sum += most === Number.POSITIVE_INFINITY ? part.#reserved(what) : Math.max(0, most - part.#spent[what])
    }
    return sum
  }

  #wallLeft(): number {
    const runningMs = this.#startedAt === null ? 0 : this.#now() - this.#startedAt
    return this.#limits.maxWallMs - this.#spentMs - runningMs
  }

  /** How many sub-agents may begin below: an agent without a limit of its own uses that of the one above. */
  get agentRoom(): number {
    if (this.#most('agents') !== Number.POSITIVE_INFINITY || this.#parent === null)
      return Math.max(0, this.#left('agents'))
    return this.#parent.agentRoom
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
    return {
      calls: Math.max(0, this.#left('calls')),
      tokens: Math.max(0, this.#left('tokens')),
      wallMs: Math.max(0, Math.round(this.#wallLeft())),
    }
  }

  /** What was spent, here and below. */
  get spent(): Readonly<Record<Counted, number>> {
    return { ...this.#spent }
  }

  /** Takes one tool call; false when none is left, or the rest is reserved for sub-agents. */
  takeCall(): boolean {
    if (this.#left('calls') < 1) {
      if (this.#spent.calls >= this.#limits.maxToolCalls)
        this.#trip('limit_calls', `${this.#who} used its ${this.#limits.maxToolCalls} tool calls`)
      return false
    }
    this.#spend('calls', 1)
    return true
  }

  /** Takes one sub-agent; false when no more may begin. */
  takeAgent(): boolean {
    if (this.agentRoom < 1) return false
    this.#spend('agents', 1)
    return true
  }

  /** Sub-agents, and what they used, before another agent process continued the run. */
  restore(agents: number, usage: Usage): void {
    this.#spend('agents', agents)
    this.addUsage(usage)
  }

  /** What a part spent in another VM. @param price as for {@link addUsage} */
  addSpent(
    { usage, toolCalls, agents }: { usage: Usage; toolCalls: number; agents: number },
    price?: ModelPrice,
  ): void {
    this.#spend('calls', toolCalls)
    this.#spend('agents', agents)
    this.addUsage(usage, price)
  }

  /** @param price of the model that was used; absent: the run's */
  addUsage(usage: Usage, price: ModelPrice | undefined = this.#price): void {
    this.#usage = addUsage(this.#usage, usage)
    this.#spent.tokens += tokensOf(usage)
    this.#spent.requests += usage.requests
    this.#spent.costUsd += this.#costOf(usage, price)
    this.#parent?.addUsage(usage, price)
    const { tokens, requests, costUsd } = this.#spent
    const { maxTokens, maxRequests, maxCostUsd } = this.#limits
    if (tokens > maxTokens) this.#trip('limit_tokens', `${this.#who} used ${tokens} of ${maxTokens} tokens`)
    if (requests > (maxRequests ?? requests))
      this.#trip('limit_requests', `${this.#who} used ${requests} of ${maxRequests} model requests`)
    if (costUsd > (maxCostUsd ?? costUsd))
      this.#trip('limit_cost', `${this.#who} used ${dollars(costUsd)} of ${dollars(maxCostUsd ?? 0)}`)
  }

  /**
   * The limit that another turn as large as `last` would leave nothing of, so that what is left is for a conclusion;
   * null when there is enough.
   * @param price as for {@link addUsage}
   */
  findShortage(
    last: Usage,
    price?: ModelPrice,
  ): { readonly reason: LimitReason; readonly message: string } | null {
    const { maxTokens, maxRequests, maxCostUsd } = this.#limits
    const [tokens, requests, costUsd] = [this.#left('tokens'), this.#left('requests'), this.#left('costUsd')]
    if (tokens < 2 * tokensOf(last)) {
      const message = `${this.#who} has ${Math.max(0, tokens)} of ${maxTokens} tokens left`
      return { reason: 'limit_tokens', message }
    }
    if (requests < 2) {
      const message = `${this.#who} has ${Math.max(0, requests)} of ${maxRequests} model requests left`
      return { reason: 'limit_requests', message }
    }
    if (costUsd >= 2 * this.#costOf(last, price)) return null
    const message = `${this.#who} has ${dollars(Math.max(0, costUsd))} of ${dollars(maxCostUsd ?? 0)} left`
    return { reason: 'limit_cost', message }
  }

  #spend(what: 'calls' | 'agents', count: number): void {
    this.#spent[what] += count
    if (this.#parent !== null) this.#parent.#spend(what, count)
  }

  #costOf({ inputTokens, outputTokens }: Usage, price: ModelPrice | undefined = this.#price): number {
    if (price === undefined) return 0
    return (inputTokens * price.input + outputTokens * price.output) / 1_000_000
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

  /** Stops the clock while there is a reason to wait; repeating one has no effect. */
  hold(waiting: boolean, reason: HoldReason): void {
    const held = this.#held.get(reason)
    if (waiting === (held !== undefined)) return
    if (held === undefined) {
      const waits = Promise.withResolvers<void>()
      this.#held.set(reason, waits)
      void this.whileWaiting(waits.promise)
    } else {
      held.resolve()
      this.#held.delete(reason)
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

function dollars(amount: number): string {
  return `$${amount.toFixed(4)}`
}
