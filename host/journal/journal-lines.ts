/**
 * Reads a journal line by line and checks form, order and hash chain. Holds one line at a time, so that memory use does
 * not depend on the journal's length.
 */

import { hash } from 'node:crypto'
import { CaissonError } from '#specs/errors.ts'
import { JournalEvent } from '#specs/protocol/event.ts'
import { parseJson } from '../files/json.ts'
import { openRegular } from '../files/regular-file.ts'

/** A position between two lines. */
export interface JournalPoint {
  /** `seq` of the previous line; 0 at the beginning. */
  readonly seq: number
  /** Bytes before the position. */
  readonly bytes: number
  /** `hash` of the previous line; 64 zeros at the beginning. */
  readonly hash: string
}

export const journalStart: JournalPoint = { seq: 0, bytes: 0, hash: '0'.repeat(64) }

export interface JournalScan {
  /** Position after the last whole line. */
  readonly end: JournalPoint
  /** Bytes of an incomplete last line, interrupted by a crash or a full disk. */
  readonly tornBytes: number
}

const readBytes = 256 * 1024
/** Longer than any event. */
const lineMaxBytes = 32 * 1024 * 1024
const empty = Buffer.alloc(0)
/** What follows the hashed text of a line. */
const hashEnding = /^,"hash":"([0-9a-f]{64})"\}$/
const hashEndingBytes = 75

/**
 * Visits every event after `from`, in order; skips a last line without its newline.
 * @throws {CaissonError} `state_corrupted` with the line that breaks schema, order or chain
 */
export async function scanJournal(
  file: string,
  runId: string,
  visit: (event: JournalEvent, end: JournalPoint) => void,
  from: JournalPoint = journalStart,
): Promise<JournalScan> {
  let scan: JournalScan = { end: from, tornBytes: 0 }
  for await (const { lines, end, tornBytes } of readEvents(file, runId, from)) {
    scan = { end, tornBytes }
    for (const line of lines) visit(line.event, line.end)
  }
  return scan
}

/** The lines that one reading of the file completes, and the position after them. */
export interface JournalPart extends JournalScan {
  readonly lines: readonly { readonly event: JournalEvent; readonly end: JournalPoint }[]
}

/** Like {@link scanJournal}, as far as the caller asks. @throws {CaissonError} `state_corrupted` */
export async function* readEvents(
  file: string,
  runId: string,
  from: JournalPoint = journalStart,
): AsyncGenerator<JournalPart, void> {
  let end = from
  for await (const { lines, tornBytes } of readLines(file, from.bytes)) {
    const read = lines.map((line) => {
      const event = readLine(line, runId, end)
      end = { seq: event.seq, bytes: end.bytes + line.length + 1, hash: event.hash }
      return { event, end }
    })
    yield { lines: read, end, tornBytes }
  }
}

/** Like {@link readEvents}, each line with its text, without its newline. @throws {CaissonError} `state_corrupted` */
export async function* readBodies(
  file: string,
  runId: string,
): AsyncGenerator<{ readonly event: JournalEvent; readonly body: string; readonly end: JournalPoint }, void> {
  let end = journalStart
  for await (const { lines } of readLines(file, 0)) {
    for (const line of lines) {
      const event = readLine(line, runId, end)
      end = { seq: event.seq, bytes: end.bytes + line.length + 1, hash: event.hash }
      yield { event, body: line.toString('utf8'), end }
    }
  }
}

/**
 * The event of the one line after `from`. @throws {CaissonError} `state_corrupted` when no line there continues the
 * chain
 */
export async function readLineAt(file: string, runId: string, from: JournalPoint): Promise<JournalEvent> {
  for await (const {
    lines: [line],
  } of readLines(file, from.bytes))
    if (line !== undefined) return readLine(line, runId, from)
  throw new CaissonError('state_corrupted', `the journal has no line ${from.seq + 1}; it lost lines`)
}

const tailBytes = 64 * 1024

/** The events of the last 64 KiB, without their chain: a hint, never the truth. */
export async function readTail(file: string): Promise<JournalEvent[]> {
  await using handle = await openRegular(file)
  const { size } = await handle.stat()
  const from = Math.max(0, size - tailBytes)
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - from), 0, size - from, from)
  const lines = buffer.toString('utf8', 0, bytesRead).split('\n')
  return lines.flatMap((line) => JournalEvent.safeParse(parseJson(line)).data ?? [])
}

/** Lines are valid until the next ones are asked for. `tornBytes` is the number of bytes after the last newline. */
async function* readLines(
  file: string,
  from: number,
): AsyncGenerator<{ readonly lines: readonly Buffer[]; readonly tornBytes: number }, void> {
  await using handle = await openRegular(file)
  const chunk = Buffer.allocUnsafe(readBytes)
  let begun = empty
  for (let at = from; ; ) {
    const { bytesRead } = await handle.read(chunk, 0, readBytes, at)
    if (bytesRead === 0) return
    at += bytesRead
    const read = chunk.subarray(0, bytesRead)
    const lines: Buffer[] = []
    let start = 0
    for (let end = read.indexOf(0x0a); end >= 0; end = read.indexOf(0x0a, start)) {
      const piece = read.subarray(start, end)
      lines.push(begun.length === 0 ? piece : Buffer.concat([begun, piece]))
      begun = empty
      start = end + 1
    }
    begun = Buffer.concat([begun, read.subarray(start)])
    if (begun.length > lineMaxBytes)
      throw new CaissonError(
        'state_corrupted',
        `the journal has a line of more than ${lineMaxBytes} bytes; it was modified or damaged`,
      )
    yield { lines, tornBytes: begun.length }
  }
}

/**
 * The event of a line without its newline. @throws {CaissonError} `state_corrupted` unless it continues the chain
 */
export function readLine(line: Buffer, runId: string, before: JournalPoint): JournalEvent {
  const number = before.seq + 1
  const broken = (fault: string, cause?: unknown) =>
    new CaissonError('state_corrupted', `journal line ${number}: ${fault}; it was changed or damaged`, {
      cause,
    })
  let event: JournalEvent
  try {
    event = JournalEvent.parse(JSON.parse(line.toString('utf8')))
  } catch (cause) {
    throw broken('not an event', cause)
  }
  if (event.seq !== number) throw broken(`seq ${event.seq} instead of ${number}`)
  if (event.runId !== runId) throw broken(`the run is ${event.runId} instead of ${runId}`)
  if (event.prev !== before.hash) throw broken('the hash of the line before does not agree')
  if (hashOfLine(line) !== event.hash) throw broken('the hash of the line does not agree')
  return event
}

/** Hashes the original bytes, independent of the schema's key order. */
function hashOfLine(line: Buffer): string | undefined {
  const end = Math.max(0, line.length - hashEndingBytes)
  if (!hashEnding.test(line.toString('latin1', end))) return undefined
  // The text was `{…}` where the line has `{…,"hash":"…"}`. Hashed in place: a journal has many lines.
  line[end] = closingBrace
  const found = hash('sha256', line.subarray(0, end + 1))
  line[end] = comma
  return found
}

const closingBrace = 0x7d
const comma = 0x2c

/** The line of an event without its newline, and its hash. */
export function chainLine(body: Omit<JournalEvent, 'hash'>): { line: string; hash: string } {
  const text = JSON.stringify(body)
  const own = hash('sha256', text)
  return { line: `${text.slice(0, -1)},"hash":"${own}"}`, hash: own }
}
