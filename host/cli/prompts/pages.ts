/** Shows many rows a screen at a time. */
import { choose, type PromptIo } from './ask.ts'

/** False when the person pressed Esc or Ctrl-C, or the question was withdrawn. */
export async function showPages(rows: readonly string[], io: PromptIo): Promise<boolean> {
  // The question below a page takes some rows, too.
  const pageRows = Math.max(5, (io.output.rows || 24) - 8)
  for (let from = 0; from < rows.length; ) {
    io.output.write(`${rows.slice(from, from + pageRows).join('\n')}\n`)
    from += pageRows
    if (from >= rows.length) return true
    const next = await choose(
      io,
      `Lines 1 to ${from} of ${rows.length}`,
      [
        { value: 'more', label: 'more' },
        { value: 'rest', label: 'all the rest' },
        { value: 'back', label: 'back to the question' },
      ],
      'more',
    )
    if (next === null) return false
    if (next === 'back') return true
    if (next === 'rest') {
      io.output.write(`${rows.slice(from).join('\n')}\n`)
      return true
    }
  }
  return true
}
