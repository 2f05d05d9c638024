/**
 * Parses ripgrep's output, bounded, without throwing: another program in the sandbox could have written it. Reads
 * text lines rather than JSON, which lists every match of a long line.
 */
import { Buffer } from 'node:buffer'
import * as z from 'zod'
import { decodePath } from '#specs/node/path-text.ts'

/** `path NUL number : text`, with `-` before the text of a context line; ripgrep itself cuts long lines. */
export const ripgrepFormat = [
  '--no-heading',
  '--with-filename',
  '--null',
  '--line-number',
  '--no-context-separator',
  '--max-columns=2000',
  '--max-columns-preview',
  '--color=never',
] as const

/** Maximum length of a path and a line together; longer lines are skipped. */
const RECORD_MAX_BYTES = 64 * 1024
const TEXT_MAX_CHARS = 500
/** Maximum characters of all lines; the search ends there. */
const TOTAL_MAX_CHARS = 64 * 1024
const NEWLINE = 0x0a

export const SearchLine = z.strictObject({
  path: z.string(),
  /** From 1. */
  line: z.int().min(1),
  /** The line, cut if it is long. */
  text: z.string(),
  /** False for a line of context. */
  isMatch: z.boolean(),
})
export type SearchLine = z.infer<typeof SearchLine>

export class RipgrepReader {
  readonly #maxMatches: number
  readonly #start: string
  readonly #lines: SearchLine[] = []
  readonly #files = new Set<string>()
  #pending: Buffer = Buffer.alloc(0)
  #isOverlong = false
  #matches = 0
  #chars = 0

  /** @param start how each path begins, as requested; `./` is left out of the results */
  constructor(maxMatches: number, start = './') {
    this.#maxMatches = maxMatches
    this.#start = start
  }

  /** Takes output in chunks; false when there is enough. */
  take(bytes: Uint8Array): boolean {
    let rest = Buffer.concat([this.#pending, bytes])
    if (this.#isOverlong) {
      const end = rest.indexOf(NEWLINE)
      if (end === -1) return true
      this.#isOverlong = false
      rest = rest.subarray(end + 1)
    }
    for (;;) {
      const pathEnd = rest.indexOf(0)
      const end = pathEnd === -1 ? -1 : rest.indexOf(NEWLINE, pathEnd)
      if (end === -1) break
      const found =
        end > RECORD_MAX_BYTES ? undefined : readRecord(rest.subarray(0, end), pathEnd, this.#start)
      if (found !== undefined && !this.#takeLine(found)) return false
      rest = rest.subarray(end + 1)
    }
    this.#isOverlong = rest.length > RECORD_MAX_BYTES
    // A copy, so that the remainder does not retain the whole chunk.
    this.#pending = this.#isOverlong ? Buffer.alloc(0) : Buffer.from(rest)
    return true
  }

  result(): { lines: SearchLine[]; matches: number; files: number; truncated: boolean } {
    return { lines: this.#lines, matches: this.#matches, files: this.#files.size, truncated: false }
  }

  #takeLine(found: SearchLine): boolean {
    if (found.isMatch && this.#matches === this.#maxMatches) return false
    if (this.#chars + found.text.length > TOTAL_MAX_CHARS) return false
    this.#lines.push(found)
    this.#chars += found.text.length
    if (found.isMatch) {
      this.#matches++
      this.#files.add(found.path)
    }
    return true
  }
}

function readRecord(record: Buffer, pathEnd: number, start: string): SearchLine | undefined {
  const before = record.subarray(0, pathEnd)
  // Notes about binary files are lines without NUL; every path begins with `start`.
  const path = before.subarray(before.lastIndexOf(`\n${start}`) + 1)
  const body = record.subarray(pathEnd + 1)
  const [head = '', digits = '', sign] = /^([0-9]{1,15})([:-])/.exec(body.toString('latin1', 0, 16)) ?? []
  const line = Number(digits)
  const isRequested = path.subarray(0, Buffer.byteLength(start)).equals(Buffer.from(start))
  if (!isRequested || line < 1) return undefined
  const text = body.subarray(head.length).toString('utf8').replace(/\r$/, '')
  return {
    path: decodePath(start === './' ? path.subarray(2) : path),
    line,
    text: (text.length > TEXT_MAX_CHARS ? `${text.slice(0, TEXT_MAX_CHARS)}…` : text).toWellFormed(),
    isMatch: sign === ':',
  }
}
