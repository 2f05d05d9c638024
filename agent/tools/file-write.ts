/** `write_file` and `edit_file`: whole files and exact replacements, each seen by others as old or new, never in part. */
import { Buffer, isUtf8 } from 'node:buffer'
import { readFileSync } from 'node:fs'
import * as z from 'zod'
import { attempt } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Count } from '#specs/protocol/text.ts'
import {
  type FileToolsOptions,
  formatSize,
  inspectTarget,
  pathArgument,
  shownPath,
  withPlace,
  writeWhole,
} from './file-access.ts'
import { findNearestRegion } from './nearest-region.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from './tool.ts'

/** Largest file that is edited by exact replacement. */
const EDIT_MAX_BYTES = 8 * 1024 * 1024
const NEAREST_MAX_CHARS = 3_000

const writeInput = z.strictObject({
  path: pathArgument,
  content: z.string().max(limits.frameMaxBytes).describe('The whole content of the file'),
  mode: z
    .enum(['overwrite', 'create'])
    .default('overwrite')
    .describe('"create" fails if the file exists; "overwrite" replaces it'),
})
const writeOutput = z.strictObject({ path: z.string(), created: z.boolean(), bytes: Count })

export function createWriteFile(options: FileToolsOptions = {}): Tool<typeof writeInput, typeof writeOutput> {
  return defineTool({
    name: 'write_file',
    description:
      'Writes a whole text file of the workspace; missing directories are made. It replaces what was there: to change a part of a file use edit_file.',
    inputSchema: writeInput,
    outputSchema: writeOutput,
    requiresApproval: false,
    readOnly: false,
    async execute({ path, content, mode }) {
      if (path.endsWith('/'))
        return toolFailure('invalid_input', `"${path}" names a directory; name a file in it.`)
      return await withPlace(options, path, { createParents: true }, (place) => {
        const target = inspectTarget(place)
        if (!target.ok) return target
        const bytes = Buffer.from(content, 'utf8')
        const replace = mode === 'overwrite'
        const written = writeWhole(place, bytes, { ...target.value, replace })
        if (!written.ok) return written
        return toolSuccess({
          path: shownPath(place),
          created: target.value.mode === undefined,
          bytes: bytes.length,
        })
      })
    },
    render: ({ path, created, bytes }) => `${created ? 'Created' : 'Replaced'} ${path} (${bytes} bytes).`,
  })
}

const editInput = z.strictObject({
  path: pathArgument,
  oldText: z
    .string()
    .min(1)
    .describe('Text to replace, exactly as it stands in the file, white space included'),
  newText: z.string().describe('Text to put in its place'),
  replaceAll: z.boolean().default(false).describe('Replace every occurrence, not just a single one'),
})
const editOutput = z.strictObject({
  path: z.string(),
  replacements: z.int().min(1),
  /** Line of the first replacement, from 1. */
  line: z.int().min(1),
  bytes: Count,
})

export function createEditFile(options: FileToolsOptions = {}): Tool<typeof editInput, typeof editOutput> {
  return defineTool({
    name: 'edit_file',
    description:
      'Replaces text in a file of the workspace. oldText must be in the file exactly once, unless replaceAll is true: include enough lines around it. Line ends of the file (LF or CR LF) are kept. When oldText is not found the error shows the lines that come nearest.',
    inputSchema: editInput,
    outputSchema: editOutput,
    requiresApproval: false,
    readOnly: false,
    async execute({ path, oldText, newText, replaceAll }) {
      if (oldText === newText)
        return toolFailure('invalid_input', 'oldText and newText are equal: nothing to change.')
      return await withPlace(options, path, {}, (place) => {
        const read = readText(place)
        if (!read.ok) return read
        const edited = replaceText(place, read.value.text, { oldText, newText, replaceAll })
        if (!edited.ok) return edited
        const bytes = Buffer.from(edited.value.text, 'utf8')
        const written = writeWhole(place, bytes, { mode: read.value.mode, replace: true })
        if (!written.ok) return written
        const { replacements, line } = edited.value
        return toolSuccess({ path: shownPath(place), replacements, line, bytes: bytes.length })
      })
    },
    render: ({ path, replacements, line }) =>
      replacements === 1
        ? `Edited ${path} at line ${line}.`
        : `Edited ${path}: ${replacements} replacements, the first at line ${line}.`,
  })
}

