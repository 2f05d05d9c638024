/**
 * What a key or the subject of a JWT may use: requests in a minute, event streams and runs at once, tokens and cost of a
 * day. Tokens and cost are those of the runs' summaries, so a restart forgets nothing of them. In a fleet the rows of runs count
 * over all hosts. The owner has no quota.
 */

import { hasCode } from '#specs/errors.ts'
import type { RunRequest } from '#specs/service/start-resources.ts'
import { type CallerUse, type Host, RunLimits, type RunSummary } from '../index.ts'
import { type Caller, tooMany } from './callers.ts'
import { ownerField } from './ownership.ts'
import { Refusal } from './problems.ts'

const minuteMs = 60_000
const dayMs = 86_400_000
/** Event streams and waiting requests that one account may have open, so that it cannot take all connections of the service. */
const streamsMax = 32
/** A bound on cost is more than nothing. */
const leastCostUsd = 1e-9
/** For a client to try again when another of these has ended. */
const streamWaitMs = 10_000

/** As a request has it. */
type AskedLimits = RunRequest['limits']
type Use = Pick<CallerUse, 'runsAtWork' | 'tokens' | 'costUsd'>
type Bounds = Partial<Pick<RunLimits, 'maxTokens' | 'maxCostUsd'>>

export interface QuotasOptions {
  readonly host: Pick<Host, 'runs' | 'config'>
  /** Ids of the runs that this process carries out, with the name of their caller. */
  readonly atWork: () => Iterable<readonly [string, string]>
  /** What a caller uses over all hosts of a fleet, by name. Absent: the runs of this machine count. */
  readonly useOf?: ((caller: string) => Promise<CallerUse>) | undefined
  /** ms since 1970 */
  readonly now?: () => number
}

export class Quotas {
  readonly #options: QuotasOptions
  readonly #now: () => number
  /** Times of requests in the last minute, by account. */
  readonly #requests = new Map<string, number[]>()
  /** Event streams and waiting requests that are open, by account. */
  readonly #streams = new Map<string, number>()
  /** Commands over results that are under way, by account. */
  readonly #tests = new Map<string, number>()
  /** The last start of each account: of two at once the second counts the first. */
  readonly #turns = new Map<string, Promise<unknown>>()

  constructor(options: QuotasOptions) {
    this.#options = options
    this.#now = options.now ?? Date.now
  }

