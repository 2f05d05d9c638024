// Keeps a stock of members that take time to start: hands them out, replaces them, limits their number, queues callers,
// and detects members that died. Knows nothing about members; `vm-pool.ts` uses it for VMs.

import { availableParallelism } from 'node:os'
import { CaissonError } from '#specs/errors.ts'
import { Backlog, waitCancelled } from './backlog.ts'

/** How many times a caller gets another member if the first fails its preparation. */
const HAND_OUTS = 2

export interface PoolMember {
  /** Resolves once the member is gone for any reason; only then its place is free. */
  readonly exited: Promise<unknown>
  /** Ends the member. Idempotent. */
  stop(): Promise<unknown>
}

export interface PoolOptions<M extends PoolMember> {
  /** Number of ready members. */
  readonly size: number
  /** Maximum members at once: starting, ready and handed out. At least one, and not below `size`. */
  readonly maxMembers: number
  /** Maximum wait of a caller. */
  readonly waitMs: number
  /** Must leave nothing behind when it rejects; `signal` aborts when the pool closes. */
  readonly start: (signal: AbortSignal) => Promise<M>
  /** Prepares a member for its caller; if it rejects, the member is ended. */
  readonly prepare: (member: M) => Promise<void>
  readonly backOff?: Partial<BackOff>
}

/** Slows down background starts after failures. */
interface BackOff {
  /** Delay after the first failure; doubles with each further one. */
  readonly firstMs: number
  readonly mostMs: number
  /** A member that was ready for this long before it died counts as a success. */
  readonly soundMs: number
}

const DEFAULT_BACK_OFF: BackOff = { firstMs: 500, mostMs: 60_000, soundMs: 30_000 }

/** What a caller of a pool may give. */
export interface TakeOptions {
  /** Cancels the wait. */
  readonly signal?: AbortSignal | undefined
  /** Called with the caller's place in the queue, 1 is next, when it has to wait and at each change. */
  readonly onPlace?: ((place: number) => void) | undefined
}

export interface PoolCounts {
  readonly ready: number
  readonly starting: number
  readonly handedOut: number
  /** Number of waiting callers. */
  readonly waiting: number
}

export class Pool<M extends PoolMember> implements AsyncDisposable {
  readonly #options: PoolOptions<M>
  readonly #backOff: BackOff
  readonly #backlog = new Backlog<M>()
  /** Oldest first, with the time when it became ready. */
  readonly #ready = new Map<M, number>()
  /** Ready and handed-out members, until they are gone. */
  readonly #members = new Set<M>()
  readonly #closing = new AbortController()
  #starting = 0
  /** Consecutive failures of starts and of ready members. */
  #failures = 0
  #lastFailure: unknown
  #retry: NodeJS.Timeout | undefined
  #changed = Promise.withResolvers<void>()

  /** Starts filling the pool immediately. */
  constructor(options: PoolOptions<M>) {
    const { size, maxMembers } = options
    if (!Number.isSafeInteger(size) || size < 0)
      throw new CaissonError('invalid_options', `a pool cannot keep ${size} ready`)
    if (!(maxMembers >= Math.max(1, size)))
      throw new CaissonError('invalid_options', `a pool of ${size} cannot be bounded to ${maxMembers}`)
    this.#options = options
    this.#backOff = { ...DEFAULT_BACK_OFF, ...options.backOff }
    this.#fill()
  }

  get counts(): PoolCounts {
    return {
      ready: this.#ready.size,
      starting: this.#starting,
      handedOut: this.#members.size - this.#ready.size,
      waiting: this.#backlog.length,
    }
  }

