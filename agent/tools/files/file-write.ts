/**
 * `write_file` and `edit_file`: write whole files and replace text in them. Others see the old or the new content,
 * never a part.
 */
import { Buffer } from 'node:buffer'
import * as z from 'zod'
import { nameInLine, quotePath } from '#specs/node/path-text.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Count } from '#specs/protocol/text.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import {
  countBytes,
  type FileToolsOptions,
  inspectTarget,
  pathArgument,
  shownPath,
  withPlace,
  writeWhole,
} from '../../workspace/file-access.ts'
import { checkUnchanged, editMaxBytes, factsOf, readFileText, textBefore } from './file-text.ts'
import { nearestText } from './nearest-region.ts'
import { editTolerantly } from './tolerant-edit.ts'

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
    async execute({ path, content, mode }, context) {
      const { ledger } = options
      if (path.endsWith('/'))
        return toolFailure('invalid_input', `${quotePath(path)} names a directory; name a file in it.`)
      return await withPlace(options, path, { createParents: true }, (place) => {
        const target = inspectTarget(place)
        if (!target.ok) return target
        const bytes = Buffer.from(content, 'utf8')
        const replace = mode === 'overwrite'
        // `create` states that nothing is there, whatever was read before.
        const check = () =>
          replace && ledger !== undefined ? ledger.check(context, place) : toolSuccess(undefined)
        const before = target.value.mode === undefined ? '' : textBefore(place)
        const written = writeWhole(place, bytes, { ...target.value, replace, check })
        if (!written.ok) return written
        context.tell?.(factsOf(place, before, content))
        ledger?.noteBytes(context, place, bytes)
        return toolSuccess({
          path: shownPath(place),
          created: target.value.mode === undefined,
          bytes: bytes.length,
        })
      })
    },
    render: ({ path, created, bytes }) =>
      `${created ? 'Created' : 'Replaced'} ${nameInLine(path)} (${countBytes(bytes)}).`,
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
  /** Line number of the first replacement, from 1. */
  line: z.int().min(1),
  bytes: Count,
  /** How the match was inexact; absent: it was exact. */
  note: z.string().optional(),
})

export function createEditFile(options: FileToolsOptions = {}): Tool<typeof editInput, typeof editOutput> {
  return defineTool({
    name: 'edit_file',
    description:
      'Replaces text in a file of the workspace. oldText must be in the file exactly once, unless replaceAll is true: include enough lines around it. Whole lines that differ in white space alone are taken where there is one such place, and the result says so. Line ends of the file (LF or CR LF) are kept. When oldText is not found the error shows the lines that come nearest.',
    inputSchema: editInput,
    outputSchema: editOutput,
    requiresApproval: false,
    readOnly: false,
    async execute({ path, oldText, newText, replaceAll }, context) {
      const { ledger } = options
      if (oldText === newText)
        return toolFailure('invalid_input', 'oldText and newText are equal: nothing to change.')
      return await withPlace(options, path, {}, (place) => {
        const read = readFileText(place)
        if (!read.ok) return read
        const known = ledger?.checkBytes(context, place, read.value.bytes)
        if (known?.ok === false) return known
        const edited = replaceText(place, read.value.text, { oldText, newText, replaceAll })
        if (!edited.ok) return edited
        const { text, ...result } = edited.value
        const bytes = Buffer.from(text, 'utf8')
        if (bytes.length > editMaxBytes) return tooLarge(place)
        const check = () => checkUnchanged(place, read.value)
        const written = writeWhole(place, bytes, { mode: read.value.mode, replace: true, check })
        if (!written.ok) return written
        context.tell?.(factsOf(place, read.value.text, text))
        ledger?.noteBytes(context, place, bytes)
        return toolSuccess({ path: shownPath(place), ...result, bytes: bytes.length })
      })
    },
    render: ({ path, replacements, line, note }) => {
      if (note !== undefined) return `Edited ${nameInLine(path)} at line ${line}: ${note}.`
      return replacements === 1
        ? `Edited ${nameInLine(path)} at line ${line}.`
        : `Edited ${nameInLine(path)}: ${replacements} replacements, the first at line ${line}.`
    },
  })
}

function tooLarge(place: Place): ReturnType<typeof toolFailure> {
  return toolFailure(
    'too_large',
    `${place} would have more than ${editMaxBytes} bytes; use run_python or sed for it.`,
  )
}

interface Edit {
  readonly oldText: string
  readonly newText: string
  readonly replaceAll: boolean
}

interface Edited {
  readonly text: string
  readonly replacements: number
  readonly line: number
  readonly note?: string
}

function replaceText(place: Place, text: string, edit: Edit): Result<Edited> {
  const { oldText, newText } = asInFile(text, edit)
  const pieces = text.split(oldText)
  const found = pieces.length - 1
  if (found === 0) return replaceTolerantly(place, text, edit)
  if (found > 1 && !edit.replaceAll) {
    const lines = linesOf(pieces.slice(0, 11), oldText).join(', ')
    const more = found > 10 ? ' …' : ''
    return toolFailure(
      'ambiguous_match',
      `oldText is in ${place} ${found} times (lines ${lines}${more}). Include more of the lines around the one you mean, or set replaceAll.`,
    )
  }
  // A character has at least one byte; avoid building a far too large text.
  if (text.length + found * (newText.length - oldText.length) > editMaxBytes) return tooLarge(place)
  return toolSuccess({ text: pieces.join(newText), replacements: found, line: countLines(pieces[0] ?? '') })
}

/** Matches once when white space is ignored; never for all occurrences, which could include unintended ones. */
function replaceTolerantly(
  place: Place,
  text: string,
  { oldText, newText, replaceAll }: Edit,
): Result<Edited> {
  const miss = (why: string) =>
    toolFailure('no_match', `oldText is not in ${place}.${why}${nearestText(text, oldText)}`)
  if (replaceAll) return miss('')
  const edited = editTolerantly(text, oldText, newText)
  switch (edited.found) {
    case 'none':
      return miss('')
    case 'several':
      return miss(
        ` Without regard to white space it is there several times, at lines ${edited.lines.join(', ')}.`,
      )
    case 'unclear':
      return miss(
        ` Without regard to white space it is lines ${edited.startLine}-${edited.endLine}, but the indentation of newText there is not certain.`,
      )
    case 'one': {
      const { startLine, endLine, reindented } = edited
      const carried = reindented ? "; the file's indentation was carried over to the new text" : ''
      const note = `matched without regard to white space, lines ${startLine}-${endLine}${carried}`
      return toolSuccess({ text: edited.text, replacements: 1, line: startLine, note })
    }
  }
}

/** Converts both texts to CR LF when the file has no other line end. */
function asInFile(text: string, { oldText, newText }: Edit): { oldText: string; newText: string } {
  const isCrlf = text.includes('\r\n') && !/(?<!\r)\n/.test(text)
  if (!isCrlf) return { oldText, newText }
  return { oldText: oldText.replace(/\r?\n/g, '\r\n'), newText: newText.replace(/\r?\n/g, '\r\n') }
}

/** Line numbers at which the text between the pieces begins. */
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
