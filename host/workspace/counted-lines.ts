/** The lines of a file whose last one says how many there are. An archive may bring such a file: its numbers come first. */

/** Line feed. */
const newline = 0x0a

/**
 * Reads the last line, and the others if they are as many as it says: of a file with millions none becomes a string before.
 * @param readEnd throws, or returns why the file is refused, or how many lines there are before the last
 * @returns why the file is refused, or its last line and the others
 */
export function readCountedLines<End>(
  bytes: Buffer,
  readEnd: (line: string) => string | { readonly end: End; readonly count: number },
): string | { readonly end: End; readonly lines: readonly string[] } {
  if (bytes.at(-1) !== newline) return 'its last line is not complete'
  const from = bytes.length < 2 ? 0 : bytes.lastIndexOf(newline, bytes.length - 2) + 1
  const last = readEnd(bytes.toString('utf8', from, bytes.length - 1))
  if (typeof last === 'string') return last
  if (countNewlines(bytes.subarray(0, from)) !== last.count) return 'lines are missing or doubled'
  const lines = last.count === 0 ? [] : bytes.toString('utf8', 0, from - 1).split('\n')
  return { end: last.end, lines }
}

function countNewlines(bytes: Buffer): number {
  let count = 0
  for (let at = bytes.indexOf(newline); at >= 0; at = bytes.indexOf(newline, at + 1)) count += 1
  return count
}
