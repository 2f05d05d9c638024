/**
 * Notices an agent that goes round in circles: calls that were made before and gave what they gave before. A call or a
 * result that is new counts as progress and starts the count afresh, so that edit and test may alternate for long.
 */
import { createHash } from 'node:crypto'

/** `nudge`: tell the model once; `stop`: it was told and goes on. */
export type GuardVerdict = 'fine' | 'nudge' | 'stop'

export class LoopGuard {
  readonly #counts = new Map<string, number>()
  readonly #limit: number
  #nudged = false

  /** `limit` same calls with the same result are one too many. */
  constructor(limit = 3) {
    this.#limit = limit
  }

  record(tool: string, canonicalArguments: string, output: string): GuardVerdict {
    // How long something took says nothing about whether it is new.
    const timeless = output.replaceAll(/\b\d+(?:\.\d+)? ?(?:ms|s)\b/g, 'some time')
    const identity = JSON.stringify([tool, canonicalArguments, timeless])
    const key = createHash('sha256').update(identity).digest('base64')
    const seen = this.#counts.get(key)
    if (seen === undefined) {
      for (const known of this.#counts.keys()) this.#counts.set(known, 1)
      this.#counts.set(key, 1)
      return 'fine'
    }
    this.#counts.set(key, seen + 1)
    if (seen + 1 < this.#limit) return 'fine'
    if (this.#nudged) return 'stop'
    this.#nudged = true
    return 'nudge'
  }
}
