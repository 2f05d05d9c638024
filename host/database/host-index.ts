/**
 * The database of a host, for as long as it works: a failure is warned of, and from then on whoever asks does without it.
 * The journals have everything that counts.
 */
import type { DatabaseSync } from 'node:sqlite'
import { errorMessage } from '#specs/errors.ts'
import { isBusy, openDatabase } from './database.ts'
import { QueueTable } from './queue-table.ts'
import { RunTable } from './run-table.ts'

export class HostIndex implements Disposable {
  readonly #database: DatabaseSync
  readonly #runs: RunTable
  readonly #queue: QueueTable
  readonly #warn: (text: string) => void
  #isOver = false

  private constructor(database: DatabaseSync, warn: (text: string) => void) {
    this.#database = database
    this.#runs = new RunTable(database)
    this.#queue = new QueueTable(database)
    this.#warn = warn
  }

  /** @throws {CaissonError} as {@link openDatabase} */
  static async open(file: string, warn: (text: string) => void): Promise<HostIndex> {
    const { database, warning } = await openDatabase(file)
    if (warning !== undefined) warn(warning)
    return new HostIndex(database, warn)
  }

  /** Undefined where it could not be done. */
  runs<T>(work: (table: RunTable) => T): T | undefined {
    return this.#try(() => work(this.#runs))
  }

  /** Undefined where it could not be done. */
  queue<T>(work: (table: QueueTable) => T): T | undefined {
    return this.#try(() => work(this.#queue))
  }

  [Symbol.dispose](): void {
    if (this.#database.isOpen) this.#database.close()
    this.#isOver = true
  }

  #try<T>(work: () => T): T | undefined {
    if (this.#isOver) return undefined
    try {
      return work()
    } catch (error) {
      // Another process writes; the next time it may be free.
      if (!isBusy(error)) this.#giveUp(error)
      return undefined
    }
  }

  #giveUp(error: unknown): void {
    this.#isOver = true
    this.#warn(
      `the index ${this.#database.location() ?? ''} is not used any more: ${errorMessage(error)}; lists are slower, and the next start makes it anew`,
    )
  }
}
