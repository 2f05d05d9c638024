/** API keys of all nodes of a fleet, in its database. A key that is revoked is refused by every node within half a second. */

import { CaissonError } from '#specs/errors.ts'
import type { ApiKeyStore, StoredKeys } from '../api-keys/api-keys.ts'
import { KeyFile } from '../api-keys/api-keys.ts'
import type { FleetDatabase, Queries } from './database.ts'

/** Any number that no other program takes as an advisory lock: "caisson", with another first letter. */
const changeLock = '27971974926757744'
/** For how long a node uses what it has read. */
const knownMs = 500

export class ApiKeyRows implements ApiKeyStore {
  readonly #database: FleetDatabase
  #known: { readonly until: number; readonly keys: Promise<StoredKeys> } | undefined

  constructor(database: FleetDatabase) {
    this.#database = database
  }

  get place(): string {
    return this.#database.address.shown
  }

  /** @throws {CaissonError} `state_unavailable` while the database is away, so that no key is accepted then */
  async read(): Promise<StoredKeys> {
    if (this.#known !== undefined && performance.now() < this.#known.until) return await this.#known.keys
    const keys = this.#readAll(this.#database)
    this.#known = { until: performance.now() + knownMs, keys }
    try {
      return await keys
    } catch (error) {
      this.#known = undefined
      throw error
    }
  }

  async change(make: (keys: StoredKeys['keys']) => StoredKeys['keys']): Promise<void> {
    await this.#database.transaction(async (tx) => {
      await tx.query('SELECT pg_advisory_xact_lock($1::bigint)', [changeLock])
      const { keys } = await this.#readAll(tx)
      const next = make(keys)
      const kept = new Set(next.map(({ id }) => id))
      const before = new Set(keys.map(({ id }) => id))
      const revoked = [...before].filter((id) => !kept.has(id))
      await tx.query('DELETE FROM caisson.api_keys WHERE key_id = ANY($1)', [revoked])
      for (const key of next)
        if (!before.has(key.id))
          await tx.query(
            'INSERT INTO caisson.api_keys (key_id, name, sha256, body) VALUES ($1, $2, $3, $4::jsonb)',
            [key.id, key.name, key.sha256, JSON.stringify(key)],
          )
    })
    this.#known = undefined
  }

  async #readAll(queries: Queries): Promise<StoredKeys> {
    const rows = await queries.query<{ body: unknown }>(
      'SELECT body FROM caisson.api_keys ORDER BY created_at, key_id',
    )
    const parsed = KeyFile.safeParse({ keys: rows.map(({ body }) => body) })
    if (parsed.success) return parsed.data
    throw new CaissonError(
      'state_corrupted',
      `the API keys of the fleet at ${this.place} have another form`,
      {
        remedy: 'use the version on this host that made them',
      },
    )
  }
}
