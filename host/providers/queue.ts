/**
 * The request queue of a model server: one per key, over all runs of this process. Enforces the provider's rate (a
 * sliding minute) and concurrency, pauses a model on "too many requests", and alternates between runs. Servers have limits
 * for each model or for the key; where one is for the key, each model learns it by a refusal of its own. Sends nothing
 * itself.
 */

import { createHash } from 'node:crypto'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type ModelHold, ModelPauses } from './model-pauses.ts'

export interface QueueLimits {
  /** Maximum open requests. */
  readonly maxConcurrent: number
  /** Maximum new requests per minute; null for unlimited. */
  readonly requestsPerMinute: number | null
}

/** This host's part of a rate that hosts share. */
export interface SharedRate {
  /**
   * Time until a request may start, ms; 0: now.
   * @param rate requests per minute of the key
   * @param waiting requests that wait on this host
   */
  waitMs(rate: number, waiting: number): number
  /** A request starts. */
  use(): void
}

/** Permission for one request. */
export interface QueueTurn {
  /** Time waited. */
  readonly waitedMs: number
  /** The server accepted the request: its next refusal is a first one again. */
  accepted(): void
  /**
   * The server said "too many requests": no request for this model starts until the pause is over. Without the server's
   * own value the pause is 2 s, doubled up to 60 s while the model keeps refusing.
   * @param retryAfterMs the server's value; null if none
   * @param words the server's own, for the other requests of the run
   * @returns the pause in milliseconds
   */
  refused(retryAfterMs: number | null, words?: string): number
  /** Ends the request; only the first call counts. */
  release(): void
}

/** What a waiting request waits for. */
export interface QueueWait {
  /** Open requests, the configured rate, or a pause that the server demanded. */
  readonly for: 'turn' | 'rate' | 'pause'
  /** 1: the next one. */
  readonly position: number
  /** When rate or pause let it start, by the queue's clock. Absent: unknown. */
  readonly until?: number
}

export interface TurnRequest {
  readonly runId: string
  readonly model: string
  readonly signal: AbortSignal
  /** Maximum wait. */
  readonly maxWaitMs: number
  /** Ahead of the other requests of its run, since it already had its turn. */
  readonly again?: boolean
  /** Called when it has to wait, and at each change. @param inMs time until `until` */
  readonly onWait?: (wait: QueueWait, inMs: number | undefined) => void
}

interface Waiter extends TurnRequest {
  /** The last reported wait. */
  told?: QueueWait
  readonly since: number
  readonly settle: (result: TurnResult) => void
}

/** `limited`: the model is held for so long that waiting is of no use, see {@link RequestQueue.limitedMs}. */
export type TurnResult = Result<QueueTurn, 'cancelled' | 'timed_out' | 'limited'>

export interface QueueOptions {
  /** Monotonic clock in milliseconds. */
  readonly now?: () => number
  /** 0 up to 1: the random half of a pause. */
  readonly random?: () => number
}

const windowMs = 60_000

export class RequestQueue {
  #limits: QueueLimits
  readonly #now: () => number
  readonly #pauses: ModelPauses
  /** By model: the last refusal. Servers may name things of the run, so another run does not get them. */
  readonly #refusals = new Map<string, { readonly runId: string; readonly words: string }>()
  /** By run; the first run is next. */
  readonly #waiting = new Map<string, Waiter[]>()
  /** Start times of the requests of the last minute, oldest first. */
  readonly #begun: number[] = []
  #open = 0
  #timer: NodeJS.Timeout | undefined
  #shared: SharedRate | undefined

  constructor(limits: QueueLimits, options: QueueOptions = {}) {
    this.#limits = limits
    this.#now = options.now ?? (() => performance.now())
    this.#pauses = new ModelPauses(this.#now, options.random)
  }

  /** Applies from now on, also to waiting requests. */
  setLimits(limits: QueueLimits): void {
    this.#limits = limits
    this.#pump()
  }

