/**
 * Which models servers hold back from a key, for all processes of the user. One small file that only saves requests: an
 * unreadable one counts as empty, and of two processes that write at the same time one may lose its line.
 */
import { createHash, randomUUID } from 'node:crypto'
import { readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import * as z from 'zod'
import { parseJson } from '../files/json.ts'
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
const maxBytes = 1024 * 1024
/** Shorter ones are over before another process reads of them. */
const minHoldMs = 1_000

export class ModelHolds {
  /** Made when there is something to keep. */
  readonly file: string
  #stamp = ''
  #entries: readonly Entry[] = []

  constructor(file: string) {
    this.file = file
  }

  /** Tells the queue what other processes learned since the last call. */
  async tell(queue: RequestQueue, server: string, key: string | null): Promise<void> {
    await this.#refresh()
    const own = digestOf(server, key)
    const now = Date.now()
    for (const { key: of, model, heldUntil, limitedUntil } of this.#entries) {
      if (of !== own || heldUntil <= now) continue
      const limitedMs = limitedUntil === undefined ? 0 : limitedUntil - now
      queue.hold(model, { heldMs: Math.min(heldUntil - now, maxHoldMs), limitedMs })
    }
  }

  /** Keeps what this process learned; never rejects. */
  async keep(server: string, key: string | null, model: string, hold: ModelHold): Promise<void> {
    if (hold.heldMs < minHoldMs) return
    await this.#refresh()
    const now = Date.now()
    const entry: Entry = {
      key: digestOf(server, key),
      model: model.slice(0, 500),
      heldUntil: Math.round(now + hold.heldMs),
      ...(hold.limitedMs > 0 ? { limitedUntil: Math.round(now + hold.limitedMs) } : {}),
    }
    const isOther = (other: Entry) => other.key !== entry.key || other.model !== entry.model
    const others = this.#entries.filter((other) => other.heldUntil > now && isOther(other))
    await this.#write([entry, ...others].slice(0, maxEntries))
  }

  async #refresh(): Promise<void> {
    const found = await stat(this.file, { bigint: true }).catch(() => undefined)
    const stamp = found === undefined ? '' : `${found.ino} ${found.size} ${found.mtimeNs}`
    if (stamp === this.#stamp) return
    this.#stamp = stamp
    const text =
      found === undefined || found.size > maxBytes ? '' : await readFile(this.file, 'utf8').catch(() => '')
    this.#entries = File.safeParse(parseJson(text)).data?.holds ?? []
  }

  async #write(holds: readonly Entry[]): Promise<void> {
    const draft = `${this.file}.${randomUUID()}`
    try {
      await writeFile(draft, `${JSON.stringify({ version: 1, holds }, null, 1)}\n`, {
        mode: 0o600,
        flag: 'wx',
      })
      await rename(draft, this.file)
    } catch {
      await rm(draft, { force: true }).catch(() => undefined)
    }
  }
}

/** No key can be found from it. */
function digestOf(server: string, key: string | null): string {
  return createHash('sha256')
    .update(JSON.stringify([new URL(server).origin, key]))
    .digest('hex')
    .slice(0, 32)
}
