// What kinds of template could not be made or used here, remembered beside the templates, so that not every start tries
// again. Believed for ten minutes, four times as long after each further failure, at most for a day: the machine may only
// have been busy, or the user may have mended it.

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
  /** How often making one was given up. */
  times: z.int().positive(),
  reasons: z.partialRecord(z.enum(['mapped', 'plain']), z.string().max(MAX_REASON)),
})

/** By kind, in words of the host. */
export type FailureReasons = Partial<Record<TemplateKind, string>>

export interface TemplateFailure {
  /** Of the template that there is not. */
  readonly name: string
  /** Milliseconds since 1970. */
  readonly atMs: number
  /** When it is tried again. */
  readonly untilMs: number
  readonly reasons: FailureReasons
}

/** In one line: by kind, or once where all kinds failed for the same reason. */
export function describeReasons(reasons: FailureReasons): string {
  const entries = Object.entries(reasons)
  const distinct = new Set(entries.map(([, reason]) => reason))
  if (entries.length > 1 && distinct.size === 1) return [...distinct].join('')
  return entries.map(([kind, reason]) => `${kind} memory: ${reason}`).join('; ')
}

export class TemplateFailures {
  readonly #directory: string

  /** @param directory the folder of the templates; it need not exist */
  constructor(directory: string) {
    this.#directory = directory
  }

  /** Empty when nothing is known, or not any more. */
  async read(name: string): Promise<FailureReasons> {
    return (await this.#findValid(name))?.reasons ?? {}
  }

  /** A disk that cannot take the note costs the next start a vain attempt, and this one nothing. */
  async note(name: string, kind: TemplateKind, reason: string): Promise<void> {
    const former = await this.#find(name)
    const known = await this.read(name)
    // Both kinds may fail in one attempt.
    const isSameAttempt = former !== undefined && known[kind] === undefined && Object.keys(known).length > 0
    const times = (former?.times ?? 0) + (isSameAttempt ? 0 : 1)
    const note = { times, reasons: { ...known, [kind]: reason.slice(0, MAX_REASON) } }
    await writeFile(this.#file(name), `${JSON.stringify(note)}\n`, { mode: 0o600 }).catch(() => undefined)
  }

  /** The latest first. */
  async list(): Promise<TemplateFailure[]> {
    const found = await Promise.all((await this.#names()).map((name) => this.#findValid(name)))
    return found.filter((failure) => failure !== undefined).sort((one, other) => other.atMs - one.atMs)
  }

  /** Removes the notes that would not be believed longer for another failure either, or all. */
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

  /** Also one that is not believed any more, for a day: it tells how often there was one. */
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
