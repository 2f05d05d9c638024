/**
 * The order in which waiting runs start: each lane in turn, those with the fewest runs at work first. Priorities count
 * within a lane alone, so no lane can overtake another one by them. Pure.
 */
import type { RunPriority } from '#specs/protocol/host-event.ts'

export interface Waiting {
  readonly runId: string
  /** Whom the run is for. */
  readonly lane: string
  readonly priority: RunPriority
  /** Whether it continues, having used a VM already: so it precedes those of its lane that start. */
  readonly isContinued: boolean
  /** Runs of the lane at work at once, with this one. Absent: no bound. */
  readonly laneMaxAtWork?: number
  /** Lower came earlier. */
  readonly position: number
}

interface Lane {
  readonly name: string
  /** In the order of their starts. */
  readonly waiting: readonly Waiting[]
  readonly atWork: number
  /** When a run of it started last, as a number that grows; 0: never. */
  readonly served: number
}

export class FairOrder {
  readonly #lanes = new Map<string, Lane>()
  #served: number
  /** Until something changes. */
  #list: readonly Waiting[] | undefined

  /** @param served when lanes were served last, from an earlier process */
  constructor(served: ReadonlyMap<string, number> = new Map()) {
    for (const [name, at] of served) this.#lanes.set(name, { name, waiting: [], atWork: 0, served: at })
    this.#served = Math.max(0, ...served.values())
  }

  /** All that wait, in the order in which they start if no run ends and none is added. */
  get list(): readonly Waiting[] {
    this.#list ??= orderOf([...this.#lanes.values()])
    return this.#list
  }

  waitingOf(lane: string): number {
    return this.#lanes.get(lane)?.waiting.length ?? 0
  }

  /** The first run that may begin. Undefined: none waits, or all that wait are of lanes at their bound. */
  get next(): Waiting | undefined {
    return this.list.find((run) => !this.isFull(run))
  }

  /** Whether as many runs of the lane are at work as may be. */
  isFull({ lane, laneMaxAtWork }: Pick<Waiting, 'lane' | 'laneMaxAtWork'>): boolean {
    return laneMaxAtWork !== undefined && this.#laneOf(lane).atWork >= laneMaxAtWork
  }

  add(run: Waiting): void {
    const lane = this.#laneOf(run.lane)
    const waiting = [...lane.waiting, run].sort(compareInLane)
    this.#set({ ...lane, waiting })
  }

  /** Whether it waited. */
  remove({ runId, lane: name }: Pick<Waiting, 'runId' | 'lane'>): boolean {
    const lane = this.#laneOf(name)
    const waiting = lane.waiting.filter((one) => one.runId !== runId)
    if (waiting.length === lane.waiting.length) return false
    this.#set({ ...lane, waiting })
    return true
  }

  /** A run of the lane is at work. @returns the number that says when */
  begin(name: string): number {
    const lane = this.#laneOf(name)
    this.#served += 1
    this.#set({ ...lane, atWork: lane.atWork + 1, served: this.#served })
    return this.#served
  }

  end(name: string): void {
    const lane = this.#laneOf(name)
    this.#set({ ...lane, atWork: lane.atWork - 1 })
  }

  #laneOf(name: string): Lane {
    return this.#lanes.get(name) ?? { name, waiting: [], atWork: 0, served: 0 }
  }

  #set(lane: Lane): void {
    this.#list = undefined
    this.#lanes.delete(lane.name)
    this.#lanes.set(lane.name, lane)
    if (this.#lanes.size <= lanesMax) return
    // There may be any number of lanes over time; who neither waits nor works is forgotten.
    for (const { name, waiting, atWork } of this.#lanes.values())
      if (waiting.length === 0 && atWork === 0) {
        this.#lanes.delete(name)
        return
      }
  }
}

/** Lanes that are remembered although nothing of them waits or works. */
export const lanesMax = 1_000

const ranks: Readonly<Record<RunPriority, number>> = { high: 1, normal: 2, low: 3 }

function compareInLane(a: Waiting, b: Waiting): number {
  const rank = ({ isContinued, priority }: Waiting): number => (isContinued ? 0 : ranks[priority])
  return rank(a) - rank(b) || a.position - b.position || (a.runId < b.runId ? -1 : 1)
}

/** Lets one run after another start, as if all of them stayed at work. */
function orderOf(all: readonly Lane[]): Waiting[] {
  const lanes = all.filter(({ waiting }) => waiting.length > 0).sort(compareLanes)
  const order: Waiting[] = []
  let served = Math.max(0, ...all.map((lane) => lane.served))
  for (;;) {
    const next = lanes.shift()
    const [first, ...waiting] = next?.waiting ?? []
    if (next === undefined || first === undefined) return order
    order.push(first)
    served += 1
    if (waiting.length > 0) insert(lanes, { ...next, waiting, atWork: next.atWork + 1, served })
  }
}

function compareLanes(a: Lane, b: Lane): number {
  const first = ({ waiting }: Lane): number => waiting[0]?.position ?? 0
  return a.atWork - b.atWork || a.served - b.served || first(a) - first(b)
}

/** Into a sorted list. */
function insert(lanes: Lane[], lane: Lane): void {
  let low = 0
  let high = lanes.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const other = lanes[middle]
    if (other !== undefined && compareLanes(other, lane) <= 0) low = middle + 1
    else high = middle
  }
  lanes.splice(low, 0, lane)
}
