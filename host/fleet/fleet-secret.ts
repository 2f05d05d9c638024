/** The secret that all hosts of a fleet read from its tables. It leaves this process only as keyed hashes. */
import { createHmac } from 'node:crypto'
import type { Queries } from './database.ts'

export class FleetSecret {
  readonly #database: Queries
  #value: string | undefined

  constructor(database: Queries) {
    this.#database = database
  }

  /** The same on all hosts of the fleet. @param parts what is hashed @returns 64 hexadecimal digits */
  async hash(...parts: readonly (string | null)[]): Promise<string> {
    const [row] =
      this.#value === undefined
        ? await this.#database.query<{ value: string }>('SELECT value FROM caisson.secret')
        : []
    this.#value ??= row?.value
    if (this.#value === undefined) throw new Error('the fleet has no secret')
    return createHmac('sha256', this.#value).update(JSON.stringify(parts)).digest('hex')
  }
}