  /**
   * Hands out a member, which the caller must end. Callers are served in order.
   * @throws VmError `pool_full` when the pool's waiting time is over, `cancelled`; the error of a start made for the
   * caller, or of a repeated `prepare`
   */
  async take({ signal, onPlace }: TakeOptions = {}): Promise<M> {
    const deadline = performance.now() + this.#options.waitMs
    for (let handOuts = 1; ; handOuts++) {
      const member = await this.#next(deadline, { signal, onPlace })
      try {
        await this.#options.prepare(member)
      } catch (error) {
        this.#noteFailure(error)
        await member.stop()
        if (handOuts === HAND_OUTS) throw error
        continue
      }
      this.#noteSuccess()
      if (signal?.aborted !== true && !this.#closing.signal.aborted) return member
      await member.stop()
      throw waitCancelled('the caller gave up, or the pool was closed')
    }
  }

  /**
   * Resolves once the pool is full.
   * @throws the failure of a start or a member meanwhile; VmError `cancelled`
   */
  async whenFull(signal?: AbortSignal): Promise<void> {
    const aborted = Promise.withResolvers<void>()
    const onAbort = () => aborted.resolve()
    signal?.addEventListener('abort', onAbort)
    const known = this.#lastFailure
    try {
      for (;;) {
        if (signal?.aborted || this.#closing.signal.aborted) throw waitCancelled('gave up before it was full')
        const { size, maxMembers } = this.#options
        if (this.#ready.size >= Math.min(size, maxMembers - this.counts.handedOut)) return
        if (this.#lastFailure !== known) throw this.#lastFailure
        await Promise.race([this.#changed.promise, aborted.promise])
      }
    } finally {
      signal?.removeEventListener('abort', onAbort)
    }
  }

  /** Ends all members, including those handed out, and rejects waiting callers; resolves when all are gone. */
  async close(): Promise<void> {
    this.#closing.abort()
    clearTimeout(this.#retry)
    this.#backlog.clear(waitCancelled('the pool was closed'))
    this.#wakeWatchers()
    while (this.#starting > 0 || this.#members.size > 0) {
      await Promise.all([...this.#members].map((member) => member.stop()))
      if (this.#starting > 0 || this.#members.size > 0) await this.#changed.promise
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #next(deadline: number, { signal, onPlace }: TakeOptions): Promise<M> {
    if (this.#closing.signal.aborted) throw waitCancelled('the pool is closed')
    if (signal?.aborted) throw waitCancelled('the caller gave up')
    const [member] = this.#ready.keys()
    if (member !== undefined) {
      this.#ready.delete(member)
      this.#fill()
      return member
    }
    const describe = () => this.#describe()
    const waiting = this.#backlog.wait({
      deadline,
      describe,
      ...(signal === undefined ? {} : { signal }),
      ...(onPlace === undefined ? {} : { onPlace }),
    })
    this.#fill()
    return await waiting
  }

  /** Starts missing members within the limit: one for each waiting caller, and the stock unless starts fail. */
  #fill(): void {
    if (this.#closing.signal.aborted) return
    const stock = this.#retry === undefined ? this.#options.size : 0
    const missing = this.#backlog.length + stock - this.#ready.size - this.#starting
    const free = this.#options.maxMembers - this.#members.size - this.#starting
    // More parallel starts would not be faster.
    const more = Math.min(missing, free, availableParallelism() - this.#starting)
    for (let started = 0; started < more; started++) void this.#start()
  }

  async #start(): Promise<void> {
    this.#starting++
    try {
      const member = await this.#options.start(this.#closing.signal)
      this.#starting--
      this.#adopt(member)
    } catch (error) {
      this.#starting--
      if (!this.#closing.signal.aborted) this.#noteFailure(error)
      // If there are fewer starts than callers, the first caller gets the error.
      if (this.#backlog.length > this.#starting) this.#backlog.refuse(error)
    }
    this.#fill()
    this.#wakeWatchers()
  }

  #adopt(member: M): void {
    this.#members.add(member)
    void member.exited.then(() => this.#onExit(member))
    // A closing pool ends the member here.
    if (!this.#backlog.serve(member)) this.#ready.set(member, performance.now())
  }

  #onExit(member: M): void {
    this.#members.delete(member)
    const since = this.#ready.get(member)
    if (since !== undefined) {
      this.#ready.delete(member)
      if (performance.now() - since > this.#backOff.soundMs) this.#failures = 0
      if (!this.#closing.signal.aborted)
        this.#noteFailure(new Error('a member of the pool died while it waited'))
    }
    this.#fill()
    this.#wakeWatchers()
  }

  #noteFailure(error: unknown): void {
    this.#lastFailure = error
    const { firstMs, mostMs } = this.#backOff
    const delay = Math.min(mostMs, firstMs * 2 ** this.#failures++)
    if (this.#retry !== undefined || this.#closing.signal.aborted) return
    this.#retry = setTimeout(() => {
      this.#retry = undefined
      this.#fill()
    }, delay)
  }

  #noteSuccess(): void {
    this.#failures = 0
    if (this.#retry === undefined) return
    clearTimeout(this.#retry)
    this.#retry = undefined
    this.#fill()
  }

  #describe() {
    const { handedOut, starting, waiting } = this.counts
    const { waitMs, maxMembers } = this.#options
    const last = this.#failures > 0 && this.#lastFailure instanceof Error ? this.#lastFailure.message : ''
    const failure = last === '' ? '' : `; the last failure: ${last}`
    return {
      expected: `a VM of the pool within ${waitMs} ms`,
      seen: `${handedOut} of at most ${maxMembers} in use, ${starting} starting, ${waiting} callers waiting${failure}`,
      remedy: 'Wait for runs to end, or raise the limits of the pool (VMs, memory, waiting time).',
    }
  }

  /** Wakes all watchers. */
  #wakeWatchers(): void {
    this.#changed.resolve()
    this.#changed = Promise.withResolvers<void>()
  }
}
