/**
 * Rows at the bottom of a terminal that are drawn again and again. The cursor rests at the beginning of the first, so that
 * erasing to the end of the screen removes them all. Nothing above the cursor is ever erased: some terminals that rewrap rows
 * at a new width put the cursor lower than its row, and how much lower differs. Rows may stay then, but no line is lost.
 */
import type { Writable } from 'node:stream'
import { fitLine } from './fit.ts'

export interface LiveOutput extends Writable {
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
}

/** Whether rows can be drawn again: on a terminal that obeys cursor movements. */
export function canDraw(out: { readonly isTTY?: boolean }, env: NodeJS.ProcessEnv = process.env): boolean {
  return out.isTTY === true && env.TERM !== 'dumb'
}

/** A row that a window is still wide enough for when it becomes narrower is not rewrapped, so that it is erased whole. */
const widthMax = 80

export class LiveArea {
  readonly #out: LiveOutput
  // Keys that were pressed while the program was being loaded were shown by the terminal: they stand where we write first.
  #drawn = true

  constructor(out: LiveOutput) {
    this.#out = out
  }

  /** @param rows made harmless; each is cut at 80 columns or the terminal's width, and the last ones stay if not all fit */
  draw(rows: readonly string[]): void {
    const width = Math.max(10, Math.min(this.#out.columns || 80, widthMax) - 1)
    const room = Math.max(1, (this.#out.rows || 24) - 2)
    const shown = rows.slice(-room).map((row) => cutRow(row, width))
    // Without automatic wrapping: wide characters could break a row in two.
    const drawn = shown.map((row) => `\u001b[?7l${row}\u001b[?7h\u001b[K`).join('\r\n')
    const up = shown.length > 1 ? `\u001b[${shown.length - 1}A` : ''
    this.#out.write(`\r${drawn}\u001b[J${up}\r`)
    this.#drawn = true
  }

  erase(): void {
    if (!this.#drawn) return
    this.#out.write('\r\u001b[J')
    this.#drawn = false
  }
}

/** The beginning of a row; a color that was open ends. */
function cutRow(row: string, width: number): string {
  const [first = ''] = fitLine(row, width)
  return first === row ? row : `${first}\u001b[0m`
}
