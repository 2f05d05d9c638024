/** The memory that indexes may take, counted over all of an agent. Frees nothing itself: who notes something leaves again. */
import { totalmem } from 'node:os'

const MiB = 1024 * 1024

/** Memory that all indexes of the agent take together: a VM has little. */
export class IndexMemoryBudget {
  readonly #maxBytes: number
  readonly #taken = new Map<object, number>()

  /** @param maxBytes default 48 MiB, in a small machine a sixteenth of its memory */
  constructor(maxBytes: number = Math.min(48 * MiB, totalmem() / 16)) {
    this.#maxBytes = maxBytes
  }

  /** Notes what `index` takes; whether there is room for more. */
  note(index: object, bytes: number): boolean {
    this.#taken.set(index, bytes)
    return this.takenBytes < this.#maxBytes
  }

  /** Of all indexes that there are. */
  get takenBytes(): number {
    let all = 0
    for (const taken of this.#taken.values()) all += taken
    return all
  }

  /** For what an index gathers before it sorts it in, which is not noted: a twelfth of all. */
  get gatherBytes(): number {
    return this.#maxBytes / 12
  }

  leave(index: object): void {
    this.#taken.delete(index)
  }
}
