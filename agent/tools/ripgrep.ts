/** Reads ripgrep's `--json` lines, which another program in the sandbox may have written: bounded, and never thrown at. */
import { Buffer } from 'node:buffer'
import * as z from 'zod'
import { decodePath } from '#specs/node/path-text.ts'

/** One line of JSON; a longer one is passed over. */
const JSON_LINE_MAX_BYTES = 1024 * 1024
const TEXT_MAX_CHARS = 500
/** Characters of all lines together; the search ends there. */
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

/** ripgrep gives text, or base64 where it is not UTF-8. */
const RipgrepText = z.union([z.object({ text: z.string() }), z.object({ bytes: z.string() })])
const RipgrepLine = z.object({
  type: z.enum(['match', 'context']),
  data: z.object({ path: RipgrepText, lines: RipgrepText, line_number: z.int().min(1) }),
})

export class RipgrepReader {
  readonly #maxMatches: number
  readonly #lines: SearchLine[] = []
  readonly #files = new Set<string>()
  #pending: Buffer[] = []
  #pendingBytes = 0
  #isOverlong = false
  #matches = 0
  #chars = 0

  constructor(maxMatches: number) {
    this.#maxMatches = maxMatches
  }

  /** Takes output as it comes; false when there is enough. */
  take(bytes: Uint8Array): boolean {
    let rest = Buffer.from(bytes)
    for (let end = rest.indexOf(NEWLINE); end !== -1; end = rest.indexOf(NEWLINE)) {
      this.#keep(rest.subarray(0, end))
      const isOverlong = this.#isOverlong
      const line = Buffer.concat(this.#pending)
      this.#pending = []
      this.#pendingBytes = 0
      this.#isOverlong = false
      if (!isOverlong && !this.#takeLine(line)) return false
      rest = rest.subarray(end + 1)
    }
    this.#keep(rest)
    return true
  }

  result(): { lines: SearchLine[]; matches: number; files: number; truncated: boolean } {
    return { lines: this.#lines, matches: this.#matches, files: this.#files.size, truncated: false }
  }

  #keep(bytes: Buffer): void {
    if (this.#isOverlong || bytes.length === 0) return
    this.#pendingBytes += bytes.length
    this.#pending.push(bytes)
    if (this.#pendingBytes <= JSON_LINE_MAX_BYTES) return
    this.#isOverlong = true
    this.#pending = []
  }

  #takeLine(line: Buffer): boolean {
    const found = parseLine(line)
    if (found === undefined) return true
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

function parseLine(line: Buffer): SearchLine | undefined {
  let value: unknown
  try {
    value = JSON.parse(line.toString('utf8'))
  } catch {
    return undefined
  }
  const parsed = RipgrepLine.safeParse(value)
  if (!parsed.success) return undefined
  const { path, lines, line_number } = parsed.data.data
  const text = textOf(lines, (bytes) => bytes.toString('utf8')).replace(/\r?\n$/, '')
  return {
    path: textOf(path, decodePath).replace(/^\.\//, ''),
    line: line_number,
    text: (text.length > TEXT_MAX_CHARS ? `${text.slice(0, TEXT_MAX_CHARS)}…` : text).toWellFormed(),
    isMatch: parsed.data.type === 'match',
  }
}

function textOf(value: z.infer<typeof RipgrepText>, decode: (bytes: Buffer) => string): string {
  return 'text' in value ? value.text : decode(Buffer.from(value.bytes, 'base64'))
}
