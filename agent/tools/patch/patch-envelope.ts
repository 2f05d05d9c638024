/**
 * Parses patches that begin with `*** Begin Patch`: files by name, hunks by context alone, without line numbers.
 * Pure.
 */
import type { Result } from '#specs/protocol/error.ts'
import { toolSuccess } from '../../tool-calls/tool.ts'
import {
  badPatch,
  type FilePatch,
  type Hunk,
  type HunkLine,
  headingOf,
  hunkLine,
  isMark,
} from './patch-model.ts'

interface OpenHunk {
  readonly patchLine: number
  readonly headings: string[]
  readonly lines: HunkLine[]
  atEnd: boolean
}

interface OpenFile {
  readonly action: FilePatch['action']
  readonly path: string
  readonly patchLine: number
  to?: string
  readonly hunks: OpenHunk[]
}

/**
 * Ignores text before and after the marks. Ignores blanks before a mark where no hunk line can be: before the patch,
 * at its end, and outside of updates. Also ignores an indentation that all lines share.
 */
export function parseEnvelope(given: readonly string[]): Result<readonly FilePatch[]> {
  const lines = withoutIndentation(given)
  const reader = new EnvelopeReader()
  // Text after the patch begins with a letter, and no patch line does.
  const last = lines.findLastIndex((line) => line.trim() !== '' && /^[ \t+\-@*]/.test(line))
  let isInside = false
  for (const [at, written] of lines.entries()) {
    const line = isInside && at !== last && reader.mayBeContent ? written : withPlainMark(written)
    if (/^\*\*\* Begin Patch\s*$/.test(line)) {
      if (isInside) return badPatch('the patch before it has no "*** End Patch"', at + 1)
      isInside = true
    } else if (/^\*\*\* End Patch\s*$/.test(line)) isInside = false
    else if (isInside) {
      const problem = reader.take(line, at + 1)
      if (problem !== null) return badPatch(problem, at + 1)
    }
  }
  if (isInside) {
    const indented = lines.findLastIndex((line) => /^\s+\*\*\* End Patch\s*$/.test(line))
    return indented < 0
      ? badPatch('"*** End Patch" is missing, so it may be cut off', lines.length)
      : badPatch(
          'the space before "*** End Patch" makes it a line of the file: remove the space',
          indented + 1,
        )
  }
  const unfinished = reader.files.find(
    (file) => file.action === 'update' && file.to === undefined && isEmpty(file),
  )
  if (unfinished !== undefined)
    return badPatch(`it says no change of ${unfinished.path}`, unfinished.patchLine)
  return toolSuccess(reader.files.map(closeFile))
}

/** Removes the head's indentation when all lines have it. */
function withoutIndentation(lines: readonly string[]): readonly string[] {
  const some = lines.filter((line) => line.trim() !== '')
  const indentation = /^[ \t]*/.exec(some[0] ?? '')?.[0] ?? ''
  if (indentation === '' || !some.every((line) => line.startsWith(indentation))) return lines
  return lines.map((line) => (line.trim() === '' ? line : line.slice(indentation.length)))
}

/** A mark without the blanks before it; any other line unchanged. */
function withPlainMark(line: string): string {
  return isMark(line) ? line.trimStart() : line
}

class EnvelopeReader {
  readonly files: OpenFile[] = []

  /** Whether a line that begins with a space may be a file's line. */
  get mayBeContent(): boolean {
    return this.files.at(-1)?.action === 'update'
  }

  /** Adds a line; returns the error, or null. */
  take(line: string, patchLine: number): string | null {
    const head = /^\*\*\* (Add|Update|Delete) File: *(.+?)\s*$/.exec(line)
    const file = this.files.at(-1)
    if (head !== null) {
      const action = (head[1] ?? '').toLowerCase()
      if (action === 'add' || action === 'update' || action === 'delete')
        this.files.push({ action, path: head[2] ?? '', patchLine, hunks: [] })
      return null
    }
    if (file === undefined)
      return line.trim() === '' ? null : 'expected "*** Update File: PATH", or Add or Delete'
    if (line.startsWith('*** ')) return takeMark(file, line)
    if (file.action === 'delete') return line.trim() === '' ? null : 'nothing follows "*** Delete File"'
    if (line.startsWith('@@')) return takeHeading(file, line, patchLine)
    return takeLine(file, line, patchLine)
  }
}

function takeMark(file: OpenFile, line: string): string | null {
  const to = /^\*\*\* Move to: *(.+?)\s*$/.exec(line)?.[1]
  if (to !== undefined && file.action === 'update' && file.hunks.length === 0) {
    file.to = to
    return null
  }
  const hunk = file.hunks.at(-1)
  if (/^\*\*\* End of File\s*$/.test(line) && hunk !== undefined && file.action === 'update') {
    hunk.atEnd = true
    return null
  }
  return `${JSON.stringify(line.slice(0, 60))} is not to be here`
}

function takeHeading(file: OpenFile, line: string, patchLine: number): string | null {
  if (file.action !== 'update') return 'only an update has hunks'
  const heading = headingOf(line)
  const last = file.hunks.at(-1)
  // Several headings before one hunk are nested: a class, then its method.
  const hunk = last !== undefined && last.lines.length === 0 ? last : openHunk(file, patchLine)
  if (heading !== null) hunk.headings.push(heading)
  return null
}

function takeLine(file: OpenFile, line: string, patchLine: number): string | null {
  const op = line === '' || line === '\r' ? ' ' : line[0]
  if (op !== ' ' && op !== '-' && op !== '+')
    return 'a line begins with a space, "-" or "+"; of a line that stays as it is the space was left out'
  if (file.action === 'add' && op !== '+') {
    return line.trim() === '' ? null : 'every line of an added file begins with "+"'
  }
  const hunk = file.hunks.at(-1) ?? openHunk(file, patchLine)
  if (hunk.atEnd) return line.trim() === '' ? null : 'nothing of a hunk follows "*** End of File"'
  hunk.lines.push(hunkLine(op, line.slice(1), false))
  return null
}

function openHunk(file: OpenFile, patchLine: number): OpenHunk {
  const hunk: OpenHunk = { patchLine, headings: [], lines: [], atEnd: false }
  file.hunks.push(hunk)
  return hunk
}

function isEmpty(file: OpenFile): boolean {
  return file.hunks.every(({ lines }) => lines.every(({ op }) => op === ' '))
}

function closeFile({ action, path, to, hunks }: OpenFile): FilePatch {
  const closed: Hunk[] = hunks.map((hunk) => ({ ...hunk, lines: withoutLastBlanks(hunk.lines) }))
  return {
    action,
    path,
    ...(to === undefined ? {} : { to }),
    hunks: closed.filter(({ lines }) => lines.length > 0),
  }
}

/** Empty lines at the end usually separate hunks rather than stand for empty lines of the file. */
function withoutLastBlanks(lines: readonly HunkLine[]): readonly HunkLine[] {
  const last = lines.findLastIndex(({ op, text }) => op !== ' ' || text !== '')
  return lines.slice(0, last + 1)
}
