/**
 * Caches what model servers reported over runs: refused fields, context length. One small file that only saves
 * requests; an unreadable one counts as empty.
 */
import { randomUUID } from 'node:crypto'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { mergeReports, type ServerReport } from '#specs/node/provider-quirks/capabilities.ts'
import { optionalFields } from '#specs/node/provider-quirks/rejection.ts'
import { parseJson } from '../files/json.ts'

const Report: z.ZodType<ServerReport> = z.strictObject({
  refusedFields: z.array(z.enum(optionalFields)).max(optionalFields.length).optional(),
  contextTokens: z.int().min(1).optional(),
  maxOutputTokens: z.int().min(1).optional(),
  maxImages: z.int().min(0).optional(),
  singleCalls: z.boolean().optional(),
  needsReasoning: z.boolean().optional(),
  refusedTools: z.boolean().optional(),
  isGone: z.boolean().optional(),
})

const Entry = z.strictObject({
  /** The server's base address. */
  server: z.string().max(2_000),
  model: z.string().max(500),
  /** Time of the last report, ms since 1970. */
  at: z.int().min(0),
  said: Report,
})
type Entry = z.infer<typeof Entry>
const File = z.strictObject({ version: z.literal(1), models: z.array(Entry).max(10_000) })

const maxEntries = 200
const maxBytes = 1024 * 1024
/** Servers are updated: older reports are ignored. */
const maxAgeMs = 30 * 24 * 3_600_000

/** @param folders the state folder */
export function capabilityFile({ home }: { readonly home: string }): string {
  return path.join(home, 'models.json')
}

export class CapabilityCache {
  readonly #file: string | null
  readonly #now: () => number
  #entries: readonly Entry[] | null = null
  #last: Promise<unknown> = Promise.resolve()

  /**
   * @param file null: in memory only
   * @param now milliseconds since 1970
   */
  constructor(file: string | null, now: () => number = Date.now) {
    this.#file = file
    this.#now = now
  }

  /** The server's reports about the model. */
  async recall(server: string, model: string): Promise<ServerReport> {
    this.#entries ??= await this.#read()
    return this.#find(this.#entries, server, model)?.said ?? {}
  }

  /** Ids of models that the server reported as gone. */
  async gone(server: string): Promise<readonly string[]> {
    this.#entries ??= await this.#read()
    return this.#entries
      .filter((entry) => entry.server === server && entry.said.isGone === true)
      .map(({ model }) => model)
  }

  /** Merges a report; replaces only its fields. */
  learn(server: string, model: string, said: ServerReport): Promise<void> {
    const work = this.#last.then(() => this.#learn(server, model, said))
    this.#last = work
    return work
  }

  async #learn(server: string, model: string, said: ServerReport): Promise<void> {
    // Another process may have added reports.
    const stored = await this.#read()
    const own = (this.#entries ?? []).filter((known) => !this.#find(stored, known.server, known.model))
    const entries = [...stored, ...own]
    const before = this.#find(entries, server, model)?.said
    const entry: Entry = {
      server,
      model,
      at: this.#now(),
      said: mergeReports(before, said),
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