  /** @throws {Refusal} 429 */
  countRequest({ account }: Caller): void {
    const max = account?.quotas.maxRequestsPerMinute
    if (account === undefined || max === undefined) return
    const now = this.#now()
    const recent = (this.#requests.get(account.id) ?? []).filter((at) => at > now - minuteMs)
    const first = recent[recent.length - max]
    // Whoever sent the last request is last, so that those before can be forgotten.
    this.#requests.delete(account.id)
    this.#requests.set(account.id, first === undefined ? [...recent, now] : recent)
    this.#forgetRequests(now - minuteMs)
    if (first !== undefined)
      throw tooMany(`the ${account.kind} may send ${max} requests in a minute`, first + minuteMs - now)
  }

  /** Counts an event stream or a waiting request until the returned function is called. @throws {Refusal} 429 */
  openStream({ account }: Caller): () => void {
    if (account === undefined) return () => undefined
    const { id, kind } = account
    if ((this.#streams.get(id) ?? 0) >= streamsMax)
      throw tooMany(
        `the ${kind} has ${streamsMax} event streams or waiting requests open, and may not have more`,
        streamWaitMs,
        {
          remedy: 'close one',
        },
      )
    count(this.#streams, id, 1)
    return () => count(this.#streams, id, -1)
  }

  /**
   * Starts a run within the quotas of its caller. @param limits what the request asks for
   * @throws {Refusal} 429
   */
  async start<T>(caller: Caller, limits: AskedLimits, work: (limits: AskedLimits) => Promise<T>): Promise<T> {
    return await this.#inTurn(caller, async () => {
      const left = await this.#left(caller)
      return await withPrice(caller, work(await this.#within(limits, left)))
    })
  }

  /**
   * Continues a run within the quotas of its caller; one of an earlier day has its own bounds, which counted then.
   * @throws {Refusal} 429
   */
  async resume<T>(caller: Caller, run: RunSummary, work: (limits: Bounds) => Promise<T>): Promise<T> {
    return await this.#inTurn(caller, async () => {
      const isOwn = run.metadata?.[ownerField] === caller.name
      const left = isOwn ? await this.#left(caller, run) : {}
      return await withPrice(caller, work(left))
    })
  }

  /** Refuses what would bring another run to work. @throws {Refusal} 429 */
  async requireRoom(caller: Caller): Promise<void> {
    if (caller.account !== undefined) await this.#left(caller)
  }

  /** Whether the caller has a quota of a day. */
  hasBudget({ account }: Caller): boolean {
    const { maxTokens, maxCostUsd } = account?.quotas ?? {}
    return maxTokens !== undefined || maxCostUsd !== undefined
  }

  /** Refuses where nothing of the quotas of the day is left. @throws {Refusal} 429 */
  async requireBudget(caller: Caller): Promise<void> {
    this.#budgetLeft(caller, await this.#useOf(caller))
  }

  /**
   * Of a run that begins after others which were submitted before it: the lower of its limits and of what is left of the day.
   * @throws {Refusal} 429
   */
  async limitsNow(caller: Caller, limits: AskedLimits): Promise<AskedLimits> {
    if (!this.hasBudget(caller)) return limits
    return await this.#within(limits, this.#budgetLeft(caller, await this.#useOf(caller)))
  }

  /**
   * Of a run that a host of a fleet continues: what is left of the day, with what the run has used of it. Forks have the limits
   * of the run that they are made of, any number of them may wait, and others use the day meanwhile. Where nothing is left, the
   * run ends at its next request.
   */
  async limitsToContinue(caller: Caller, run: RunSummary): Promise<Bounds> {
    if (!this.hasBudget(caller) || !this.#isToday(run)) return {}
    const { maxTokens, maxCostUsd } = caller.account?.quotas ?? {}
    const { tokens, costUsd } = await this.#useOf(caller)
    const left = (max: number, used: number, own: number) => Math.max(max - used, 0) + own
    return {
      ...(maxTokens === undefined ? {} : { maxTokens: Math.max(1, left(maxTokens, tokens, tokensOf(run))) }),
      // A run whose price is not known was begun without this quota.
      ...(maxCostUsd === undefined || run.state.costUsd === null
        ? {}
        : { maxCostUsd: Math.max(leastCostUsd, left(maxCostUsd, costUsd, costOf(run))) }),
    }
  }

  /** A command over the result of a run counts as a run at work. @throws {Refusal} 429 */
  async test<T>(caller: Caller, work: () => Promise<T>): Promise<T> {
    const { account } = caller
    if (account === undefined) return await work()
    await this.#inTurn(caller, async () => {
      this.#requireFree(caller, await this.#useOf(caller))
      count(this.#tests, account.id, 1)
    })
    try {
      return await work()
    } finally {
      count(this.#tests, account.id, -1)
    }
  }

  /** An issuer may have any number of subjects: who sent no request for a minute is forgotten. */
  #forgetRequests(before: number): void {
    for (const [id, times] of this.#requests) {
      if ((times.at(-1) ?? 0) > before) return
      this.#requests.delete(id)
    }
  }

  async #inTurn<T>({ account }: Caller, work: () => Promise<T>): Promise<T> {
    if (account === undefined) return await work()
    const turn = (this.#turns.get(account.id) ?? Promise.resolve()).then(work, work)
    this.#turns.set(account.id, turn)
    try {
      return await turn
    } finally {
      if (this.#turns.get(account.id) === turn) this.#turns.delete(account.id)
    }
  }

  /**
   * What is left of the day, with what a run to continue has used of it. @throws {Refusal} 429 when nothing is
   */
  async #left(caller: Caller, run?: RunSummary): Promise<Bounds> {
    const { maxRuns, maxTokens, maxCostUsd } = caller.account?.quotas ?? {}
    if (maxRuns === undefined && maxTokens === undefined && maxCostUsd === undefined) return {}
    const use = await this.#useOf(caller)
    this.#requireFree(caller, use)
    return this.#budgetLeft(caller, use, run)
  }

  /** @throws {Refusal} 429 */
  #budgetLeft(caller: Caller, used: Use, run?: RunSummary): Bounds {
    const { maxTokens, maxCostUsd } = caller.account?.quotas ?? {}
    if (run !== undefined && !this.#isToday(run)) return {}
    const waitMs = this.#today() + dayMs - this.#now()
    const kind = caller.account?.kind ?? 'key'
    if (maxTokens !== undefined && used.tokens >= maxTokens)
      throw tooMany(`the runs of the ${kind} have used its ${maxTokens} tokens of today (UTC)`, waitMs)
    if (maxCostUsd !== undefined && used.costUsd >= maxCostUsd)
      throw tooMany(`the runs of the ${kind} have used its ${maxCostUsd} US dollars of today (UTC)`, waitMs)
    const own = run === undefined ? [] : [run]
    return {
      ...(maxTokens === undefined ? {} : { maxTokens: maxTokens - used.tokens + sumOf(own, tokensOf) }),
      ...(maxCostUsd === undefined ? {} : { maxCostUsd: maxCostUsd - used.costUsd + sumOf(own, costOf) }),
    }
  }

  #today(): number {
    return Math.floor(this.#now() / dayMs) * dayMs
  }

  /** A fork has the lines of the other run with their times. */
  #isToday({ startedAt, forkedAt }: RunSummary): boolean {
    return (forkedAt ?? startedAt) >= this.#today()
  }

  /** Over all hosts of a fleet, or of this machine. */
  async #useOf({ name }: Caller): Promise<Use> {
    const { host, useOf } = this.#options
    if (useOf !== undefined) return await useOf(name)
    const runs = await host.runs.select({ metadata: { [ownerField]: name } })
    const today = runs.filter((run) => this.#isToday(run))
    return {
      runsAtWork: this.#atWork(name, runs),
      tokens: sumOf(today, tokensOf),
      costUsd: sumOf(today, costOf),
    }
  }

  #atWork(name: string, runs: readonly RunSummary[]): number {
    // One that waits in the queue counts for the bounds of that alone.
    const queued = new Set(runs.filter(({ status }) => status === 'queued').map(({ id }) => id))
    const atWork = new Set(
      runs.filter(({ isLive, state }) => isLive && state.end === null).map(({ id }) => id),
    )
    for (const [id, of] of this.#options.atWork()) if (of === name) atWork.add(id)
    for (const id of queued) atWork.delete(id)
    return atWork.size
  }

  /** @throws {Refusal} 429 */
  #requireFree({ account }: Caller, use: Use): void {
    const max = account?.quotas.maxRuns
    if (account === undefined || max === undefined) return
    const runsAtWork = use.runsAtWork + (this.#tests.get(account.id) ?? 0)
    if (runsAtWork < max) return
    throw new Refusal(
      429,
      'too_many_requests',
      `${runsAtWork} runs of the ${account.kind} are at work, and it may have ${max}`,
      {
        remedy: 'wait until one has ended, or cancel one',
      },
    )
  }

  /** The lower of what the request asks for, or a run has by default, and of what is left. */
  async #within(limits: AskedLimits, left: Bounds): Promise<AskedLimits> {
    if (left.maxTokens === undefined && left.maxCostUsd === undefined) return limits
    const { maxTokens, maxCostUsd } = RunLimits.parse({
      ...(await this.#options.host.config()).limits,
      ...limits,
    })
    const cost = Math.min(maxCostUsd ?? Number.POSITIVE_INFINITY, left.maxCostUsd ?? Number.POSITIVE_INFINITY)
    return {
      ...limits,
      maxTokens: Math.min(maxTokens, left.maxTokens ?? maxTokens),
      ...(cost === Number.POSITIVE_INFINITY ? {} : { maxCostUsd: cost }),
    }
  }
}

/** @throws {Refusal} 400 where a quota of cost cannot be counted, in words for who did not set it */
async function withPrice<T>({ account }: Caller, started: Promise<T>): Promise<T> {
  return await started.catch((error: unknown) => {
    if (!hasCode(error, 'price_unknown') || account?.quotas.maxCostUsd === undefined) throw error
    throw new Refusal(
      400,
      error.code,
      `the ${account.kind} has a quota of cost, and the price of the model is not known`,
      { remedy: 'choose another model, or ask the owner of the service to set its price (prices)' },
    )
  })
}

function count(counts: Map<string, number>, id: string, by: number): void {
  const left = (counts.get(id) ?? 0) + by
  if (left === 0) counts.delete(id)
  else counts.set(id, left)
}

function tokensOf({ state: { usage } }: RunSummary): number {
  return usage.inputTokens + usage.outputTokens
}

/** A run with a bound of its cost has a price, so null is 0. */
function costOf({ state }: RunSummary): number {
  return state.costUsd ?? 0
}

function sumOf(runs: readonly RunSummary[], amountOf: (run: RunSummary) => number): number {
  return runs.reduce((sum, run) => sum + amountOf(run), 0)
}
