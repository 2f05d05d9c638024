/**
 * Parses unified diffs as git, diff and models write them. Corrects the line counts of hunks, which models get wrong,
 * then uses the library. Refuses lines that the library would ignore.
 */

import type { StructuredPatch } from 'diff'
import { errorMessage } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { badPatch, type FilePatch, type Hunk, type HunkLine, headingOf, hunkLine } from './patch-model.ts'

export async function parseUnified(lines: readonly string[]): Promise<Result<readonly FilePatch[]>> {
  const counted = countHunks(lines)
  if (!counted.ok) return counted
  const { parsePatch } = await import('diff/lib/patch/parse.js')
  let parsed: StructuredPatch[]
  try {
    parsed = parsePatch(counted.value.lines.join('\n'))
  } catch (thrown) {
    return badPatch(errorMessage(thrown), 1)
  }
  const marks = counted.value.marks.values()
  const files: FilePatch[] = []
  for (const section of parsed) {
    const hunks = section.hunks.map((hunk) => readHunk(hunk, marks.next().value))
    if (section.oldFileName === undefined && hunks.length === 0) continue
    const file = readFile(section, hunks)
    if (!file.ok) return file
    files.push(file.value)
  }
  return toolSuccess(files)
}

/** The content of a hunk's mark. */
interface Mark {
  readonly patchLine: number
  readonly oldStart?: number
  readonly headings: readonly string[]
}

interface Counted {
  /** The patch with correct counts. */
  readonly lines: readonly string[]
  /** In hunk order. */
  readonly marks: readonly Mark[]
}

const markPattern = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/
const headPattern =
  /^(diff |Index: |=+$|index |--- |\+\+\+ |old mode |new mode |new file mode |deleted file mode |(dis)?similarity index |rename (from|to) |copy (from|to) )/

function countHunks(lines: readonly string[]): Result<Counted> {
  const end = withoutSignature(lines)
  const counted: string[] = []
  const marks: Mark[] = []
  let isBegun = false
  for (let at = 0; at < end; ) {
    const line = lines[at] ?? ''
    if (line.startsWith('@@')) {
      const hunk = countHunk(lines, at, end)
      if (!hunk.ok) return hunk
      counted.push(...hunk.value.lines)
      marks.push(hunk.value.mark)
      at = hunk.value.end
      isBegun = true
      continue
    }
    isBegun ||= /^(diff |Index: |--- )/.test(line)
    if (/^(GIT binary patch|Binary files )/.test(line)) {
      return toolFailure(
        'binary_file',
        `the patch changes a binary file at its line ${at + 1}; use run_python for that.`,
      )
    }
    // Before the first file a patch may have a mail header; later nothing is skipped.
    if (isBegun && line.trim() !== '' && !headPattern.test(line))
      return badPatch(
        `${JSON.stringify(line.slice(0, 60))} belongs to no hunk and is no head of a file`,
        at + 1,
      )
    counted.push(line)
    at++
  }
  return toolSuccess({ lines: counted, marks })
}

function countHunk(
  lines: readonly string[],
  at: number,
  end: number,
): Result<{ lines: string[]; mark: Mark; end: number }> {
  const head = lines[at] ?? ''
  const numbers = markPattern.exec(head)
  const told = { old: Number(numbers?.[2] ?? 1), new: Number(numbers?.[4] ?? 1) }
  const last =
    (numbers === null ? undefined : endByCounts(lines, at + 1, end, told)) ?? endByContent(lines, at + 1, end)
  const body = lines.slice(at + 1, last).map((line) => (line === '' || line === '\r' ? ` ${line}` : line))
  const wrong = body.findIndex((line) => !/^[ +\-\\]/.test(line))
  if (wrong >= 0) {
    const problem =
      'a line of a hunk begins with a space, "-" or "+"; of a line that stays as it is the space was left out'
    return badPatch(problem, at + 2 + wrong)
  }
  const oldLines = body.filter((line) => line.startsWith(' ') || line.startsWith('-')).length
  const newLines = body.filter((line) => line.startsWith(' ') || line.startsWith('+')).length
  if (body.length === 0) return badPatch('the hunk is empty', at + 1)
  const oldStart = numbers === null ? undefined : Number(numbers[1])
  const heading = headingOf(head)
  const mark = {
    patchLine: at + 1,
    ...(oldStart === undefined ? {} : { oldStart }),
    headings: heading === null ? [] : [heading],
  }
  const start = oldStart ?? 1
  return toolSuccess({
    lines: [`@@ -${start},${oldLines} +${start},${newLines} @@`, ...body],
    mark,
    end: last,
  })
}

/** Where the hunk ends by its own counts; undefined when they cannot be right. */
function endByCounts(
  lines: readonly string[],
  from: number,
  end: number,
  told: { old: number; new: number },
): number | undefined {
  let at = from
  for (let left = { ...told }; (left.old > 0 || left.new > 0) && at < end; at++) {
    const op = lines[at]?.[0] ?? ' '
    if (op === '\\') continue
    if (op !== ' ' && op !== '\r' && op !== '-' && op !== '+') return undefined
    left = { old: left.old - (op === '+' ? 0 : 1), new: left.new - (op === '-' ? 0 : 1) }
    if (left.old < 0 || left.new < 0) return undefined
    if (at === end - 1 && (left.old > 0 || left.new > 0)) return undefined
  }
  while (at < end && lines[at]?.startsWith('\\')) at++
  return at < end && isBody(lines, at, end) ? undefined : at
}

