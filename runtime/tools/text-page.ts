/** Reads a page of lines from a file of any size: scans bytes and holds only the page. Refuses binary files. */
import { Buffer, isUtf8 } from 'node:buffer'
import { readSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { failure } from '#specs/node/file-error.ts'
import type { Result } from '#specs/protocol/error.ts'

const CHUNK_BYTES = 1024 * 1024
/** Bytes at the start in which a NUL marks a file as binary. */
const BINARY_PROBE_BYTES = 8192
/** Maximum bytes scanned; later pages need other tools. */
const SCAN_MAX_BYTES = 512 * 1024 * 1024
const NEWLINE = 0x0a

interface PageRequest {
  /** First line, from 1. */
  readonly offset: number
  readonly maxLines: number
  /** Maximum bytes of the page; a longer first line is cut. */
  readonly maxBytes: number
  /** Maximum characters of one line. */
  readonly maxLineChars: number
}

interface Page {
  /** Without line ends. */
  readonly lines: readonly string[]
  /** Number of lines in the file; absent when it is too large to count. */
  readonly totalLines: number | null
  /** Numbers of lines that were cut. */
  readonly cutLines: readonly number[]
  /** Whether bytes that are not UTF-8 became U+FFFD. */
  readonly lossy: boolean
  /** Whether every line of the page ends in CR LF. */
  readonly crlf: boolean
  readonly byteOrderMark: boolean
  /** Whether the file lacks a final newline. */
  readonly unfinished: boolean
}

/** Reads a page. Failures: `binary_file` (a NUL at the start or in the page), `too_large` (the page lies too far in). */
export async function readTextPage(
  fd: number,
  request: PageRequest,
  signal: AbortSignal,
): Promise<Result<Page>> {
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
  const probe = chunk.subarray(0, readSync(fd, chunk, 0, BINARY_PROBE_BYTES, 0))
  if (probe.includes(0)) return failure('binary_file', 'it has NUL bytes')
  const byteOrderMark = probe[0] === 0xef && probe[1] === 0xbb && probe[2] === 0xbf
  const scan = new LineScan(request)
  let position = 0
  let last = NEWLINE
  while (position < SCAN_MAX_BYTES) {
    const count = readSync(fd, chunk, 0, CHUNK_BYTES, position)
    if (count === 0) break
    scan.take(chunk.subarray(0, count), position)
    last = chunk[count - 1] ?? NEWLINE
    position += count
    await nextTurn()
    if (signal.aborted) return failure('cancelled', 'Reading was cancelled.')
  }
  const isWhole = position < SCAN_MAX_BYTES
  if (last !== NEWLINE) scan.endLine(position)
  if (!isWhole && scan.ends.length === 0) {
    return failure('too_large', `line ${request.offset} lies more than ${SCAN_MAX_BYTES} bytes into the file`)
  }
  const text = readLines(fd, scan, request, byteOrderMark)
  if (text === undefined) return failure('binary_file', 'it has NUL bytes')
  return {
    ok: true,
    value: { ...text, totalLines: isWhole ? scan.lines : null, byteOrderMark, unfinished: last !== NEWLINE },
  }
}

/** Counts lines and records offsets of the page's lines. */
class LineScan {
  /** Complete lines so far. */
  lines = 0
  start = 0
  /** Offset after each line of the page, including its newline. */
  readonly ends: number[] = []
  readonly #request: PageRequest
  #isFull = false

  constructor(request: PageRequest) {
    this.#request = request
  }

  take(bytes: Buffer, position: number): void {
    for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) {
      this.endLine(position + at + 1)
    }
  }

  endLine(end: number): void {
    this.lines++
    const { offset, maxLines, maxBytes } = this.#request
    if (this.lines < offset) this.start = end
    else if (!this.#isFull) {
      this.#isFull = this.ends.length === maxLines || (this.ends.length > 0 && end - this.start > maxBytes)
      if (!this.#isFull) this.ends.push(end)
    }
  }
}

/** The page's text, or nothing if it contains a NUL. */
function readLines(
  fd: number,
  scan: LineScan,
  { offset, maxBytes, maxLineChars }: PageRequest,
  byteOrderMark: boolean,
): Pick<Page, 'lines' | 'cutLines' | 'lossy' | 'crlf'> | undefined {
  const bytes = Buffer.alloc(Math.min(maxBytes, (scan.ends.at(-1) ?? scan.start) - scan.start))
  const page = bytes.subarray(0, bytes.length === 0 ? 0 : readSync(fd, bytes, 0, bytes.length, scan.start))
  if (page.includes(0)) return undefined
  const cutLines: number[] = []
  let from = 0
  let crlf = scan.ends.length > 0
  const lines = scan.ends.map((absoluteEnd, index) => {
    const end = Math.min(absoluteEnd - scan.start, page.length)
    const line = page.subarray(from, end)
    const isCut = absoluteEnd - scan.start > page.length
    from = end
    // Drop a character that the cut split.
    let text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(line, { stream: isCut })
    if (text.endsWith('\r\n')) text = text.slice(0, -2)
    else {
      if (text.endsWith('\n')) crlf = false
      text = text.replace(/\n$/, '')
    }
    if (byteOrderMark && offset + index === 1) text = text.slice(1)
    if (text.length <= maxLineChars && !isCut) return text
    cutLines.push(offset + index)
    return `${text.slice(0, maxLineChars)}…`.toWellFormed()
  })
  const lossy = !isUtf8(page) && lines.some((line) => line.includes('\ufffd'))
  return { lines, cutLines, lossy, crlf: crlf && page.includes('\r\n') }
}

/** Other facts about a page that matter before its text is used. */
export function notesOf(page: Page): string[] {
  const notes: string[] = []
  if (page.cutLines.length > 0)
    notes.push(`cut because too long: line ${page.cutLines.slice(0, 20).join(', ')}`)
  if (page.lossy) notes.push('not UTF-8: some bytes are shown as \ufffd, so do not write this text back')
  if (page.crlf) notes.push('lines end in CR LF')
  if (page.byteOrderMark) notes.push('begins with a byte order mark')
  if (page.unfinished && page.lines.length > 0) notes.push('no newline at the end of the file')
  return notes
}
