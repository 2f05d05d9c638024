/**
 * Detects cycles of calls of any order and length: nothing in a cycle is new. A new call or result is progress and
 * resets the count, so that edit and test may alternate, and a call may repeat while its result changes. Without
 * results, only calls are compared.
 */
import { hash } from 'node:crypto'

/** One call of a batch. `result` is absent when unknown. */
export interface GuardedCall {
  readonly tool: string
  /** Normalized by `normalizeArguments`. */
  readonly arguments: string
  readonly result?: string
}

interface Seen {
  /** Batches since the last progress in which the call returned this result. */
  count: number
}

interface CallRecord {
  /** The call's latest result, which it would presumably return again. */
  last: Seen
  turn: number
  readonly results: Map<string, Seen>
}

/** How often a cycle may repeat. */
export const defaultGuardLimit = 2

export class LoopGuard {
  readonly #limit: number
  readonly #calls = new Map<string, CallRecord>()
  /** Entries with a count. */
  #counted = new Set<Seen>()
  #turns = 0
  #nudged = false

  /** @param limit maximum batches in which a call may return the same result without progress; at least 1 */
  constructor(limit: number = defaultGuardLimit) {
    this.#limit = limit
  }

  /**
   * Called before a batch runs: null if it may, otherwise the number of turns since the same calls. A batch is
   * stopped when all of its calls have used up their limit.
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

  /** Called after a batch ran; true when the model should be warned, once per standstill. */
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

  /** Records a text that was no answer: repeating it is part of the cycle. */
  recordText(text: string): void {
    this.#turns++
    const { seen, created } = this.#note({ tool: '', arguments: '', result: text })
    if (created) this.#startAfresh()
    this.#count(seen)
  }

  /** Resets everything: further calls answer another question. */
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

/** Durations do not make a result new. */
function resultKey(result: string | undefined): string {
  return result === undefined
    ? ''
    : `=${digest(result.replaceAll(/\b\d+(?:\.\d+)? ?(?:ms|s)\b/g, 'some time'))}`
}

/** Short texts are their own key. */
function digest(text: string): string {
  return text.length <= 64 ? text : hash('sha256', text, 'base64')
}