function readText(place: Place): Result<{ text: string; mode: number }> {
  const opened = place.openFile('read')
  if (!opened.ok) return opened
  using file = opened.value
  const { size } = file.stat
  if (size > EDIT_MAX_BYTES) {
    const bound = formatSize(EDIT_MAX_BYTES)
    return toolFailure(
      'too_large',
      `${place} has ${formatSize(size)}; edit_file takes up to ${bound}. Use run_python or sed.`,
    )
  }
  const bytes = attempt(`cannot read ${place}`, () => readFileSync(file.fd))
  if (!bytes.ok) return bytes
  if (bytes.value.includes(0) || !isUtf8(bytes.value)) {
    return toolFailure(
      'binary_file',
      `${place} (${size} bytes) is not UTF-8 text; use run_python to change its bytes.`,
    )
  }
  return toolSuccess({ text: bytes.value.toString('utf8'), mode: file.stat.mode & 0o777 })
}

interface Edit {
  readonly oldText: string
  readonly newText: string
  readonly replaceAll: boolean
}

function replaceText(
  place: Place,
  text: string,
  edit: Edit,
): Result<{ text: string; replacements: number; line: number }> {
  const { oldText, newText } = asInFile(text, edit)
  const pieces = text.split(oldText)
  const found = pieces.length - 1
  if (found === 0) return toolFailure('no_match', describeMiss(place, text, edit.oldText))
  if (found > 1 && !edit.replaceAll) {
    const lines = linesOf(pieces.slice(0, 11), oldText).join(', ')
    const more = found > 10 ? ' …' : ''
    return toolFailure(
      'ambiguous_match',
      `oldText is in ${place} ${found} times (lines ${lines}${more}). Include more of the lines around the one you mean, or set replaceAll.`,
    )
  }
  return toolSuccess({ text: pieces.join(newText), replacements: found, line: countLines(pieces[0] ?? '') })
}

/** Both texts with CR LF where the file has no other line end. */
function asInFile(text: string, { oldText, newText }: Edit): { oldText: string; newText: string } {
  const isCrlf = text.includes('\r\n') && !/(?<!\r)\n/.test(text)
  if (!isCrlf) return { oldText, newText }
  return { oldText: oldText.replace(/\r?\n/g, '\r\n'), newText: newText.replace(/\r?\n/g, '\r\n') }
}

function describeMiss(place: Place, text: string, oldText: string): string {
  const nearest = findNearestRegion(text, oldText)
  if (nearest === undefined) {
    return `oldText is not in ${place}, and nothing in it is like it. Read the file again before editing.`
  }
  const cut =
    nearest.text.length > NEAREST_MAX_CHARS ? `${nearest.text.slice(0, NEAREST_MAX_CHARS)}…` : nearest.text
  const why = nearest.whitespaceOnly ? ' It differs in white space alone.' : ''
  return `oldText is not in ${place}. The nearest is lines ${nearest.startLine}-${nearest.endLine}.${why} Copy the text exactly from there:\n${cut}`.toWellFormed()
}

/** The lines at which the text between the pieces begins. */
function linesOf(pieces: readonly string[], between: string): number[] {
  const lines: number[] = []
  let line = 1
  for (const piece of pieces.slice(0, -1)) {
    line += countLines(piece) - 1
    lines.push(line)
    line += countLines(between) - 1
  }
  return lines
}

function countLines(text: string): number {
  return text.split('\n').length
}
