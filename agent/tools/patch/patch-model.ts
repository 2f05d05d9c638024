/** A parsed patch of either format: files and their hunks. */
import { toolFailure } from '../../tool-calls/tool.ts'

export interface HunkLine {
  readonly op: ' ' | '-' | '+'
  /** Without its end. */
  readonly text: string
  /** End of an added line, if the patch says; absent: like the file's lines. */
  readonly end?: '\n' | '\r\n'
}

export interface Hunk {
  /** In the patch, from 1. */
  readonly patchLine: number
  /** Line number in the file before the patch, from 1; absent: not given. */
  readonly oldStart?: number
  /** Heading lines of the file that precede the hunk, in order. */
  readonly headings: readonly string[]
  readonly lines: readonly HunkLine[]
  /** Whether its last line is the file's last line. */
  readonly atEnd: boolean
  /** Whether the file then ends with a newline; absent: unchanged. */
  readonly finished?: boolean
}

export interface FilePatch {
  readonly action: 'add' | 'update' | 'delete'
  readonly path: string
  /** New path; absent: unchanged. */
  readonly to?: string
  /** Permission bits to set; absent: unchanged, or those of a new file. */
  readonly mode?: number
  /** Empty when the content does not change, and for a deletion without the lost lines. */
  readonly hunks: readonly Hunk[]
}

/** Whether a line is a mark of `*** Begin Patch`, with or without leading blanks. */
export function isMark(line: string): boolean {
  return /^\s*\*\*\* (?:Begin Patch|End Patch|End of File|(?:Add|Update|Delete) File:|Move to:)/.test(line)
}

/** An error in a patch, with its line. */
export function badPatch(problem: string, line: number): ReturnType<typeof toolFailure> {
  return toolFailure(
    'invalid_input',
    `the patch cannot be read, line ${line} of it: ${problem}. Nothing was changed.`,
  )
}

/** A hunk line without its prefix; its own line end is separated. */
export function hunkLine(op: HunkLine['op'], text: string, hasOwnEnds: boolean): HunkLine {
  const isCrlf = text.endsWith('\r')
  const plain = isCrlf ? text.slice(0, -1) : text
  return hasOwnEnds ? { op, text: plain, end: isCrlf ? '\r\n' : '\n' } : { op, text: plain }
}

/** What a hunk's mark says besides line numbers; null for nothing. */
export function headingOf(line: string): string | null {
  if (/^@@ -\d/.test(line)) return null
  const text = line
    .slice(2)
    .replace(/\s*@@\s*$/, '')
    .trim()
  return text === '' || /^\.+$/.test(text) ? null : text
}
