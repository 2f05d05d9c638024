/**
 * The summary beside a journal: its length, whether its writer closed it, and the run's outline. Detects a journal that
 * lost lines, and lets lists skip the journal.
 */

import { randomBytes } from 'node:crypto'
import { open, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { Count, Sha256 } from '#specs/protocol/text.ts'
import { renameDurably } from '../files/durable.ts'
import { parseJson } from '../files/json.ts'
import { readRegular } from '../files/regular-file.ts'
import {
  type JournalPart,
  type JournalPoint,
  type JournalScan,
  journalStart,
  readEvents,
  scanJournal,
} from './journal-lines.ts'
import { RunFold, RunOutline } from './run-outline.ts'

const JournalSummary = z.strictObject({
  version: z.literal(2),
  /** Length of the journal on disk at this time; it never becomes shorter. */
  seq: Count,
  bytes: Count,
  hash: Sha256,
  /** The writer closed it: the journal is exactly this long. */
  closed: z.boolean(),
  outline: RunOutline,
})
type JournalSummary = z.infer<typeof JournalSummary>

/** Larger than any summary. */
const summaryMaxBytes = 32 * 1024 * 1024

export function summaryFile(journal: string): string {
  return path.join(path.dirname(journal), 'summary.json')
}

/** Undefined if missing or unreadable: it is created again. @throws the system's errors */
export async function readSummary(journal: string): Promise<JournalSummary | undefined> {
  const text = await readRegular(summaryFile(journal), summaryMaxBytes).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return ''
    throw error
  })
  return JournalSummary.safeParse(parseJson(text.toString())).data
}

/** @param isDurable whether it must survive a power failure; otherwise an older one may remain */
export async function writeSummary(
  journal: string,
  summary: Omit<JournalSummary, 'version'>,
  isDurable: boolean,
): Promise<void> {
  const file = summaryFile(journal)
  const draft = `${file}.${randomBytes(6).toString('hex')}.new`
  try {
    const handle = await open(draft, 'wx', 0o600)
    try {
      await handle.writeFile(`${JSON.stringify({ version: 2, ...summary })}\n`)
      if (isDurable) await handle.sync()
    } finally {
      await handle.close()
    }
    await (isDurable ? renameDurably(draft, file) : rename(draft, file))
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    throw error
  }
}

export interface JournalReading extends JournalScan {
  /**
   * `closed`: exactly as its writer left it. `open`: being written, or its writer was killed; lines after the last
   * barrier may be missing. `unknown`: no summary has its length.
   */
  readonly length: 'closed' | 'open' | 'unknown'
}

/** Visits all events of the journal, in order. @throws {CaissonError} `state_corrupted` as {@link readWholeEvents} */
export async function readWholeJournal(
  journal: string,
  runId: string,
  visit: (event: JournalEvent, end: JournalPoint) => void,
): Promise<JournalReading> {
  const parts = readWholeEvents(journal, runId)
  for (;;) {
    const { value, done } = await parts.next()
    if (done === true) return value
    for (const { event, end } of value.lines) visit(event, end)
  }
}

/**
 * All events of the journal, in order, as far as the caller asks.
 * @throws {CaissonError} `state_corrupted` when a line was modified, lines are missing or added at the end, or there is
 * no journal
 */
export async function* readWholeEvents(
  journal: string,
  runId: string,
): AsyncGenerator<JournalPart, JournalReading> {
  // Read first: a concurrently written journal only becomes longer.
  const summary = await readSummary(journal)
  let isOnTheWay = summary === undefined || summary.seq === 0
  let scan: JournalScan = { end: journalStart, tornBytes: 0 }
  try {
    for await (const part of readEvents(journal, runId)) {
      for (const { end } of part.lines)
        if (summary !== undefined && end.seq === summary.seq) isOnTheWay = isSamePoint(end, summary)
      scan = { end: part.end, tornBytes: part.tornBytes }
      yield part
    }
  } catch (error) {
    throw isMissing(error) ? missingJournal(journal, runId) : error
  }
  if (summary === undefined) return { ...scan, length: 'unknown' }
  if (!isOnTheWay) throw lostLines(scan.end, summary)
  if (!summary.closed) return { ...scan, length: 'open' }
  if (scan.tornBytes === 0 && scan.end.bytes === summary.bytes) return { ...scan, length: 'closed' }
  // A writer has started since.
  if ((await readSummary(journal))?.closed === false) return { ...scan, length: 'open' }
  throw strayBytes(scan.end.bytes + scan.tornBytes, summary)
}

/** All events of the journal at `file`, in order. @throws {CaissonError} `state_corrupted` as {@link readWholeJournal} */
export async function readJournal(file: string, runId: string): Promise<JournalEvent[]> {
  const events: JournalEvent[] = []
  await readWholeJournal(file, runId, (event) => events.push(event))
  return events
}

/** The outline of a run from its summary and later journal lines; from the whole journal without a summary. */
export async function readOutline(
  journal: string,
  runId: string,
): Promise<{ readonly outline: RunOutline; readonly isMadeAnew: boolean; readonly end: JournalPoint }> {
  const summary = await readSummary(journal)
  const { size } = await stat(journal).catch((error: unknown) => {
    throw isMissing(error) ? missingJournal(journal, runId) : error
  })
  if (summary === undefined) {
    const fold = new RunFold()
    const { end } = await scanJournal(journal, runId, (event, at) => fold.next(event, at))
    return { outline: fold.outline, isMadeAnew: true, end }
  }
  if (size < summary.bytes) throw lostLines({ bytes: size }, summary)
  if (size === summary.bytes) return { outline: summary.outline, isMadeAnew: false, end: summary }
  if (summary.closed && (await readSummary(journal))?.closed === true) throw strayBytes(size, summary)
  const fold = RunFold.from(summary.outline, summary)
  const { end } = await scanJournal(journal, runId, (event, at) => fold.next(event, at), summary)
  return { outline: fold.outline, isMadeAnew: false, end }
}

function isSamePoint(a: JournalPoint, b: JournalPoint): boolean {
  return a.bytes === b.bytes && a.hash === b.hash
}

function isMissing(error: unknown): boolean {
  return errnoOf(error) === 'ENOENT'
}

function missingJournal(journal: string, runId: string): CaissonError {
  return new CaissonError(
    'state_corrupted',
    `there is no journal ${journal}: the history of the run is lost; remove the run: caisson runs rm ${runId}`,
  )
}

function lostLines(
  found: { readonly seq?: number; readonly bytes: number },
  written: JournalPoint,
): CaissonError {
  const events = found.seq === undefined ? '' : `${found.seq} events, `
  return new CaissonError(
    'state_corrupted',
    `the journal lost lines or was modified: ${written.seq} events (${written.bytes} bytes) were written, ${events}${found.bytes} bytes are there`,
  )
}

function strayBytes(size: number, { bytes }: JournalPoint): CaissonError {
  return new CaissonError(
    'state_corrupted',
    `the journal was modified after it was closed: ${bytes} bytes were written, ${size} are there`,
  )
}
