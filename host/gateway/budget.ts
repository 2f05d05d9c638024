/**
 * The remaining model budget of one run: requests, tokens, cost. A request reserves its maximum cost before it is sent
 * and settles its actual cost at the end, so that parallel requests cannot exceed the budget together.
 */
import type { Result } from '#specs/protocol/error.ts'
import { addUsage, noUsage, type Usage } from '#specs/protocol/task.ts'
import type { PriceConfig } from '../config/schema.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { ModelProvider } from '../providers/providers.ts'

export interface BudgetLimits {
  /** Input and output tokens. */
  readonly maxTokens: number
  /** All accepted requests, including failed ones. Absent: limited only by tokens. */
  readonly maxRequests?: number | undefined
  readonly maxCostUsd?: number | undefined
}

interface PricedModel {
  readonly model: string
  /** Null if unknown. */
  readonly price: PriceConfig | null
}

export interface BudgetRequest {
  /** Estimated tokens of the conversation and tools. */
  readonly inputTokens: number
  /** Maximum requested tokens of the answer. */
  readonly outputTokens: number
  readonly signal: AbortSignal
  /** The models that may answer, if they are not only the run's own. */
  readonly models?: readonly PricedModel[]
  /** Called when it has to wait for other reservations. */
  readonly onWait?: () => void
}

export interface Reservation {
  /** Maximum tokens of the answer that the budget allows, at least 1. */
  readonly maxOutputTokens: number
  /**
   * Ends the request; only the first call counts.
   * @param usage actual usage: zero if it never reached the model
   * @param price of the model that answered; absent: the dearest of those that could
   * @returns its cost in US dollars; null without a known price
   */
  settle(usage: Usage, price?: PriceConfig | null): number | null
}

interface Amounts {
  readonly tokens: number
  readonly costUsd: number
}

const perToken = 1 / 1_000_000

export class Budget {
  readonly #limits: BudgetLimits
  readonly #price: PriceConfig | null
  readonly #model: string
  readonly #reserved = new Set<Amounts>()
  /** Requests that wait for another request's end, in order. */
  readonly #waiting: (() => void)[] = []
  #requests = 0
  #usage: Usage = noUsage
  #costUsd = 0
  readonly #within: Budget | undefined

  /**
   * @param within the budget that this is a part of: what is spent here, both have spent
   * @param price in US dollars per million tokens; null if unknown
   */
  constructor(limits: BudgetLimits, price: PriceConfig | null, model: string, within?: Budget) {
    this.#limits = limits
    this.#price = price
    this.#model = model
    this.#within = within
  }

  /** Sum over completed requests. */
  get usage(): Usage {
    return this.#usage
  }

  /** Sum over completed requests; null without a known price. */
  get costUsd(): number | null {
    return this.#price === null ? null : this.#costUsd
  }

  /**
   * Reserves the budget of one request. If other reservations leave too little, waits for them: most use far less than
   * they reserve. Refuses a request that no wait could satisfy.
   */
  async reserve(request: BudgetRequest): Promise<Result<Reservation, WireError>> {
    const refusal = this.#refuseNow(request)
    if (refusal !== null) return { ok: false, error: refusal }
    this.#requests += 1
    for (;;) {
      if (request.signal.aborted) return { ok: false, error: gatewayError('closed', 'The run is over.') }
      const room = this.#outputRoom(request)
      const isEnough = room.tokens >= request.outputTokens && room.tokens >= 1
      if (isEnough || (this.#reserved.size === 0 && room.tokens >= 1))
        return await this.#reserveWithin(
          request,
          this.#take(request, Math.min(room.tokens, request.outputTokens)),
        )
      if (this.#reserved.size === 0) return { ok: false, error: this.#usedUp(room.bound) }
      request.onWait?.()
      await this.#nextEnd(request.signal)
    }
  }

  /** Reserves the same in the budget that this is a part of. */
  async #reserveWithin(request: BudgetRequest, own: Reservation): Promise<Result<Reservation, WireError>> {
    if (this.#within === undefined) return { ok: true, value: own }
    const outer = await this.#within.reserve({ ...request, outputTokens: own.maxOutputTokens })
    if (!outer.ok) {
      own.settle(noUsage)
      return outer
    }
    const settle: Reservation['settle'] = (usage, price) => {
      own.settle(usage, price)
      return outer.value.settle(usage, price)
    }
    return { ok: true, value: { maxOutputTokens: outer.value.maxOutputTokens, settle } }
  }

  #modelsOf({ models }: BudgetRequest): readonly PricedModel[] {
    return models ?? [{ model: this.#model, price: this.#price }]
  }

  #refuseNow(request: BudgetRequest): WireError | null {
    const { maxRequests, maxCostUsd } = this.#limits
    for (const { model, price } of this.#modelsOf(request)) {
      const missing = describeMissingPrice(maxCostUsd, price, model)
      if (missing !== null) return gatewayError('limit_cost', missing)
    }
    if (maxRequests === undefined || this.#requests < maxRequests) return null
    return gatewayError('limit_requests', `The run's budget of ${maxRequests} model requests is used up.`)
  }

  /** Output tokens that the remaining budget allows, and the tighter limit. */
  #outputRoom(request: BudgetRequest): { tokens: number; bound: 'tokens' | 'cost' } {
    const { inputTokens } = request
    let tokens = this.#limits.maxTokens - this.#usage.inputTokens - this.#usage.outputTokens - inputTokens
    let costUsd = (this.#limits.maxCostUsd ?? Number.POSITIVE_INFINITY) - this.#costUsd
    for (const amounts of this.#reserved) {
      tokens -= amounts.tokens
      costUsd -= amounts.costUsd
    }
    if (costUsd === Number.POSITIVE_INFINITY) return { tokens, bound: 'tokens' }
    // Any of them may answer: one is dear for what is asked, another for the answer.
    const affordable = Math.min(
      ...this.#modelsOf(request).map(({ price }) => affordableTokens(costUsd, inputTokens, price)),
    )
    return affordable < tokens ? { tokens: affordable, bound: 'cost' } : { tokens, bound: 'tokens' }
  }

  #take(request: BudgetRequest, outputTokens: number): Reservation {
    const { inputTokens } = request
    const models = this.#modelsOf(request)
    const amounts = {
      tokens: inputTokens + outputTokens,
      costUsd: highestCost({ inputTokens, outputTokens }, models) ?? 0,
    }
    this.#reserved.add(amounts)
    return {
      maxOutputTokens: outputTokens,
      settle: (usage, actual) => {
        const costUsd = actual === undefined ? highestCost(usage, models) : costOf(usage, actual)
        if (!this.#reserved.delete(amounts)) return costUsd
        this.#usage = addUsage(this.#usage, usage)
        this.#costUsd += costUsd ?? 0
        for (const wake of this.#waiting.splice(0)) wake()
        return costUsd
      },
    }
  }

  #nextEnd(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal.removeEventListener('abort', wake)
        resolve()
      }
      signal.addEventListener('abort', wake, { once: true })
      this.#waiting.push(wake)
    })
  }

