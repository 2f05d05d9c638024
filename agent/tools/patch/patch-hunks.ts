/**
 * Applies a patch's hunks to a file's text. A hunk matches exactly at its line number, else at the only exact match,
 * else at the only match ignoring white space, which is reported. Pure; bounded work.
 */
import type { Result } from '#specs/protocol/error.ts'
import { toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { findReindent } from '../files/indentation.ts'
import { nearestText } from '../files/nearest-region.ts'
import {
  joinLines,
  type LineEnd,
  LineIndex,
  splitLines,
  squeezeLine,
  type TextLines,
  usualEnd,
} from '../files/text-lines.ts'
import { type Hunk, isMark } from './patch-model.ts'

export interface Patched {
  readonly text: string
  readonly added: number
  readonly removed: number
  /** How hunks matched that were not exactly at their line numbers. */
  readonly notes: readonly string[]
}

/** Maximum places in a message. */
const maxPlaces = 11

/** Where a hunk matches: its first line, from 0, and whether white space was ignored. */
interface Landing {
  readonly at: number
  readonly tolerant: boolean
}

/** @param name of the file, for messages */
export function applyHunks(name: string, text: string, hunks: readonly Hunk[]): Result<Patched> {
  const before = splitLines(text)
  const finder = new HunkFinder(name, text, before.lines)
  const after = new PatchedLines(before)
  const notes: string[] = []
  let drift = 0
  for (const [index, hunk] of hunks.entries()) {
    const label = `hunk ${index + 1} of ${name} (line ${hunk.patchLine} of the patch)`
    const landed = finder.find(label, hunk, after.next, drift)
    if (!landed.ok) return landed
    const { at, tolerant } = landed.value
    const length = hunk.lines.filter(({ op }) => op !== '+').length
    if (tolerant)
      notes.push(`hunk ${index + 1} matched without regard to white space, lines ${at + 1}-${at + length}`)
    const expected = hunk.oldStart === undefined || length === 0 ? at : hunk.oldStart - 1 + drift
    if (at !== expected && !tolerant)
      notes.push(`hunk ${index + 1} landed at line ${at + 1}, it said ${hunk.oldStart}`)
    drift += at - expected
    if (!after.take(hunk, at, tolerant)) {
      return toolFailure(
        'no_match',
        `${label} is lines ${at + 1}-${at + length} but for white space, and the indentation of its new lines is not certain: write it as the file has it.`,
      )
    }
  }
  return toolSuccess({ ...after.end(hunks.at(-1)), notes })
}

/** Locates hunks in the original text. */
class HunkFinder {
  readonly #name: string
  readonly #text: string
  readonly #lines: readonly string[]
  #exact: LineIndex | undefined
  #squeezed: LineIndex | undefined

  constructor(name: string, text: string, lines: readonly string[]) {
    this.#name = name
    this.#text = text
    this.#lines = lines
  }

  /** @param from first line not used by an earlier hunk, from 0 */
  find(label: string, hunk: Hunk, from: number, drift: number): Result<Landing> {
    const old = hunk.lines.filter(({ op }) => op !== '+').map(({ text }) => text)
    const start = this.#behindHeadings(label, hunk, from)
    if (!start.ok) return start
    if (old.length === 0) return this.#findInsertion(label, hunk, start.value, drift)
    this.#exact ??= new LineIndex(this.#lines)
    const expected = hunk.oldStart === undefined ? -1 : hunk.oldStart - 1 + drift
    if (
      expected >= start.value &&
      this.#fitsEnd(hunk, expected, old.length) &&
      this.#exact.isAt(expected, old)
    )
      return toolSuccess({ at: expected, tolerant: false })
    const exact = this.#places(this.#exact, old, hunk, start.value)
    if (exact === null) return tooMuch(label)
    const [at] = exact
    if (at !== undefined && (exact.length === 1 || hunk.headings.length > 0))
      return toolSuccess({ at, tolerant: false })
    if (exact.length > 1) return several(label, exact)
    return this.#findTolerantly(label, hunk, old, start.value)
  }

  #findTolerantly(label: string, hunk: Hunk, old: readonly string[], from: number): Result<Landing> {
    if (old.some((line) => line.trim() !== '')) {
      const index = this.#squeezedIndex()
      const places = this.#places(index, old.map(squeezeLine), hunk, from)
      if (places === null) return tooMuch(label)
      const [at] = places
      if (at !== undefined && places.length === 1) return toolSuccess({ at, tolerant: true })
      if (places.length > 1) return several(label, places)
    }
    const mark = hunk.lines.find(({ op, text }) => op === ' ' && isMark(text))
    if (mark !== undefined) {
      return toolFailure(
        'no_match',
        `${label}: "${mark.text.trim()}" begins with a space there, so it counts as a line of the file, which has no such line: write marks at the beginning of their line.`,
      )
    }
    const earlier = from > 0 ? this.#exact?.find(old, 0, 1)?.[0] : undefined
    const order =
      earlier === undefined
        ? ''
        : ` It stands at line ${earlier + 1}, before or within what an earlier hunk changes: put hunks in the order of the file.`
    return toolFailure(
      'no_match',
      `${label}: its lines are not in the file.${order}${order === '' ? nearestText(this.#text, old.join('\n')) : ''}`,
    )
  }

  #places(index: LineIndex, old: readonly string[], hunk: Hunk, from: number): readonly number[] | null {
    if (!hunk.atEnd) return index.find(old, from, maxPlaces)
    const last = this.#lines.length - old.length
    return last >= from && index.isAt(last, old) ? [last] : []
  }

  #fitsEnd(hunk: Hunk, at: number, length: number): boolean {
    return !hunk.atEnd || at + length === this.#lines.length
  }

  /** Places lines added without context: by number, after a heading, at the end, or in an empty file. */
  #findInsertion(label: string, hunk: Hunk, from: number, drift: number): Result<Landing> {
    const { length } = this.#lines
    // The number of a hunk without old lines is that of the line before it.
    const told = hunk.oldStart === undefined ? undefined : hunk.oldStart + drift
    const at = length === 0 || hunk.atEnd ? length : (told ?? (hunk.headings.length > 0 ? from : -1))
    if (at >= from && at <= length) return toolSuccess({ at, tolerant: false })
    return toolFailure(
      'no_match',
      `${label} says only what is added, and not where: give the lines before and behind it, as they are in ${this.#name}.`,
    )
  }

  /** The line after the last heading; each heading must follow the previous one. */
  #behindHeadings(label: string, { headings }: Hunk, from: number): Result<number> {
    let start = from
    for (const heading of headings) {
      const found = this.#squeezedIndex().find([squeezeLine(heading)], start, maxPlaces)
      if (found === null) return tooMuch(label)
      const [at] = found
      if (at === undefined) {
        return toolFailure(
          'no_match',
          `${label}: no line from ${start + 1} on is "${heading}", its heading; give the whole line, or leave it out.`,
        )
      }
      if (found.length > 1) {
        const lines = found.map((place) => place + 1).join(', ')
        return toolFailure(
          'ambiguous_match',
          `${label}: its heading "${heading}" is lines ${lines}; give one that is there once, or more lines of the file.`,
        )
      }
      start = at + 1
    }
    return toolSuccess(start)
  }

  #squeezedIndex(): LineIndex {
    this.#squeezed ??= new LineIndex(this.#lines.map(squeezeLine))
    return this.#squeezed
  }
}

