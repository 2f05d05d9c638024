/**
 * An edit whose old text matches the file except for white space: line ends, trailing blanks, indentation, tabs.
 * Whole lines only, and only with one possible place and one possible indentation. Pure.
 */
import { findReindent } from './indentation.ts'
import { joinLines, type LineEnd, LineIndex, splitLines, squeezeLine, usualEnd } from './text-lines.ts'

type TolerantEdit =
  | { readonly found: 'none' }
  /** Line numbers of possible places, from 1; the first few. */
  | { readonly found: 'several'; readonly lines: readonly number[] }
  /** One place (line numbers from 1, inclusive), but the new text's indentation is ambiguous. */
  | { readonly found: 'unclear'; readonly startLine: number; readonly endLine: number }
  | {
      readonly found: 'one'
      readonly startLine: number
      readonly endLine: number
      /** Whether the indentation of the new text was changed. */
      readonly reindented: boolean
      /** The text after the edit. */
      readonly text: string
    }

const maxPlaces = 11

export function editTolerantly(text: string, oldText: string, newText: string): TolerantEdit {
  const old = splitLines(oldText)
  const isWhole = oldText.endsWith('\n')
  // Removing the newline joins two lines: only an exact edit may do that.
  if (old.lines.every((line) => line.trim() === '') || (isWhole && newText !== '' && !newText.endsWith('\n')))
    return { found: 'none' }
  const sought = old.lines.map(squeezeLine)
  // A change of white space alone requires an exact match.
  if (sought.join('\n') === splitLines(newText).lines.map(squeezeLine).join('\n')) return { found: 'none' }
  const file = splitLines(text)
  const places = new LineIndex(file.lines.map(squeezeLine)).find(sought, 0, maxPlaces)
  const [start] = places ?? []
  if (places === null || start === undefined) return { found: 'none' }
  if (places.length > 1) return { found: 'several', lines: places.map((place) => place + 1) }
  const end = start + old.lines.length
  const startLine = start + 1
  const endLine = end
  const found = file.lines.slice(start, end)
  const written = isWhole ? splitLines(newText).lines : newText.split(/\r?\n/)
  const lines = carryOver(old.lines, written, found)
  if (lines === null) return { found: 'unclear', startLine, endLine }
  const middle = file.ends.find((_, at) => at >= start && at < end) || usualEnd(file.ends)
  const ends: LineEnd[] = lines.map(() => middle)
  // The file's last line stays without a newline.
  if (lines.length > 0) ends[lines.length - 1] = file.ends[end - 1] ?? ''
  const edited = {
    byteOrderMark: file.byteOrderMark,
    lines: [...file.lines.slice(0, start), ...lines, ...file.lines.slice(end)],
    ends: [...file.ends.slice(0, start), ...ends, ...file.ends.slice(end)],
  }
  const reindented = written.some((line) => line.trim() !== '' && !lines.includes(line))
  return { found: 'one', startLine, endLine, reindented, text: joinLines(edited) }
}

/** The final new lines; those that equal old lines at head and tail stay as in the file. */
function carryOver(
  old: readonly string[],
  written: readonly string[],
  found: readonly string[],
): readonly string[] | null {
  const least = Math.min(old.length, written.length)
  let head = 0
  while (head < least && old[head] === written[head]) head++
  let tail = 0
  while (tail < least - head && old[old.length - 1 - tail] === written[written.length - 1 - tail]) tail++
  const reindent = findReindent(old, found)
  if (reindent === null) return null
  const lines: string[] = found.slice(0, head)
  for (const line of written.slice(head, written.length - tail)) {
    const indented = reindent(line)
    if (indented === null) return null
    lines.push(indented)
  }
  return [...lines, ...found.slice(found.length - tail)]
}
