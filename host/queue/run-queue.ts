/**
 * The queue of a host: how many of its runs use a VM at once, and in which order the others start. It keeps no run: whoever
 * waits holds a {@link Turn}. Refuses a run when too many wait.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import type { RunPriority } from '#specs/protocol/host-event.ts'
import type { HostIndex } from '../database/host-index.ts'
import { FairOrder, type Waiting } from './fair-order.ts'

export interface QueueLimits {
  /** Runs that use a VM at once. */
  readonly maxAtWork: number
  /** Runs that wait at once; beyond it a new one is refused. */
  readonly maxWaiting: number
  readonly maxWaitingPerLane: number
}

/** What a host tells of its queue. */
export interface HostQueue {
  readonly limits: QueueLimits
  readonly counts: QueueCounts
  /** Estimate of the time until the next run starts, ms, by those before. */
  readonly nextStartMs: number
  /** The place of a run of this host; null: it does not wait. */
  placeOf(runId: string): QueuePlace | null
  /** Starts no run until the result is disposed, such as while those of an earlier process are added. */
  hold(): Disposable
  /**
   * @param laneMaxAtWork of the run; see `queue` of the options of a run
   * @throws {CaissonError} `queue_full` when a further run of the lane would have to wait and may not
   */
  requireRoom(lane?: string, laneMaxAtWork?: number): void
}

export interface QueueCounts {
  readonly atWork: number
  readonly waiting: number
}

export interface QueuePlace {
  /** 1 is next, as far as it is known now. */
  readonly place: number
  /** Runs that wait. */
  readonly waiting: number
  readonly priority: RunPriority
  /** The run ends if it has not begun by then, ms since 1970. Absent: it waits without a limit. */
  readonly startBy?: number
}

export interface QueueEntry extends Omit<Waiting, 'position'> {
  readonly startBy?: number
}

interface WaitOptions {
  /** Gives the place up. */
  readonly signal: AbortSignal
  /** A run that continues does so without its turn once this is resolved, beyond the number at work. */
  readonly skip?: Promise<unknown>
  /** Called with the place and how many wait, at first and at each change. */
  readonly onPlace?: (place: number, waiting: number) => void
}

/** Starts that the estimate is made of. */
const startsMax = 8
const firstEstimateMs = 10_000
const longestEstimateMs = 60_000

export class RunQueue implements HostQueue {
  readonly limits: QueueLimits
  readonly #index: () => Pick<HostIndex, 'queue'> | undefined
  readonly #turns = new Map<string, Turn>()
  #order: FairOrder | undefined
  #atWork = 0
  /** VMs of sub-agents. */
  #extraVms = 0
  readonly #extraWaits = new Set<() => void>()
  #holds = 0
  #position = 0
  #isTelling = false
  #isClosed = false
  readonly #starts: number[] = []

  /** @param index keeps the order for another process; undefined while there is none */
  constructor(limits: QueueLimits, index: () => Pick<HostIndex, 'queue'> | undefined = () => undefined) {
    this.limits = limits
    this.#index = index
  }

