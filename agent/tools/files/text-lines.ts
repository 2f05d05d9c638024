/**
 * A text as lines with their ends, and where in it a block of lines stands: exactly, or without regard to white space. Pure;
 * the work is bounded.
 */

/** How one line ends; the last may not. */
export type LineEnd = '\n' | '\r\n' | ''

export interface TextLines {
  /** Whether a byte order mark stands before the first line, of which it is no part. */
  readonly byteOrderMark: boolean
  readonly lines: readonly string[]
  /** One for each line. */
  readonly ends: readonly LineEnd[]
}

/** A text that ends in a newline has no empty line behind it; an empty text has no lines. */
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

/** The text again. */
export function joinLines({ byteOrderMark, lines, ends }: TextLines): string {
  return (byteOrderMark ? '\ufeff' : '') + lines.map((line, at) => line + ends[at]).join('')
}

/** The end that most lines have. */
export function usualEnd(ends: readonly LineEnd[]): '\n' | '\r\n' {
  let crlf = 0
  for (const end of ends) crlf += end === '\r\n' ? 1 : end === '\n' ? -1 : 0
  return crlf > 0 ? '\r\n' : '\n'
}

/** A line without the white space at its ends, and one space for each run of it within. */
export function squeezeLine(line: string): string {
  return line.trim().replace(/\s+/g, ' ')
}

/** Comparisons of lines that one index bears, so that texts of equal lines end in a refusal and not in hours. */
const maxComparisons = 50_000_000

/** Where lines stand among others. */
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
   * The first lines of the blocks that equal `wanted`, from `from` on, in order, at most `limit`; null when the comparisons
   * are used up. None for nothing wanted.
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

  /** Whether `wanted` stands at this very line. */
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
