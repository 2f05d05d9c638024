/**
 * Breaks lines before the terminal would: a row that it broke itself would continue at its left edge, where untrusted text
 * could pass for a line of ours. Colors pass through; everything else that a terminal obeys was made harmless before.
 */
import type { Writable } from 'node:stream'

/** LEFT-TO-RIGHT MARK: draws nothing; what stands on one side of it is not reordered with the other. */
export const leftToRightMark = '\u200e'

/** Cells that a row has for text, however narrow the terminal is. */
const roomMin = 10
/** Deepest indent that the rest of a line keeps. */
const indentMax = 12

/** Writes lines of ours; on a terminal none is wider than it. */
export function writeLines(
  out: Writable & { readonly isTTY?: boolean; readonly columns?: number },
  lines: readonly string[],
): void {
  if (lines.length === 0) return
  const text = lines.join('\n')
  const width = out.columns || 80
  const rows = out.isTTY === true ? text.split('\n').flatMap((line) => fitLine(line, width)) : [text]
  out.write(`${rows.join('\n')}\n`)
}

/**
 * One line as rows of at most `width` cells, broken behind a blank where one is near the end. The rest continues behind
 * the line's own margin, or behind one that says so. No blank is dropped: `/ tmp` must not be taken for `/tmp`.
 */
export function fitLine(line: string, width: number): string[] {
  // No character takes more than two cells.
  if (line.length * 2 <= width) return [line]
  const indent = /^ */.exec(line)?.[0].slice(0, indentMax) ?? ''
  const margin = /^ *[│┆] /.exec(line)?.[0] ?? `${indent}  ┊ `
  const mark = line.includes(leftToRightMark) ? leftToRightMark : ''
  const room = Math.max(width, margin.length + roomMin)
  const rows: string[] = []
  let row = ''
  let used = 0
  // What stands behind the row's last blank.
  let word = { from: 0, cells: Number.POSITIVE_INFINITY }
  for (const [piece] of line.matchAll(/\p{Cc}\[[\d;]*m|./gsu)) {
    const cells = cellsOf(piece)
    if (cells > 0 && used + cells > room) {
      const isWordMoved = word.cells <= (room - margin.length) / 3
      const from = isWordMoved ? word.from : row.length
      rows.push(row.slice(0, from) + mark)
      row = margin + mark + row.slice(from)
      used = margin.length + (isWordMoved ? word.cells : 0)
      word = { from: 0, cells: Number.POSITIVE_INFINITY }
    }
    row += piece
    used += cells
    word = piece === ' ' ? { from: row.length, cells: 0 } : { from: word.from, cells: word.cells + cells }
  }
  return [...rows, row]
}

/** Cells of a character or a color; rather too many than too few. A mark has none of its own and stays where it belongs. */
function cellsOf(piece: string): number {
  const code = piece.codePointAt(0) ?? 0
  if (code === 0x1b || piece === leftToRightMark) return 0
  if (code < 0x300) return 1
  if (/^\p{Mn}$/v.test(piece)) return 0
  const isNarrow = code < 0x1100 || (code >= 0x1e00 && code < 0x2300) || (code >= 0x2500 && code < 0x25a0)
  return isNarrow ? 1 : 2
}