  get counts(): QueueCounts {
    return { atWork: this.#atWork, waiting: this.#fair.list.length }
  }

  get nextStartMs(): number {
    const [first = 0] = this.#starts
    const count = this.#starts.length - 1
    if (count < 1) return firstEstimateMs
    const mean = ((this.#starts.at(-1) ?? 0) - first) / count
    return Math.min(longestEstimateMs, Math.max(1_000, Math.round(mean)))
  }

  placeOf(runId: string): QueuePlace | null {
    const { list } = this.#fair
    const index = list.findIndex((one) => one.runId === runId)
    const entry = this.#turns.get(runId)?.entry
    if (index < 0 || entry === undefined) return null
    const { priority, startBy } = entry
    return {
      ...{ place: index + 1, waiting: list.length, priority },
      ...(startBy === undefined ? {} : { startBy }),
    }
  }

  hold(): Disposable {
    this.#holds += 1
    let isHeld = true
    return {
      [Symbol.dispose]: () => {
        if (!isHeld) return
        isHeld = false
        this.#holds -= 1
        this.#letStart()
      },
    }
  }

  requireRoom(lane = '', laneMaxAtWork?: number): void {
    const { maxWaiting, maxWaitingPerLane } = this.limits
    const { waiting } = this.counts
    const ofLane = this.#fair.waitingOf(lane)
    const run = { lane, ...(laneMaxAtWork === undefined ? {} : { laneMaxAtWork }) }
    if (this.#mayBegin(run) || (waiting < maxWaiting && ofLane < maxWaitingPerLane)) return
    throw new CaissonError(
      'queue_full',
      `the queue is full: ${waiting} of at most ${maxWaiting} runs wait, and ${ofLane} of at most ${maxWaitingPerLane} of this caller`,
      { remedy: 'wait until one has started, or cancel one that waits' },
    )
  }

  /** Adds a run, which the caller ends with {@link Turn.leave}. Bounds are of {@link requireRoom}. */
  enter(entry: QueueEntry): Turn {
    const turn: Turn = new Turn(
      {
        join: (joined) => this.#join(turn, joined),
        leave: (state) => this.#leave(turn, state),
        begin: () => this.#begin(turn),
        extraVm: (signal) => this.#extraVm(signal),
      },
      entry,
    )
    turn.join(entry)
    return turn
  }

  /** Nobody starts any more; who waits learns that the host is closed. */
  close(): void {
    this.#isClosed = true
    for (const { runId } of this.#fair.list) this.#turns.get(runId)?.close()
  }

  /** Read when it is first needed, since the index is opened later than the queue. */
  get #fair(): FairOrder {
    this.#order ??= new FairOrder(this.#index()?.queue((table) => table.served()))
    return this.#order
  }

  /** Whether it would not wait. */
  #mayBegin(run: Pick<QueueEntry, 'lane' | 'laneMaxAtWork'>): boolean {
    const isFree = this.#hasRoom && this.#holds === 0
    return isFree && this.#fair.next === undefined && !this.#fair.isFull(run)
  }

  get #hasRoom(): boolean {
    return this.#atWork + this.#extraVms < this.limits.maxAtWork
  }

  /** One may always be there: a run at work gives its place to nobody while it waits for its sub-agent. */
  get #hasExtraRoom(): boolean {
    return this.#hasRoom || this.#extraVms === 0
  }

  async #extraVm(signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted()
    if (this.#hasExtraRoom && this.#extraWaits.size === 0) this.#extraVms += 1
    else {
      const given = Promise.withResolvers<void>()
      const over = new AbortController()
      this.#extraWaits.add(given.resolve)
      try {
        await Promise.race([given.promise, rejectWhenAborted(signal, over.signal)])
      } catch (error) {
        // Given at the same moment: it is the next one's.
        if (!this.#extraWaits.delete(given.resolve)) this.#endExtraVm()
        throw error
      } finally {
        over.abort()
      }
    }
    let isHeld = true
    return {
      [Symbol.dispose]: () => {
        if (isHeld) this.#endExtraVm()
        isHeld = false
      },
    }
  }

  #endExtraVm(): void {
    this.#extraVms -= 1
    this.#letStart()
  }

  #join(turn: Turn, entry: QueueEntry): void {
    this.#turns.set(entry.runId, turn)
    if (this.#isClosed) turn.close()
    else if (this.#mayBegin(entry)) this.#begin(turn)
    else {
      const kept = this.#index()?.queue((table) => table.add(entry))
      this.#position = Math.max(this.#position + 1, kept ?? 0)
      this.#fair.add({ ...entry, position: kept ?? this.#position })
      this.#letStart()
    }
  }

  #leave({ entry }: Turn, state: TurnState): void {
    this.#turns.delete(entry.runId)
    if (state === 'waiting') {
      this.#fair.remove(entry)
      this.#index()?.queue((table) => table.remove(entry.runId))
    } else if (state === 'atWork') {
      this.#atWork -= 1
      this.#fair.end(entry.lane)
    }
    this.#letStart()
  }

  #letStart(): void {
    // First: each is of a run that has begun.
    for (const give of this.#extraWaits) {
      if (!this.#hasExtraRoom) break
      this.#extraWaits.delete(give)
      this.#extraVms += 1
      give()
    }
    while (!this.#isClosed && this.#holds === 0 && this.#hasRoom) {
      const { next } = this.#fair
      const turn = next === undefined ? undefined : this.#turns.get(next.runId)
      if (turn === undefined) break
      this.#begin(turn)
    }
    this.#tellPlaces()
  }

  #begin(turn: Turn): void {
    const { runId, lane } = turn.entry
    const waited = this.#fair.remove(turn.entry)
    this.#atWork += 1
    const served = this.#fair.begin(lane)
    this.#index()?.queue((table) => table.begin(runId, lane, served))
    if (waited) {
      this.#starts.push(performance.now())
      if (this.#starts.length > startsMax) this.#starts.shift()
    }
    turn.begin()
  }

  /** Once for all changes of this moment. */
  #tellPlaces(): void {
    if (this.#isTelling) return
    this.#isTelling = true
    setImmediate(() => {
      this.#isTelling = false
      const { list } = this.#fair
      for (const [index, { runId }] of list.entries()) this.#turns.get(runId)?.tell(index + 1, list.length)
    })
  }
}

type TurnState = 'waiting' | 'atWork' | 'left'

interface TurnParts {
  readonly join: (entry: QueueEntry) => void
  readonly leave: (state: TurnState) => void
  readonly begin: () => void
  readonly extraVm: (signal: AbortSignal) => Promise<Disposable>
}

/** The part of one run in the queue. */
export class Turn {
  readonly #parts: TurnParts
  #entry: QueueEntry
  #state: TurnState = 'left'
  #begun = Promise.withResolvers<'begun' | 'closed'>()
  readonly #settled = Promise.withResolvers<void>()
  #place: readonly [number, number] | undefined
  #onPlace: WaitOptions['onPlace']