function several(label: string, places: readonly number[]): ReturnType<typeof toolFailure> {
  const lines = places.slice(0, maxPlaces - 1).map((place) => place + 1)
  const more = places.length === maxPlaces ? ' …' : ''
  return toolFailure(
    'ambiguous_match',
    `${label} could be at lines ${lines.join(', ')}${more}: give more of the lines around it, or the right line number.`,
  )
}

function tooMuch(label: string): ReturnType<typeof toolFailure> {
  return toolFailure('too_large', `${label}: the file has too many equal lines to find it; use run_python.`)
}

/** The resulting lines, from the file's beginning. */
class PatchedLines {
  /** First unused line of the original text, from 0. */
  next = 0
  readonly #before: TextLines
  readonly #usualEnd: '\n' | '\r\n'
  readonly #lines: string[] = []
  readonly #ends: LineEnd[] = []
  #added = 0
  #removed = 0

  constructor(before: TextLines) {
    this.#before = before
    this.#usualEnd = usualEnd(before.ends)
  }

  /** False when the indentation of the new lines is ambiguous; the result is then unusable. */
  take(hunk: Hunk, at: number, tolerant: boolean): boolean {
    this.#copyTo(at)
    const old = hunk.lines.filter(({ op }) => op !== '+').map(({ text }) => text)
    const reindent = tolerant
      ? findReindent(old, this.#before.lines.slice(at, at + old.length))
      : (line: string) => line
    if (reindent === null) return false
    for (const { op, text, end } of hunk.lines) {
      if (op === ' ') this.#copyTo(this.next + 1)
      else if (op === '-') {
        this.next++
        this.#removed++
      } else {
        const line = reindent(text)
        if (line === null) return false
        this.#lines.push(line)
        this.#ends.push(end ?? this.#endHere(at))
        this.#added++
      }
    }
    return true
  }

  /** @param last the last hunk; only it can change how the file ends */
  end(last: Hunk | undefined): Pick<Patched, 'text' | 'added' | 'removed'> {
    const { byteOrderMark, lines, ends } = this.#before
    const reached = this.next === lines.length
    this.#copyTo(lines.length)
    for (const [at, end] of this.#ends.entries()) if (end === '') this.#ends[at] = this.#usualEnd
    const wasFinished = lines.length === 0 || ends.at(-1) !== ''
    const finished = (reached ? last?.finished : undefined) ?? wasFinished
    if (!finished && this.#ends.length > 0) this.#ends[this.#ends.length - 1] = ''
    const text = joinLines({ byteOrderMark, lines: this.#lines, ends: this.#ends })
    return { text: this.#lines.length === 0 ? '' : text, added: this.#added, removed: this.#removed }
  }

  #copyTo(end: number): void {
    for (; this.next < end; this.next++) {
      this.#lines.push(this.#before.lines[this.next] ?? '')
      this.#ends.push(this.#before.ends[this.next] ?? '')
    }
  }

  /** Line end of the replaced or following line, so that files with mixed ends keep them. */
  #endHere(start: number): LineEnd {
    const { ends } = this.#before
    return ends[Math.max(start, this.next - 1)] || ends[start - 1] || this.#usualEnd
  }
}