  /** From now on other hosts send with the key too. */
  shareRate(shared: SharedRate): void {
    this.#shared = shared
  }

  /** Looks again which requests may start. */
  look(): void {
    this.#pump()
  }

  /** Remaining pause of a model in milliseconds; 0 without a pause. */
  heldMs(model: string): number {
    return this.#pauses.heldMs(model)
  }

  /** Time until a server expects a request for the model that it refused for long; 0 where it did not, or not any more. */
  limitedMs(model: string): number {
    return this.#pauses.limitedMs(model)
  }

  /** What the server said to this run as it refused the model last. */
  refusalWords(model: string, runId: string): string | undefined {
    const last = this.#refusals.get(model)
    return last?.runId === runId ? last.words : undefined
  }

  /** Takes over what another process learned. */
  hold(model: string, hold: ModelHold): void {
    if (this.#pauses.hold(model, hold)) this.#pump()
  }

  /** Resolves when it is this request's turn; always release it. */
  take(request: TurnRequest): Promise<TurnResult> {
    if (request.signal.aborted) return Promise.resolve({ ok: false, error: 'cancelled' })
    if (this.limitedMs(request.model) > 0) return Promise.resolve({ ok: false, error: 'limited' })
    const { promise, resolve } = Promise.withResolvers<TurnResult>()
    const leave = (error: 'cancelled' | 'timed_out'): void => {
      this.#remove(waiter)
      waiter.settle({ ok: false, error })
    }
    const onAbort = (): void => leave('cancelled')
    const timer = new AwakeTimer(request.maxWaitMs, () => leave('timed_out'))
    request.signal.addEventListener('abort', onAbort, { once: true })
    const waiter: Waiter = {
      ...request,
      since: this.#now(),
      settle: (result) => {
        timer.cancel()
        request.signal.removeEventListener('abort', onAbort)
        resolve(result)
      },
    }
    const line = this.#waiting.get(request.runId) ?? []
    if (request.again === true) line.unshift(waiter)
    else line.push(waiter)
    this.#waiting.set(request.runId, line)
    this.#pump()
    return promise
  }

  #pump(): void {
    clearTimeout(this.#timer)
    this.#leaveLimited()
    this.#start()
    this.#tell()
  }

  #leaveLimited(): void {
    for (const waiter of [...this.#waiting.values()].flat()) {
      if (this.limitedMs(waiter.model) === 0) continue
      this.#remove(waiter)
      waiter.settle({ ok: false, error: 'limited' })
    }
  }

  #start(): void {
    while (this.#waiting.size > 0 && this.#open < this.#limits.maxConcurrent) {
      const now = this.#now()
      const delayMs = Math.max(this.#untilRoom(now), this.#untilUnheld(now)) || this.#untilShared()
      if (delayMs > 0) {
        this.#timer = setTimeout(() => this.#pump(), Math.ceil(delayMs))
        return
      }
      const waiter = this.#next(now)
      if (waiter === undefined) return
      waiter.settle({ ok: true, value: this.#begin(waiter) })
    }
  }

  /** Tells each waiting request what it waits for, if that changed. */
  #tell(): void {
    const now = this.#now()
    for (const [index, waiter] of this.#order().entries()) {
      const { onWait, told } = waiter
      const wait = onWait && this.#waitAt(index + 1, waiter.model, now)
      const isKnown =
        wait?.for === told?.for && wait?.position === told?.position && wait?.until === told?.until
      if (wait === undefined || isKnown) continue
      waiter.told = wait
      onWait?.(wait, wait.until === undefined ? undefined : Math.max(0, wait.until - now))
    }
  }

  /** The waiting requests as they will start: one of each run in turn. */
  #order(): Waiter[] {
    const lines = [...this.#waiting.values()]
    const rounds = Math.max(0, ...lines.map((line) => line.length))
    return Array.from({ length: rounds }, (_, round) => lines.flatMap((line) => line[round] ?? [])).flat()
  }

  #waitAt(position: number, model: string, now: number): QueueWait {
    const heldUntil = this.#pauses.heldUntil(model)
    if (heldUntil > now) return { for: 'pause', position, until: heldUntil }
    const rate = this.#limits.requestsPerMinute
    if (this.#open >= this.#limits.maxConcurrent || rate === null) return { for: 'turn', position }
    const oldest = position > rate ? undefined : this.#begun.at(position - 1 - rate)
    return { for: 'rate', position, ...(oldest === undefined ? {} : { until: oldest + windowMs }) }
  }

  /** Time until the rate lets a request start. */
  #untilRoom(now: number): number {
    while (this.#begun[0] !== undefined && this.#begun[0] <= now - windowMs) this.#begun.shift()
    const rate = this.#limits.requestsPerMinute
    const oldest = rate === null ? undefined : this.#begun.at(-rate)
    return oldest === undefined ? 0 : oldest + windowMs - now
  }

  #untilShared(): number {
    const rate = this.#limits.requestsPerMinute
    if (rate === null || this.#shared === undefined) return 0
    return this.#shared.waitMs(rate, [...this.#waiting.values()].flat().length)
  }

  /** Time until a model is not held that a request waits for. */
  #untilUnheld(now: number): number {
    const models = new Set([...this.#waiting.values()].flat().map(({ model }) => model))
    return Math.max(0, Math.min(...[...models].map((model) => this.#pauses.heldUntil(model))) - now)
  }

  /** The first request of the next run whose model is not held; the run moves to the end. */
  #next(now: number): Waiter | undefined {
    for (const [runId, line] of this.#waiting) {
      const waiter = line.find(({ model }) => this.#pauses.heldUntil(model) <= now)
      if (waiter === undefined) continue
      this.#waiting.delete(runId)
      const left = line.filter((other) => other !== waiter)
      if (left.length > 0) this.#waiting.set(runId, left)
      return waiter
    }
    return undefined
  }

  #remove(waiter: Waiter): void {
    const line = this.#waiting.get(waiter.runId)?.filter((other) => other !== waiter) ?? []
    if (line.length === 0) this.#waiting.delete(waiter.runId)
    else this.#waiting.set(waiter.runId, line)
  }

  #begin({ model, since, runId }: Waiter): QueueTurn {
    const begunAt = this.#now()
    this.#open += 1
    if (this.#limits.requestsPerMinute !== null) {
      this.#begun.push(begunAt)
      this.#shared?.use()
    }
    let isOver = false
    return {
      waitedMs: begunAt - since,
      accepted: () => this.#pauses.accepted(model, begunAt),
      refused: (retryAfterMs, words) => {
        if (words !== undefined) this.#refusals.set(model, { runId, words })
        return this.#pauses.refused(model, begunAt, retryAfterMs)
      },
      release: () => {
        if (isOver) return
        isOver = true
        this.#open -= 1
        this.#pump()
      },
    }
  }
}

const processWide = {}
const queuesOf = new WeakMap<object, Map<string, RequestQueue>>()

/**
 * This process's queue for a server and key. The last caller's limits apply.
 * @param of whoever else knows of the key. Absent: nobody
 * @param baseUrl up to and including `/v1`; its origin counts
 */
export function sharedQueue(
  baseUrl: string,
  key: string | null,
  limits: QueueLimits,
  of: object = processWide,
): RequestQueue {
  const queues = queuesOf.get(of) ?? new Map<string, RequestQueue>()
  queuesOf.set(of, queues)
  const digest = createHash('sha256')
    .update(key ?? '')
    .digest('hex')
  const name = `${new URL(baseUrl).origin} ${digest}`
  const known = queues.get(name)
  if (known !== undefined) {
    known.setLimits(limits)
    return known
  }
  const queue = new RequestQueue(limits)
  queues.set(name, queue)
  return queue
}
