/** Memory budget of all indexes of an agent. Frees nothing: users must release what they reserve. */
import { totalmem } from 'node:os'

const MiB = 1024 * 1024

/** Maximum memory of all indexes; a VM has little. */
export class IndexMemoryBudget {
  readonly #maxBytes: number
  readonly #taken = new Map<object, number>()

  /** @param maxBytes default 48 MiB, in a small machine a sixteenth of its memory */
  constructor(maxBytes: number = Math.min(48 * MiB, totalmem() / 16)) {
    this.#maxBytes = maxBytes
  }

  /** Records the size of `index`; returns whether the budget allows more. */
  note(index: object, bytes: number): boolean {
    this.#taken.set(index, bytes)
    return this.takenBytes < this.#maxBytes
  }

  /** Total of all indexes. */
  get takenBytes(): number {
    let all = 0
    for (const taken of this.#taken.values()) all += taken
    return all
  }

  /** Maximum for an index's unsorted buffer, which is not recorded: a twelfth of the total. */
  get gatherBytes(): number {
    return this.#maxBytes / 12
  }

  leave(index: object): void {
    this.#taken.delete(index)
  }
}