/** Where the next hunk or file begins; preceding empty lines belong to neither. */
function endByContent(lines: readonly string[], from: number, end: number): number {
  let at = from
  while (at < end && !/^(@@|diff |Index: )/.test(lines[at] ?? '') && !isFileHead(lines, at, end)) at++
  while (at > from && (lines[at - 1] ?? '').trim() === '' && lines[at - 1] !== ' ') at--
  return at
}

/** Whether the line cannot be between hunks. */
function isBody(lines: readonly string[], at: number, end: number): boolean {
  return /^[ +-]/.test(lines[at] ?? '') && !isFileHead(lines, at, end)
}

function isFileHead(lines: readonly string[], at: number, end: number): boolean {
  return at + 1 < end && /^--- \S/.test(lines[at] ?? '') && /^\+\+\+ \S/.test(lines[at + 1] ?? '')
}

/** Where the patch ends, before the two-line signature of mail programs. */
function withoutSignature(lines: readonly string[]): number {
  const last = lines.findLastIndex((line) => line.trim() !== '')
  return last > 0 && lines[last - 1] === '-- ' && /^\d+\.[\d.]+/.test(lines[last] ?? '')
    ? last - 1
    : lines.length
}

function readHunk(hunk: StructuredPatch['hunks'][number], mark: Mark | undefined): Hunk {
  const hasOwnEnds = hunk.lines.some((line) => line.endsWith('\r'))
  const lines: HunkLine[] = []
  // The note "\ No newline at end of file" refers to the side of the line before it.
  const unfinished = new Set<string>()
  for (const line of hunk.lines) {
    const op = line[0]
    if (op === '\\') unfinished.add(lines.at(-1)?.op ?? ' ')
    else if (op === ' ' || op === '-' || op === '+') lines.push(hunkLine(op, line.slice(1), hasOwnEnds))
  }
  const finished = unfinished.has('+') || unfinished.has(' ') ? false : unfinished.has('-') ? true : undefined
  return {
    patchLine: mark?.patchLine ?? 1,
    ...(mark?.oldStart === undefined ? {} : { oldStart: mark.oldStart }),
    headings: mark?.headings ?? [],
    lines,
    atEnd: unfinished.size > 0,
    ...(finished === undefined ? {} : { finished }),
  }
}

function readFile(section: StructuredPatch, hunks: readonly Hunk[]): Result<FilePatch> {
  const line = hunks[0]?.patchLine ?? 1
  const { isGit = false, isRename = false } = section
  const names = namesOf(section.oldFileName, section.newFileName, isGit)
  if (names === null) return badPatch('the hunk has no head that names its file', line)
  const { from, to } = names
  const path = from ?? to
  if (path === null) return badPatch('it names no file', line)
  if (section.isCopy === true)
    return badPatch(`copies of files (${path}) are not taken: add the new file`, line)
  const mode = modeOf(section.newMode)
  if (!mode.ok) return mode
  const what = { path, hunks, ...(mode.value === undefined ? {} : { mode: mode.value }) }
  if (from === null || section.isCreate === true) {
    if (hunks.some((hunk) => hunk.lines.some(({ op }) => op !== '+')))
      return badPatch(`${path} is new, and every line of it begins with "+"`, line)
    return toolSuccess({ ...what, path: to ?? path, action: 'add' })
  }
  if (to === null || section.isDelete === true) return toolSuccess({ ...what, action: 'delete' })
  if (from === to) return toolSuccess({ ...what, action: 'update' })
  if (isRename) return toolSuccess({ ...what, to, action: 'update' })
  return badPatch(
    `it names two files, ${from} and ${to}; a file is renamed with "diff --git", "rename from" and "rename to"`,
    line,
  )
}

/** The paths without diff's prefixes; a null path is `/dev/null`, a null result means that no file is named. */
function namesOf(
  old: string | undefined,
  changed: string | undefined,
  isGit: boolean,
): { from: string | null; to: string | null } | null {
  if (old === undefined || changed === undefined) return null
  const from = old === '/dev/null' ? null : old
  const to = changed === '/dev/null' ? null : changed
  const prefixes = [from, to].filter((path) => path !== null).map((path) => /^[abciow]\//.exec(path)?.[0])
  const [first, second] = prefixes
  // git can be configured with prefixes other than a and b; two equal prefixes are a folder's name.
  const isMarked =
    first !== undefined &&
    (prefixes.length === 1
      ? isGit || first === (from === null ? 'b/' : 'a/')
      : second !== undefined && first !== second && (isGit || (first === 'a/' && second === 'b/')))
  const strip = (path: string | null) => (isMarked ? (path?.slice(2) ?? null) : path)
  return { from: strip(from), to: strip(to) }
}

function modeOf(mode: string | undefined): Result<number | undefined> {
  if (mode === undefined) return toolSuccess(undefined)
  if (/^100[0-7]{3}$/.test(mode)) return toolSuccess(Number.parseInt(mode.slice(3), 8))
  return toolFailure(
    'not_a_file',
    `the patch makes a file of mode ${mode}: only regular files are taken, no links and no submodules.`,
  )
}
