// Keeps a number of things ready that take time to start and die on their own: hands one out, replaces it, never has
// more than it may, lets callers wait in order, and counts what is gone as gone. What they are is not known here; a VM
// is one in `vm-pool.ts`.

import { availableParallelism } from 'node:os'
import { CaissonError } from '#specs/errors.ts'
import { Backlog, cancelled } from './backlog.ts'

/** How often a caller gets another member when one turns out to be unfit as it is handed out. */
const HAND_OUTS = 2

export interface PoolMember {
  /** Resolves once it is gone, by whatever death; only then its place is free. */
  readonly exited: Promise<unknown>
  /** Ends it; harmless twice. */
  stop(): Promise<unknown>
}

export interface PoolOptions<M extends PoolMember> {
  /** How many wait ready. */
  readonly size: number
  /** How many there may be at once: starting, ready and handed out. At least one, and not below `size`. */
  readonly maxMembers: number
  /** How long a caller waits at most. */
  readonly waitMs: number
  /** Must not leave anything when it rejects; `signal` is the end of the pool. */
  readonly start: (signal: AbortSignal) => Promise<M>
  /** Brings a member up to date when it is handed out; one for which it rejects is ended. */
  readonly prepare: (member: M) => Promise<void>
  readonly backOff?: Partial<BackOff>
}

/** How starts that nobody waits for are slowed down while they fail, or while what they start dies. */
export interface BackOff {
  /** After the first failure; doubles with each further one. */
  readonly firstMs: number
  readonly mostMs: number
  /** A member that was ready for so long before it died speaks for its kind. */
  readonly soundMs: number
}

const DEFAULT_BACK_OFF: BackOff = { firstMs: 500, mostMs: 60_000, soundMs: 30_000 }

export interface PoolCounts {
  readonly ready: number
  readonly starting: number
  readonly handedOut: number
  /** Callers. */
  readonly waiting: number
}

export class Pool<M extends PoolMember> implements AsyncDisposable {
  readonly #options: PoolOptions<M>
  readonly #backOff: BackOff
  readonly #backlog = new Backlog<M>()
  /** Oldest first, with the time since when it is ready. */
  readonly #ready = new Map<M, number>()
  /** Those that are ready or handed out, until they are gone. */
  readonly #members = new Set<M>()
  readonly #closing = new AbortController()
  #starting = 0
  /** In a row, of starts and of members that were ready. */
  #failures = 0
  #lastFailure: unknown
  #retry: NodeJS.Timeout | undefined
  #changed = Promise.withResolvers<void>()

  /** Begins to start members at once. */
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
   * A member, the caller's to end. Callers that wait are served in the order in which they came.
   * @throws VmError `pool_full` when the pool's waiting time is over, `cancelled`; what a start threw that was made for
   * the caller, what `prepare` threw again
   */
  async take({ signal }: { readonly signal?: AbortSignal } = {}): Promise<M> {
    const deadline = performance.now() + this.#options.waitMs
    for (let handOuts = 1; ; handOuts++) {
      const member = await this.#next(deadline, signal)
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
      throw cancelled('the caller gave up, or the pool was closed')
    }
  }

  /**
   * Resolves once as many are ready as shall be and as there is room for.
   * @throws the failure of a start or a member meanwhile; VmError `cancelled`
   */
  async whenFull(signal?: AbortSignal): Promise<void> {
    const aborted = Promise.withResolvers<void>()
    const onAbort = () => aborted.resolve()
    signal?.addEventListener('abort', onAbort)
    const known = this.#lastFailure
    try {
      for (;;) {
        if (signal?.aborted || this.#closing.signal.aborted) throw cancelled('gave up before it was full')
        const { size, maxMembers } = this.#options
        if (this.#ready.size >= Math.min(size, maxMembers - this.counts.handedOut)) return
        if (this.#lastFailure !== known) throw this.#lastFailure
        await Promise.race([this.#changed.promise, aborted.promise])
      }
    } finally {
      signal?.removeEventListener('abort', onAbort)
    }
  }

  /** Ends all members, those that were handed out as well, and rejects whoever waits; resolves when all are gone. */
  async close(): Promise<void> {
    this.#closing.abort()
    clearTimeout(this.#retry)
    this.#backlog.clear(cancelled('the pool was closed'))
    this.#tell()
    while (this.#starting > 0 || this.#members.size > 0) {
      await Promise.all([...this.#members].map((member) => member.stop()))
      if (this.#starting > 0 || this.#members.size > 0) await this.#changed.promise
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #next(deadline: number, signal: AbortSignal | undefined): Promise<M> {
    if (this.#closing.signal.aborted) throw cancelled('the pool is closed')
    if (signal?.aborted) throw cancelled('the caller gave up')
    const [member] = this.#ready.keys()
    if (member !== undefined) {
      this.#ready.delete(member)
      this.#fill()
      return member
    }
    const describe = () => this.#describe()
    const waiting = this.#backlog.wait({ deadline, describe, ...(signal === undefined ? {} : { signal }) })
    this.#fill()
    return await waiting
  }

  /** Starts what is missing, as far as there is room: one for each who waits, and the stock unless starts fail. */
  #fill(): void {
    if (this.#closing.signal.aborted) return
    const stock = this.#retry === undefined ? this.#options.size : 0
    const missing = this.#backlog.length + stock - this.#ready.size - this.#starting
    const room = this.#options.maxMembers - this.#members.size - this.#starting
    // More at once would make none ready sooner.
    const more = Math.min(missing, room, availableParallelism() - this.#starting)
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
      // Unless a start is left for each, whoever came first is told why there is none.
      if (this.#backlog.length > this.#starting) this.#backlog.refuse(error)
    }
    this.#fill()
    this.#tell()
  }

  #adopt(member: M): void {
    this.#members.add(member)
    void member.exited.then(() => this.#onExit(member))
    // When the pool is being closed it is ended there.
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
    this.#tell()
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
      remedy: 'Wait for runs to end, allow the pool more VMs or memory, or allow callers a longer wait.',
    }
  }

  /** Wakes those who watch. */
  #tell(): void {
    this.#changed.resolve()
    this.#changed = Promise.withResolvers<void>()
  }
}
