// Remembers which kinds of template failed on this machine, so that not every start retries. An entry is valid for ten
// minutes, four times longer after each further failure, at most a day: the machine may have been busy, or the user may
// have fixed the cause.

import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { parseJson } from '../../files/json.ts'
import type { TemplateKind } from './template.ts'

const FIRST_LIFETIME_MS = 10 * 60 * 1000
const LONGER_EACH_TIME = 4
const MAX_LIFETIME_MS = 24 * 60 * 60 * 1000
const SUFFIX = '.failed'
const MAX_REASON = 2_000

const noteSchema = z.strictObject({
  /** Number of failed attempts. */
  times: z.int().positive(),
  reasons: z.partialRecord(z.enum(['mapped', 'plain']), z.string().max(MAX_REASON)),
})

/** Reasons by kind, in the host's words. */
export type FailureReasons = Partial<Record<TemplateKind, string>>

export interface TemplateFailure {
  /** Name of the missing template. */
  readonly name: string
  /** Milliseconds since 1970. */
  readonly atMs: number
  /** Time of the next attempt. */
  readonly untilMs: number
  readonly reasons: FailureReasons
}

/** One line: by kind, or once if all kinds failed for the same reason. */
export function describeReasons(reasons: FailureReasons): string {
  const entries = Object.entries(reasons)
  const distinct = new Set(entries.map(([, reason]) => reason))
  if (entries.length > 1 && distinct.size === 1) return [...distinct].join('')
  return entries.map(([kind, reason]) => `${kind} memory: ${reason}`).join('; ')
}

export class TemplateFailures {
  readonly #directory: string

  /** @param directory folder of the templates; it may not exist */
  constructor(directory: string) {
    this.#directory = directory
  }

  /** Empty if nothing is known, or the entry has expired. */
  async read(name: string): Promise<FailureReasons> {
    return (await this.#findValid(name))?.reasons ?? {}
  }

  /** If the note cannot be written, only the next start is slower. */
  async note(name: string, kind: TemplateKind, reason: string): Promise<void> {
    const former = await this.#find(name)
    const known = await this.read(name)
    // Both kinds may fail in one attempt.
    const isSameAttempt = former !== undefined && known[kind] === undefined && Object.keys(known).length > 0
    const times = (former?.times ?? 0) + (isSameAttempt ? 0 : 1)
    const note = { times, reasons: { ...known, [kind]: reason.slice(0, MAX_REASON) } }
    await writeFile(this.#file(name), `${JSON.stringify(note)}\n`, { mode: 0o600 }).catch(() => undefined)
  }

  /** Latest first. */
  async list(): Promise<TemplateFailure[]> {
    const found = await Promise.all((await this.#names()).map((name) => this.#findValid(name)))
    return found.filter((failure) => failure !== undefined).sort((one, other) => other.atMs - one.atMs)
  }

  /** Removes entries that another failure would not extend, or all. */
  async forget(all: boolean): Promise<void> {
    for (const name of await this.#names()) {
      if (all || (await this.#find(name)) === undefined) await rm(this.#file(name), { force: true })
    }
  }

  #file(name: string): string {
    return join(this.#directory, `${name}${SUFFIX}`)
  }

  async #names(): Promise<string[]> {
    const files = await readdir(this.#directory).catch(() => [])
    return files.filter((file) => file.endsWith(SUFFIX)).map((file) => file.slice(0, -SUFFIX.length))
  }

  async #findValid(name: string): Promise<TemplateFailure | undefined> {
    const found = await this.#find(name)
    return found !== undefined && found.untilMs > Date.now() ? found : undefined
  }

  /** Returns expired entries for a day too: they hold the number of failures. */
  async #find(name: string): Promise<(TemplateFailure & { readonly times: number }) | undefined> {
    const { mtimeMs: atMs } = await stat(this.#file(name)).catch(() => ({ mtimeMs: 0 }))
    if (Date.now() - atMs > MAX_LIFETIME_MS) return undefined
    const text = await readFile(this.#file(name), 'utf8').catch(() => '')
    const parsed = noteSchema.safeParse(parseJson(text))
    if (!parsed.success) return undefined
    const { times, reasons } = parsed.data
    const untilMs = atMs + Math.min(FIRST_LIFETIME_MS * LONGER_EACH_TIME ** (times - 1), MAX_LIFETIME_MS)
    return { name, atMs, untilMs, reasons, times }
  }
}
