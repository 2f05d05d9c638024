/**
 * A text as lines with their ends, and a search for blocks of lines, exact or ignoring white space. Pure; bounded
 * work.
 */

/** One line's end; the last line may have none. */
export type LineEnd = '\n' | '\r\n' | ''

export interface TextLines {
  /** Whether a byte order mark precedes the first line; it is not part of that line. */
  readonly byteOrderMark: boolean
  readonly lines: readonly string[]
  /** One per line. */
  readonly ends: readonly LineEnd[]
}

/** A trailing newline adds no empty line; an empty text has no lines. */
export function splitLines(text: string): TextLines {
  const byteOrderMark = text.startsWith('\ufeff')
  const lines: string[] = []
  const ends: LineEnd[] = []
  for (let from = byteOrderMark ? 1 : 0; from < text.length; ) {
    const newline = text.indexOf('\n', from)
    const isCrlf = newline > from && text[newline - 1] === '\r'
    lines.push(text.slice(from, newline === -1 ? text.length : isCrlf ? newline - 1 : newline))
    ends.push(newline === -1 ? '' : isCrlf ? '\r\n' : '\n')
    from = newline === -1 ? text.length : newline + 1
  }
  return { byteOrderMark, lines, ends }
}

/** Joins the lines to a text again. */
export function joinLines({ byteOrderMark, lines, ends }: TextLines): string {
  return (byteOrderMark ? '\ufeff' : '') + lines.map((line, at) => line + ends[at]).join('')
}

/** The most common line end. */
export function usualEnd(ends: readonly LineEnd[]): '\n' | '\r\n' {
  let crlf = 0
  for (const end of ends) crlf += end === '\r\n' ? 1 : end === '\n' ? -1 : 0
  return crlf > 0 ? '\r\n' : '\n'
}

/** A line trimmed, with each run of white space as one space. */
export function squeezeLine(line: string): string {
  return line.trim().replace(/\s+/g, ' ')
}

/** Maximum comparisons per index, so that texts of equal lines are refused quickly. */
const maxComparisons = 50_000_000

/** Positions of lines. */
export class LineIndex {
  readonly #ids: Int32Array
  readonly #idByLine = new Map<string, number>()
  readonly #places: number[][] = []
  #comparisons = 0

  constructor(lines: readonly string[]) {
    this.#ids = new Int32Array(lines.length)
    for (const [at, line] of lines.entries()) {
      let id = this.#idByLine.get(line)
      if (id === undefined) {
        id = this.#places.length
        this.#idByLine.set(line, id)
        this.#places.push([])
      }
      this.#ids[at] = id
      this.#places[id]?.push(at)
    }
  }

  /**
   * First lines of the blocks equal to `wanted`, starting at `from`, in order, at most `limit`; null when the
   * comparisons are used up. Empty for an empty `wanted`.
   */
  find(wanted: readonly string[], from: number, limit: number): readonly number[] | null {
    const ids = wanted.map((line) => this.#idByLine.get(line) ?? -1)
    if (ids.length === 0 || ids.includes(-1)) return []
    const placesOf = (id: number): readonly number[] => this.#places[id] ?? []
    let rarest = 0
    for (const [at, id] of ids.entries()) {
      if (placesOf(id).length < placesOf(ids[rarest] ?? 0).length) rarest = at
    }
    const found: number[] = []
    for (const place of placesOf(ids[rarest] ?? 0)) {
      if (this.#comparisons++ > maxComparisons) return null
      const start = place - rarest
      if (start < from || !this.#isAt(start, ids)) continue
      found.push(start)
      if (found.length === limit) break
    }
    return this.#comparisons > maxComparisons ? null : found
  }

  /** Whether `wanted` is at exactly this line. */
  isAt(start: number, wanted: readonly string[]): boolean {
    return this.#isAt(
      start,
      wanted.map((line) => this.#idByLine.get(line) ?? -1),
    )
  }

  #isAt(start: number, ids: readonly number[]): boolean {
    if (start < 0 || start + ids.length > this.#ids.length) return false
    for (const [at, id] of ids.entries()) {
      this.#comparisons++
      if (this.#ids[start + at] !== id) return false
    }
    return true
  }
}
