/**
 * Caches what model servers reported over runs: refused fields, context length. One small file that only saves
 * requests; an unreadable one counts as empty.
 */
import * as z from 'zod'
import { mergeReports, type ServerReport } from '#specs/node/provider-quirks/capabilities.ts'
import { optionalFields } from '#specs/node/provider-quirks/rejection.ts'
import type { Folders } from '../state/folders.ts'
import { SavedWork } from '../state/json-file.ts'

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
/** Servers are updated: older reports are ignored. */
const maxAgeMs = 30 * 24 * 3_600_000

export class CapabilityCache {
  readonly #saved: SavedWork<z.infer<typeof File>> | null
  readonly #now: () => number
  #entries: readonly Entry[] | null = null
  #last: Promise<unknown> = Promise.resolve()

  /**
   * @param folders null: in memory only
   * @param now milliseconds since 1970
   */
  constructor(folders: Pick<Folders, 'home' | 'locks'> | null, now: () => number = Date.now) {
    this.#saved =
      folders === null ? null : new SavedWork(folders, 'models.json', File, { version: 1, models: [] })
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
    this.#entries = this.#merged(await this.#read(), server, model, said)
    await this.#saved?.change(({ models }) => ({
      version: 1,
      models: [...this.#merged(this.#recent(models), server, model, said)],
    }))
  }

  #merged(stored: readonly Entry[], server: string, model: string, said: ServerReport): readonly Entry[] {
    const own = (this.#entries ?? []).filter((known) => !this.#find(stored, known.server, known.model))
    const entries = [...stored, ...own]
    const before = this.#find(entries, server, model)?.said
    const entry: Entry = { server, model, at: this.#now(), said: mergeReports(before, said) }
    const others = entries.filter((other) => other.server !== server || other.model !== model)
    return [entry, ...others].slice(0, maxEntries)
  }

  #find(entries: readonly Entry[], server: string, model: string): Entry | undefined {
    return entries.find((entry) => entry.server === server && entry.model === model)
  }

  async #read(): Promise<readonly Entry[]> {
    return this.#saved === null ? [] : this.#recent((await this.#saved.read()).models)
  }

  #recent(models: readonly Entry[]): readonly Entry[] {
    const now = this.#now()
    return models.filter(({ at }) => at <= now && now - at < maxAgeMs)
  }
}
