/**
 * What was said to whom of the questions that wait and of the ends of runs, and when it is tried again. A file in the folder
 * of the service, so that a restart says nothing twice. An entry is forgotten with its question, or when its end was said.
 */
import { open, rename } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { errorMessage } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import type { SendResult } from '../index.ts'
import { replaceFile } from './place.ts'

/** Beyond this no further question is delivered until others are answered. */
export const outboxMaxEntries = 4_096
const fileMaxBytes = 4 * 1024 * 1024
const receiverMaxChars = 200
/** Attempts and time for one message. */
const attemptsMax = 12
const ageMaxMs = 24 * 3_600_000
/** First and longest pause between attempts, before the random part. */
const defaultPauseMinMs = 5_000
const pauseMaxMs = 3_600_000

const Entry = z.strictObject({
  runId: z.string().max(100),
  /** Null: it is about the end of the run. */
  approvalId: z.string().max(1_000).nullable(),
  receiver: z.string().max(receiverMaxChars),
  /** Whether nothing more is sent: it arrived, or never will. */
  isOver: z.boolean(),
  attempts: z.int().min(0),
  /** Time of the next attempt, ms since 1970. */
  nextAt: z.number(),
  /** When it was first due, ms since 1970; {@link notYet} before the end of the run. */
  since: z.number(),
})
/** Time of what waits for the end of its run. */
const notYet = Number.MAX_SAFE_INTEGER
export type OutboxEntry = z.infer<typeof Entry>
const File = z.strictObject({ entries: z.array(Entry).max(outboxMaxEntries) })

export interface OutboxOptions {
  readonly directory: string
  readonly log: (line: Readonly<Record<string, unknown>>) => void
  /** Pause before a second attempt, in ms. Absent: 5,000. */
  readonly pauseMinMs?: number
}

export class Outbox {
  readonly #file: string
  readonly #pauseMinMs: number
  readonly #entries = new Map<string, OutboxEntry>()
  #isChanged = false
  #saving: Promise<void> = Promise.resolve()

  private constructor(file: string, entries: readonly OutboxEntry[], pauseMinMs: number) {
    this.#file = file
    this.#pauseMinMs = pauseMinMs
    for (const entry of entries) this.#entries.set(keyOf(entry), entry)
  }

  /** A file that cannot be used is kept under another name, and what waits is delivered once more. */
  static async open({ directory, log, pauseMinMs = defaultPauseMinMs }: OutboxOptions): Promise<Outbox> {
    const file = path.join(directory, 'outbox.json')
    try {
      return new Outbox(file, await readEntries(file), pauseMinMs)
    } catch (error) {
      await rename(file, `${file}.damaged`)
      log({ level: 'warn', message: 'the outbox was damaged and is made anew', cause: errorMessage(error) })
      return new Outbox(file, [], pauseMinMs)
    }
  }

  get size(): number {
    return this.#entries.size
  }

  /** Runs whose end a receiver will hear of. */
  get awaitedEnds(): readonly string[] {
    const awaited = [...this.#entries.values()].filter(
      ({ approvalId, since }) => approvalId === null && since === notYet,
    )
    return [...new Set(awaited.map(({ runId }) => runId))]
  }

  /** Adds the end of a run that is at work, once. @returns false where there is no room */
  awaitEnd(runId: string, receiver: string): boolean {
    return this.add(runId, null, receiver, notYet)
  }

  /** The run has ended: its message is due to who waits for that. */
  noteEnd(runId: string, now: number): void {
    for (const [key, entry] of this.#entries)
      if (entry.runId === runId && entry.approvalId === null && entry.since === notYet) {
        this.#entries.set(key, { ...entry, nextAt: now, since: now })
        this.#isChanged = true
      }
  }

  /** Adds what is due to a receiver, once. @returns false where there is no room */
  add(runId: string, approvalId: string | null, receiver: string, now: number): boolean {
    const entry = { runId, approvalId, receiver, isOver: false, attempts: 0, nextAt: now, since: now }
    const key = keyOf(entry)
    if (this.#entries.has(key)) return true
    if (this.#entries.size >= outboxMaxEntries || receiver.length > receiverMaxChars) return false
    this.#entries.set(key, entry)
    this.#isChanged = true
    return true
  }

  /** Forgets entries, such as those of questions that no longer wait. */
  keepOnly(isKept: (entry: OutboxEntry) => boolean): void {
    for (const [key, entry] of this.#entries)
      if (!isKept(entry)) {
        this.#entries.delete(key)
        this.#isChanged = true
      }
  }

  /** The message to a receiver that is due now and has waited longest; undefined: there is none. */
  nextFor(receiver: string, now: number): OutboxEntry | undefined {
    let next: OutboxEntry | undefined
    for (const entry of this.#entries.values())
      if (entry.receiver === receiver && !entry.isOver && entry.nextAt <= now)
        if (next === undefined || entry.nextAt < next.nextAt) next = entry
    return next
  }

  /** Notes an attempt. @returns whether there will be another one */
  settle(entry: OutboxEntry, result: SendResult, now: number): boolean {
    const attempts = entry.attempts + 1
    const nextAt = result.isSent ? now : now + this.#pause(attempts, result.retryAfterMs)
    const isTriedAgain =
      !result.isSent && result.isRetryable && attempts < attemptsMax && nextAt <= entry.since + ageMaxMs
    // Not one that was forgotten meanwhile.
    if (this.#entries.has(keyOf(entry))) {
      // An end comes once, so nothing has to be remembered of it.
      if (entry.approvalId === null && !isTriedAgain) this.#entries.delete(keyOf(entry))
      else this.#entries.set(keyOf(entry), { ...entry, attempts, nextAt, isOver: !isTriedAgain })
      this.#isChanged = true
    }
    return isTriedAgain
  }

  /** Resolves once the file has what changed so far. */
  async save(): Promise<void> {
    if (this.#isChanged) {
      this.#isChanged = false
      const content = JSON.stringify({ entries: [...this.#entries.values()] })
      this.#saving = this.#saving
        .catch(() => undefined)
        .then(() => replaceFile(this.#file, content))
        .catch((error: unknown) => {
          // The next call writes it.
          this.#isChanged = true
          throw error
        })
    }
    await this.#saving
  }

  /** Longer with each attempt, with a random part, so that many services do not come back at once. */
  #pause(attempts: number, demandedMs: number | null): number {
    const pauseMs = Math.min(this.#pauseMinMs * 3 ** (attempts - 1), pauseMaxMs)
    return Math.max(pauseMs * (0.75 + Math.random() / 2), demandedMs ?? 0)
  }
}

function keyOf({ runId, approvalId, receiver }: Pick<OutboxEntry, 'runId' | 'approvalId' | 'receiver'>) {
  return JSON.stringify([runId, approvalId, receiver])
}

async function readEntries(file: string): Promise<readonly OutboxEntry[]> {
  try {
    await using handle = await open(file, 'r')
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(fileMaxBytes), 0, fileMaxBytes, 0)
    return File.parse(JSON.parse(buffer.toString('utf8', 0, bytesRead))).entries
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return []
    throw error
  }
}
