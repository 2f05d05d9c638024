/**
 * Splits a text into passages that are found and shown separately: about forty lines, ended at a blank line where
 * there is one.
 */

/** Lines of the text, from 1, both included. */
export interface Passage {
  readonly firstLine: number
  readonly lastLine: number
}

interface CutPassage extends Passage {
  readonly text: string
}

export const passageMaxLines = 40
/** Minimum length before a blank line ends a passage. */
const passageMinLines = 16
/** Maximum characters of a passage; only its first line may exceed it. */
const passageMaxChars = 4_000
/** Maximum characters of a line; the rest is neither found nor shown. */
const lineMaxChars = 1_000

/** Lines of a text without line ends; long ones are cut. */
export function indexLines(text: string): string[] {
  const lines = (text.charCodeAt(0) === 0xfeff ? text.slice(1) : text).split('\n')
  if (lines.at(-1) === '') lines.pop()
  return isPlain(text) ? lines : lines.map(plainLine)
}

function isPlain(text: string): boolean {
  return !text.includes('\r') && !hasLongLine(text)
}

/** Checks only line ends, with native code: no line is long when each ends in time. */
function hasLongLine(text: string): boolean {
  for (let start = 0; start + lineMaxChars < text.length; ) {
    const end = text.lastIndexOf('\n', start + lineMaxChars)
    if (end < start) return true
    start = end + 1
  }
  return false
}

function plainLine(line: string): string {
  const whole = line.endsWith('\r') ? line.slice(0, -1) : line
  return whole.length <= lineMaxChars ? whole : `${whole.slice(0, lineMaxChars)}…`.toWellFormed()
}

/** The passages of a text with their content, as {@link cutPassages} and {@link passageText} return them. */
export function cutText(text: string): CutPassage[] {
  const lines = indexLines(text)
  const passages = cutPassages(lines)
  // When no line is cut, a passage is a slice of the text and nothing is copied.
  if (text.charCodeAt(0) === 0xfeff || !isPlain(text))
    return passages.map((passage) => ({ ...passage, text: passageText(lines, passage) }))
  let line = 0
  let at = 0
  const startOf = (wanted: number): number => {
    for (; line < wanted; line++) at += (lines[line]?.length ?? 0) + 1
    return at
  }
  return passages.map(({ firstLine, lastLine }) => {
    const start = startOf(firstLine - 1)
    return { firstLine, lastLine, text: text.slice(start, startOf(lastLine) - 1) }
  })
}

/** The passages of a text in order, without those of blank lines alone. */
export function cutPassages(lines: readonly string[]): Passage[] {
  const passages: Passage[] = []
  for (let start = 0; start < lines.length; ) {
    const end = endOf(lines, start)
    if (lines.slice(start, end).some((line) => line.trim() !== ''))
      passages.push({ firstLine: start + 1, lastLine: end })
    start = end
  }
  return passages
}

/** The line after the passage that begins at `start`. */
function endOf(lines: readonly string[], start: number): number {
  let end = start
  for (let chars = 0; end < lines.length && end - start < passageMaxLines; end++) {
    chars += (lines[end]?.length ?? 0) + 1
    if (chars > passageMaxChars && end > start) break
  }
  if (end === lines.length) return end
  for (let at = end; at - start >= passageMinLines; at--) if (lines[at - 1]?.trim() === '') return at
  return end
}

export function passageText(lines: readonly string[], { firstLine, lastLine }: Passage): string {
  return lines.slice(firstLine - 1, lastLine).join('\n')
}