  constructor(parts: TurnParts, entry: QueueEntry) {
    this.#parts = parts
    this.#entry = entry
  }

  get entry(): QueueEntry {
    return this.#entry
  }

  /** Whether the run may use a VM. */
  get isAtWork(): boolean {
    return this.#state === 'atWork'
  }

  /** Resolves once the journal says whether the run waits; see {@link settle}. */
  get settled(): Promise<void> {
    return this.#settled.promise
  }

  settle(): void {
    this.#settled.resolve()
  }

  /** For the queue. */
  join(entry: QueueEntry): void {
    this.#entry = entry
    this.#state = 'waiting'
    this.#begun = Promise.withResolvers()
    this.#parts.join(entry)
  }

  /** For the queue: it is this run's turn. */
  begin(): void {
    this.#state = 'atWork'
    this.#begun.resolve('begun')
  }

  /** For the queue: nobody starts any more. */
  close(): void {
    this.#begun.resolve('closed')
  }

  /** For the queue. */
  tell(place: number, waiting: number): void {
    if (this.#place?.[0] === place) return
    this.#place = [place, waiting]
    this.#onPlace?.(place, waiting)
  }

  /**
   * A place for another VM of the run at work, such as of a sub-agent, until the result is disposed. It waits before all runs
   * that wait. Beyond the number at work there is one such VM at most. @throws the reason of the signal
   */
  async extraVm(signal: AbortSignal): Promise<Disposable> {
    return await this.#parts.extraVm(signal)
  }

  /** Lets another run start. The run may come back with {@link again}. */
  leave(): void {
    const state = this.#state
    this.#state = 'left'
    if (state !== 'left') this.#parts.leave(state)
    this.settle()
  }

  /** Waits again, to continue. */
  again(): void {
    if (this.#state !== 'left') return
    const { startBy: _, ...entry } = this.#entry
    this.join({ ...entry, isContinued: true })
  }

  /**
   * Resolves when it is the run's turn, or the host is closed. @throws {CaissonError} `queue_timeout`; the reason of the
   * signal
   */
  async wait({ signal, skip, onPlace }: WaitOptions): Promise<'begun' | 'closed'> {
    this.#onPlace = onPlace
    if (this.#place !== undefined) onPlace?.(...this.#place)
    const over = new AbortController()
    const { startBy } = this.#entry
    try {
      return await Promise.race([
        this.#begun.promise,
        rejectWhenAborted(signal, over.signal),
        ...(skip === undefined || !this.#entry.isContinued ? [] : [skip.then(() => this.#skip())]),
        ...(startBy === undefined ? [] : [this.#expire(startBy, over.signal)]),
      ])
    } catch (error) {
      this.leave()
      throw error
    } finally {
      over.abort()
      this.#onPlace = undefined
    }
  }

  #skip(): 'begun' {
    if (this.#state === 'waiting') this.#parts.begin()
    return 'begun'
  }

  async #expire(startBy: number, over: AbortSignal): Promise<never> {
    const waitMs = Math.max(0, startBy - Date.now())
    await sleep(waitMs, undefined, { signal: over }).catch(() => new Promise<never>(() => undefined))
    throw new CaissonError(
      'queue_timeout',
      `the run did not begin by ${new Date(startBy).toISOString()}, as its request asked: others were before it in the queue`,
      { remedy: 'start it again, with more time or a higher priority' },
    )
  }
}

function rejectWhenAborted(signal: AbortSignal, over: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) return onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    over.addEventListener('abort', () => signal.removeEventListener('abort', onAbort), { once: true })
  })
}
