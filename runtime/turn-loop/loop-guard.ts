/**
 * Notices calls that go round in circles: whatever the order and the length of the circle, nothing in it is new. A call or a
 * result that was not seen before is progress and starts the count afresh, so that edit and test may alternate for long, and
 * a call may be repeated while its result changes. Where results are not told, calls alone are compared.
 */
import { hash } from 'node:crypto'

/** One call of a batch. `result` is absent where it is not known. */
export interface GuardedCall {
  readonly tool: string
  /** In one spelling, as `normalizeArguments` gives it. */
  readonly arguments: string
  readonly result?: string
}

interface Seen {
  /** Batches since the last progress in which the call gave this result. */
  count: number
}

interface CallRecord {
  /** What the call gave last: what it would give again. */
  last: Seen
  turn: number
  readonly results: Map<string, Seen>
}

/** Times that a circle may be gone round. */
export const defaultGuardLimit = 2

export class LoopGuard {
  readonly #limit: number
  readonly #calls = new Map<string, CallRecord>()
  /** Those with a count. */
  #counted = new Set<Seen>()
  #turns = 0
  #nudged = false

  /** `limit`: batches in which a call may give the same result with nothing new between them; at least 1. */
  constructor(limit: number = defaultGuardLimit) {
    this.#limit = limit
  }

  /**
   * Asked before a batch is carried out: null when it may be, otherwise the number of turns since the same calls were last
   * made. A batch is stopped when each of its calls has used up its limit.
   */
  findCircle(batch: readonly GuardedCall[]): number | null {
    let period = 0
    for (const call of batch) {
      const known = this.#calls.get(callKey(call))
      if (known === undefined || known.last.count < this.#limit) return null
      period = Math.max(period, this.#turns + 1 - known.turn)
    }
    return period === 0 ? null : period
  }

  /** Told after a batch was carried out; true when the model should hear, once for a standstill, that it stands still. */
  record(batch: readonly GuardedCall[]): boolean {
    this.#turns++
    const entries = new Set<Seen>()
    let isNew = false
    for (const call of batch) {
      const { seen, created } = this.#note(call)
      entries.add(seen)
      isNew ||= created
    }
    if (isNew) this.#startAfresh()
    let isStuck = false
    for (const seen of entries) {
      this.#count(seen)
      isStuck ||= seen.count >= Math.max(2, this.#limit)
    }
    if (!isStuck || this.#nudged) return false
    this.#nudged = true
    return true
  }

  /** Told of a text that was no answer: saying it again is a part of the circle. */
  recordText(text: string): void {
    this.#turns++
    const { seen, created } = this.#note({ tool: '', arguments: '', result: text })
    if (created) this.#startAfresh()
    this.#count(seen)
  }

  /** Forgets everything: what comes now answers another question. */
  reset(): void {
    this.#calls.clear()
    this.#startAfresh()
  }

  #note(call: GuardedCall): { seen: Seen; created: boolean } {
    const key = callKey(call)
    let known = this.#calls.get(key)
    if (known === undefined) {
      const last = { count: 0 }
      known = { last, turn: this.#turns, results: new Map() }
      this.#calls.set(key, known)
    }
    const result = resultKey(call.result)
    const before = known.results.get(result)
    const seen = before ?? { count: 0 }
    if (before === undefined) known.results.set(result, seen)
    known.last = seen
    known.turn = this.#turns
    return { seen, created: before === undefined }
  }

  #count(seen: Seen): void {
    seen.count++
    this.#counted.add(seen)
  }

  #startAfresh(): void {
    for (const seen of this.#counted) seen.count = 0
    this.#counted = new Set()
    this.#nudged = false
  }
}

function callKey(call: GuardedCall): string {
  return digest(JSON.stringify([call.tool, call.arguments]))
}

/** How long something took says nothing about whether it is new. */
function resultKey(result: string | undefined): string {
  return result === undefined
    ? ''
    : `=${digest(result.replaceAll(/\b\d+(?:\.\d+)? ?(?:ms|s)\b/g, 'some time'))}`
}

/** Short texts stand for themselves. */
function digest(text: string): string {
  return text.length <= 64 ? text : hash('sha256', text, 'base64')
}
