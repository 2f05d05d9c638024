/** What belongs to calls that an agent asks about again. Two calls of one agent may be the same: each has its own. */
import type { ApprovalRequest } from '#specs/protocol/approval.ts'

type Call = Omit<ApprovalRequest, 'runId'>

export class ByCall<T> {
  /** Oldest first. */
  readonly #values = new Map<string, T[]>()

  add(call: Call, value: T): void {
    const key = keyOf(call)
    this.#values.set(key, [...(this.#values.get(key) ?? []), value])
  }

  has(call: Call, isIt: (value: T) => boolean): boolean {
    return this.#values.get(keyOf(call))?.some(isIt) === true
  }

  /** Takes what is its own by `isOwn`, else the oldest of the same call that `isForAny` allows. */
  take(
    call: Call,
    isOwn: (value: T) => boolean,
    isForAny: (value: T) => boolean = () => true,
  ): T | undefined {
    const found = this.#values.get(keyOf(call)) ?? []
    const value = found.find(isOwn) ?? found.find(isForAny)
    if (value !== undefined) this.remove(call, value)
    return value
  }

  /** @returns whether it was there */
  remove(call: Call, value: T): boolean {
    const key = keyOf(call)
    const found = this.#values.get(key) ?? []
    const others = found.filter((one) => one !== value)
    if (others.length === 0) this.#values.delete(key)
    else this.#values.set(key, others)
    return others.length < found.length
  }

  drop(isDropped: (value: T) => boolean): void {
    for (const [key, values] of [...this.#values]) {
      const others = values.filter((value) => !isDropped(value))
      if (others.length === 0) this.#values.delete(key)
      else this.#values.set(key, others)
    }
  }
}

/** Of what is asked about. The host draws the ids of its own questions anew, and of connections also the call's. */
function keyOf({ approvalId, agentPath, stepId, callId, tool, arguments: given }: Call): string {
  const call = callId === approvalId ? [] : [callId]
  return JSON.stringify([agentPath, stepId, ...call, tool, given])
}
