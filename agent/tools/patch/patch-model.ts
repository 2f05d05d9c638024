/** What a patch says, whichever form it is written in: files, and of each the hunks. */
import { toolFailure } from '../../tool-calls/tool.ts'

export interface HunkLine {
  readonly op: ' ' | '-' | '+'
  /** Without its end. */
  readonly text: string
  /** How an added line ends, where the patch says so; absent: as the file's lines do. */
  readonly end?: '\n' | '\r\n'
}

export interface Hunk {
  /** In the patch, from 1. */
  readonly patchLine: number
  /** Line of the file at which it says that it begins, from 1, before the patch; absent: it does not say. */
  readonly oldStart?: number
  /** Lines of the file behind which it lies, in order. */
  readonly headings: readonly string[]
  readonly lines: readonly HunkLine[]
  /** Whether its last line is the file's last. */
  readonly atEnd: boolean
  /** Whether the file then ends with or without a newline; absent: as before. */
  readonly finished?: boolean
}

export interface FilePatch {
  readonly action: 'add' | 'update' | 'delete'
  readonly path: string
  /** Its new path; absent: it stays. */
  readonly to?: string
  /** Permission bits that it is given; absent: those that it has, or those of a new file. */
  readonly mode?: number
  /** None where nothing of the content changes, and of a deletion that does not say what is lost. */
  readonly hunks: readonly Hunk[]
}

/** Whether a line has the words of a mark of `*** Begin Patch`, with or without blanks before it. */
export function isMark(line: string): boolean {
  return /^\s*\*\*\* (?:Begin Patch|End Patch|End of File|(?:Add|Update|Delete) File:|Move to:)/.test(line)
}

/** What is wrong with a patch, and where. */
export function badPatch(problem: string, line: number): ReturnType<typeof toolFailure> {
  return toolFailure(
    'invalid_input',
    `the patch cannot be read, line ${line} of it: ${problem}. Nothing was changed.`,
  )
}

/** A line of a hunk without the mark before it; a line end of its own is told apart from the text. */
export function hunkLine(op: HunkLine['op'], text: string, hasOwnEnds: boolean): HunkLine {
  const isCrlf = text.endsWith('\r')
  const plain = isCrlf ? text.slice(0, -1) : text
  return hasOwnEnds ? { op, text: plain, end: isCrlf ? '\r\n' : '\n' } : { op, text: plain }
}

/** What a hunk's mark says beside line numbers; null for nothing. */
export function headingOf(line: string): string | null {
  if (/^@@ -\d/.test(line)) return null
  const text = line
    .slice(2)
    .replace(/\s*@@\s*$/, '')
    .trim()
  return text === '' || /^\.+$/.test(text) ? null : text
}