  #usedUp(bound: 'tokens' | 'cost'): WireError {
    const { inputTokens, outputTokens } = this.#usage
    const { maxTokens, maxCostUsd } = this.#limits
    if (bound === 'cost' && maxCostUsd !== undefined) {
      const text = `The run's budget of ${dollars(maxCostUsd)} does not allow another request; ${dollars(this.#costUsd)} are spent.`
      return gatewayError('limit_cost', text)
    }
    const used = inputTokens + outputTokens
    const text = `The run's budget of ${maxTokens} tokens does not allow another request; ${used} are used.`
    return gatewayError('limit_tokens', text)
  }
}

function costOf(
  {
    inputTokens,
    outputTokens,
    cachedTokens = 0,
  }: Pick<Usage, 'inputTokens' | 'outputTokens' | 'cachedTokens'>,
  price: PriceConfig | null,
): number | null {
  if (price === null) return null
  const { input, output, cachedInput = input, cacheWrite = input } = tierOf(price, inputTokens)
  // Requests mark all that a provider can cache, so what it did not read there it wrote.
  const inputCost = cachedTokens * cachedInput + (inputTokens - cachedTokens) * cacheWrite
  return (inputCost + outputTokens * output) * perToken
}

/** The price of a request of this length. */
function tierOf(price: PriceConfig, inputTokens: number): Omit<PriceConfig, 'above'> {
  return price.above !== undefined && inputTokens > price.above.tokens ? price.above : price
}

/** The cost with the dearest of the models; null where no price is known. */
function highestCost(usage: Parameters<typeof costOf>[0], models: readonly PricedModel[]): number | null {
  const costs = models.flatMap(({ price }) => costOf(usage, price) ?? [])
  return costs.length === 0 ? null : Math.max(...costs)
}

/** Output tokens that the amount pays for behind the input; less than 0 where it does not pay for that. */
function affordableTokens(costUsd: number, inputTokens: number, price: PriceConfig | null): number {
  if (price === null) return Number.POSITIVE_INFINITY
  const left = costUsd - (costOf({ inputTokens, outputTokens: 0 }, price) ?? 0)
  const perOutput = tierOf(price, inputTokens).output * perToken
  return left < 0 ? -1 : perOutput === 0 ? Number.POSITIVE_INFINITY : Math.floor(left / perOutput)
}

/** The offline model is free. @returns null if the price is unknown */
export function priceOf({ baseUrl, price }: Pick<ModelProvider, 'baseUrl' | 'price'>): PriceConfig | null {
  return baseUrl === null ? { input: 0, output: 0 } : (price ?? null)
}

/** Why a cost limit cannot be enforced; null if it can, or there is none. */
export function describeMissingPrice(
  maxCostUsd: number | undefined,
  price: PriceConfig | null,
  model: string,
): string | null {
  if (maxCostUsd === undefined || price !== null) return null
  return (
    `The run may cost ${dollars(maxCostUsd)}, but the price of ${model} is not known. Set it in the ` +
    `configuration, prices."${model}", or leave the limit of cost out.`
  )
}

function dollars(amount: number): string {
  return `$${amount < 0.01 ? amount.toPrecision(2) : amount.toFixed(2)}`
}
