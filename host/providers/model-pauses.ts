/** The pauses that a server asked for, by model. Times in milliseconds of one monotonic clock. */

const firstPauseMs = 2_000
const maxPauseMs = 60_000
/** A model is held no longer, whatever the server asks: then one request finds out whether the limit still stands. */
export const maxHoldMs = 10 * 60_000

/** For how long a server holds a model back. */
export interface ModelHold {
  readonly heldMs: number
  /** 0, or more than it is held: see {@link ModelPauses.limitedMs}. */
  readonly limitedMs: number
}

/** A model that the server refused and has not answered since. */
interface Refusals {
  /** Consecutive ones. */
  readonly count: number
  /** Time of the last counted one. */
  readonly at: number
  /** The pause without a server's value. */
  readonly pauseMs: number
  heldUntil: number
  /** When the server expects a request again, where that is later than the model is held. */
  limitedUntil: number
}

export class ModelPauses {
  readonly #now: () => number
  readonly #random: () => number
  readonly #refusals = new Map<string, Refusals>()

  /** @param random 0 up to 1: the random half of a pause */
  constructor(now: () => number, random: () => number = Math.random) {
    this.#now = now
    this.#random = random
  }

  /** 0 for a model that was not refused. */
  heldUntil(model: string): number {
    return this.#refusals.get(model)?.heldUntil ?? 0
  }

  heldMs(model: string): number {
    return Math.max(0, this.heldUntil(model) - this.#now())
  }

  /** Time until the server expects a request, where that is longer than the model is held; 0 otherwise. */
  limitedMs(model: string): number {
    const until = this.#refusals.get(model)?.limitedUntil ?? 0
    return this.heldMs(model) > 0 ? Math.max(0, until - this.#now()) : 0
  }

  /** The server answered a request that began then. */
  accepted(model: string, begunAt: number): void {
    const last = this.#refusals.get(model)
    // A request that started before the refusal says nothing about the time after it.
    if (last !== undefined && begunAt >= last.at) this.#refusals.delete(model)
  }

  /**
   * The server refused a request that began then.
   * @param retryAfterMs the server's value; null if none
   * @returns the pause
   */
  refused(model: string, begunAt: number, retryAfterMs: number | null): number {
    const now = this.#now()
    const last = this.#refusals.get(model)
    // Requests that were open together and refused together count as one refusal.
    const isSame = last !== undefined && begunAt < last.at
    const known = isSame ? last : this.#next(last, now)
    this.#refusals.set(model, known)
    // A server's value that led to another refusal was too small.
    const least = known.count === 1 ? 0 : known.pauseMs
    const pauseMs = retryAfterMs === null ? known.pauseMs : Math.max(least, Math.min(retryAfterMs, maxHoldMs))
    if (!isSame || retryAfterMs !== null) known.heldUntil = Math.max(known.heldUntil, now + pauseMs)
    if (retryAfterMs !== null && retryAfterMs > maxHoldMs) known.limitedUntil = now + retryAfterMs
    return Math.max(0, known.heldUntil - now)
  }

  /** Takes over what another process learned. @returns whether it is news */
  hold(model: string, { heldMs, limitedMs }: ModelHold): boolean {
    const now = this.#now()
    const known = this.#refusals.get(model)
    if (known !== undefined && known.heldUntil >= now + heldMs) return false
    const limitedUntil = limitedMs > 0 ? now + limitedMs : 0
    const { count, at, pauseMs } = known ?? { count: 1, at: now, pauseMs: firstPauseMs }
    this.#refusals.set(model, { count, at, pauseMs, heldUntil: now + heldMs, limitedUntil })
    return true
  }

  #next(last: Refusals | undefined, now: number): Refusals {
    const count = (last?.count ?? 0) + 1
    const full = Math.min(firstPauseMs * 2 ** (count - 1), maxPauseMs)
    const pauseMs = full / 2 + (full / 2) * this.#random()
    return { count, at: now, pauseMs, heldUntil: last?.heldUntil ?? 0, limitedUntil: 0 }
  }
}
