/**
 * Which models servers hold back from a key, for all processes of the user. One small file that only saves requests: an
 * unreadable one counts as empty.
 */
import { createHash } from 'node:crypto'
import * as z from 'zod'
import type { Folders } from '../state/folders.ts'
import { SavedWork } from '../state/json-file.ts'
import { type ModelHold, maxHoldMs } from './model-pauses.ts'
import type { RequestQueue } from './queue.ts'

const Entry = z.strictObject({
  /** A digest of server and key. */
  key: z.string().regex(/^[0-9a-f]{32}$/),
  model: z.string().max(500),
  /** Times in ms since 1970. */
  heldUntil: z.int().min(0),
  limitedUntil: z.int().min(0).optional(),
})
type Entry = z.infer<typeof Entry>
const File = z.strictObject({ version: z.literal(1), holds: z.array(Entry).max(10_000) })

const maxEntries = 200
/** A server's word about a later time is not kept. */
const maxLimitMs = 366 * 24 * 3_600_000
/** Shorter ones are over before another process reads of them. */
const minHoldMs = 1_000

const holdsName = 'model-holds.json'

export class ModelHolds {
  readonly #saved: SavedWork<z.infer<typeof File>>
  #stamp = ''
  #entries: readonly Entry[] = []

  /** @param folders the file is made when there is something to keep */
  constructor(folders: Pick<Folders, 'home' | 'locks'>) {
    this.#saved = new SavedWork(folders, holdsName, File, { version: 1, holds: [] })
  }

  get file(): string {
    return this.#saved.file
  }

  /** Tells the queue what other processes learned since the last call. */
  async tell(queue: RequestQueue, server: string, key: string | null): Promise<void> {
    await this.#refresh()
    const own = digestOf(server, key)
    const now = Date.now()
    for (const { key: of, model, heldUntil, limitedUntil } of this.#entries.filter(isCurrent(now))) {
      if (of !== own) continue
      const limitedMs = limitedUntil === undefined ? 0 : limitedUntil - now
      queue.hold(model, { heldMs: heldUntil - now, limitedMs })
    }
  }

  /** Keeps what this process learned; never rejects. */
  async keep(server: string, key: string | null, model: string, hold: ModelHold): Promise<void> {
    if (hold.heldMs < minHoldMs) return
    const now = Date.now()
    const entry: Entry = {
      key: digestOf(server, key),
      model: model.slice(0, 500),
      heldUntil: Math.floor(now + Math.min(hold.heldMs, maxHoldMs)),
      ...(hold.limitedMs > 0 ? { limitedUntil: Math.round(now + Math.min(hold.limitedMs, maxLimitMs)) } : {}),
    }
    const isOther = (other: Entry) => other.key !== entry.key || other.model !== entry.model
    await this.#saved.change(({ holds }) => {
      const others = holds.filter((other) => isCurrent(now)(other) && isOther(other))
      return { version: 1, holds: [entry, ...others].slice(0, maxEntries) }
    })
  }

  async #refresh(): Promise<void> {
    const stamp = await this.#saved.stamp()
    if (stamp === this.#stamp) return
    const { holds } = await this.#saved.read()
    this.#entries = holds
    this.#stamp = stamp
  }
}

/** No hold is longer: one that ends later was written before the clock was set back, and would be renewed by each reader. */
function isCurrent(now: number): (entry: Entry) => boolean {
  return ({ heldUntil }) => heldUntil > now && heldUntil <= now + maxHoldMs
}

/** No key can be found from it. */
function digestOf(server: string, key: string | null): string {
  return createHash('sha256')
    .update(JSON.stringify([new URL(server).origin, key]))
    .digest('hex')
    .slice(0, 32)
}
