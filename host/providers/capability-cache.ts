/**
 * What model servers have said of themselves, kept over runs: fields they refuse, how long a conversation may be. One
 * small file; it only spares requests, so one that cannot be read or written counts as empty.
 */
import { randomUUID } from 'node:crypto'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import * as z from 'zod'
import { parseJson } from '../files/json.ts'
import { optionalFields } from './request-rejection.ts'

/** What one server said of one model; absent: nothing. */
const Said = z.strictObject({
  refusedFields: z.array(z.enum(optionalFields)).max(optionalFields.length).optional(),
  contextTokens: z.int().min(1).optional(),
  maxOutputTokens: z.int().min(1).optional(),
  /** It takes one call in a turn. */
  singleCalls: z.boolean().optional(),
  /** It refused tools; what it says next time is believed. */
  refusedTools: z.boolean().optional(),
  /** It said that the model is not there, for this key or for nobody. */
  isGone: z.boolean().optional(),
})
export type Said = Readonly<z.infer<typeof Said>>

const Entry = z.strictObject({
  /** The server's base address. */
  server: z.string().max(2_000),
  model: z.string().max(500),
  /** When it was said last, ms since 1970. */
  at: z.int().min(0),
  said: Said,
})
type Entry = z.infer<typeof Entry>
const File = z.strictObject({ version: z.literal(1), models: z.array(Entry).max(10_000) })

const maxEntries = 200
const maxBytes = 1024 * 1024
/** Servers are updated: what was said longer ago is asked anew. */
const maxAgeMs = 30 * 24 * 3_600_000

export class CapabilityCache {
  readonly #file: string | null
  readonly #now: () => number
  #entries: readonly Entry[] | null = null
  #last: Promise<unknown> = Promise.resolve()

  /** @param file null keeps it for this object's life alone @param now milliseconds since 1970 */
  constructor(file: string | null, now: () => number = Date.now) {
    this.#file = file
    this.#now = now
  }

  /** What the server said of the model. */
  async recall(server: string, model: string): Promise<Said> {
    this.#entries ??= await this.#read()
    return this.#find(this.#entries, server, model)?.said ?? {}
  }

  /** Ids of a server's models that it said are gone. */
  async gone(server: string): Promise<readonly string[]> {
    this.#entries ??= await this.#read()
    return this.#entries
      .filter((entry) => entry.server === server && entry.said.isGone === true)
      .map(({ model }) => model)
  }

  /** Adds to what is known; of what was known only what `said` names is replaced. */
  learn(server: string, model: string, said: Said): Promise<void> {
    const work = this.#last.then(() => this.#learn(server, model, said))
    this.#last = work
    return work
  }

  async #learn(server: string, model: string, said: Said): Promise<void> {
    // Another process may have learnt something since.
    const stored = await this.#read()
    const own = (this.#entries ?? []).filter((known) => !this.#find(stored, known.server, known.model))
    const entries = [...stored, ...own]
    const before = this.#find(entries, server, model)?.said ?? {}
    const fields = [...new Set([...(before.refusedFields ?? []), ...(said.refusedFields ?? [])])]
    const entry: Entry = {
      server,
      model,
      at: this.#now(),
      said: { ...before, ...said, ...(fields.length === 0 ? {} : { refusedFields: fields }) },
    }
    const others = entries.filter((other) => other.server !== server || other.model !== model)
    this.#entries = [entry, ...others].slice(0, maxEntries)
    await this.#write(this.#entries)
  }

  #find(entries: readonly Entry[], server: string, model: string): Entry | undefined {
    return entries.find((entry) => entry.server === server && entry.model === model)
  }

  async #read(): Promise<readonly Entry[]> {
    const text = this.#file === null ? '' : await readFile(this.#file, 'utf8').catch(() => '')
    const parsed = text.length > maxBytes ? undefined : File.safeParse(parseJson(text)).data
    const now = this.#now()
    return parsed?.models.filter(({ at }) => at <= now && now - at < maxAgeMs) ?? []
  }

  async #write(models: readonly Entry[]): Promise<void> {
    if (this.#file === null) return
    const draft = `${this.#file}.${randomUUID()}`
    try {
      await writeFile(draft, `${JSON.stringify({ version: 1, models }, null, 1)}\n`, {
        mode: 0o600,
        flag: 'wx',
      })
      await rename(draft, this.#file)
    } catch {
      await rm(draft, { force: true }).catch(() => undefined)
    }
  }
}
