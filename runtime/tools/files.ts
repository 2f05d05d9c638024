/** `list_files`, `read_file` and `write_file` of the library, below the working directory. */

import { Buffer } from 'node:buffer'
import * as z from 'zod'
import { failure } from '#specs/node/file-error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type BuiltIn, defineBuiltIn, pathParameter, toOutcome, withinDirectory } from './built-in.ts'
import { matchesGlob } from './glob.ts'
import { notesOf, readTextPage } from './text-page.ts'
import { closedDirectories, listBelow } from './walk.ts'
import { inspectTarget, shownPath, writeWhole } from './workspace-file.ts'

const maxDepth = 10
const maxEntries = 2_000
/** Maximum characters of all paths. */
const pathsMaxChars = 64 * 1024

export const listFilesTool: BuiltIn = defineBuiltIn({
  name: 'list_files',
  description: `Lists the files and folders of a folder, with recursive those below as well; ${[...closedDirectories].join(', ')} are named but not entered. truncated says that there is more; notes say what was left out.`,
  parameters: z.strictObject({
    path: pathParameter.default('.').describe('Folder, relative to the working directory'),
    recursive: z.boolean().default(false).describe('Also what lies below'),
    maxDepth: z
      .int()
      .min(1)
      .max(maxDepth)
      .default(3)
      .describe('Levels with recursive; 1 is the folder alone'),
    includeHidden: z.boolean().default(false).describe('Also names that begin with a dot'),
    includePattern: z
      .string()
      .min(1)
      .max(1_024)
      .optional()
      .describe('Only what fits, such as *.ts or src/**/*.ts (with *, ? and **)'),
    maxEntries: z.int().min(1).max(maxEntries).default(500).describe('Entries to return at most'),
  }),
  readOnly: true,
  evidence: 'read',
  run: async (input, context) =>
    toOutcome(
      await withinDirectory(context, input.path, {}, async (place) => {
        const { recursive, includePattern, includeHidden } = input
        const listing = await listBelow(place, {
          maxDepth: recursive ? input.maxDepth : 1,
          includeHidden,
          limit: input.maxEntries,
          pathsMaxChars,
          includes: (path) => includePattern === undefined || matchesGlob(path, includePattern),
          signal: context.signal,
        })
        if (!listing.ok) return listing
        const { entries, notes, hasDeeper } = listing.value
        const truncated = listing.value.truncated || (recursive && hasDeeper)
        const value = {
          path: shownPath(place),
          entries,
          truncated,
          ...(notes.length === 0 ? {} : { notes }),
        }
        return { ok: true, value }
      }),
    ),
})

const defaultLines = 1_000
const maxLines = 5_000
/** As JSON, at worst six times as long, it still fits a result. */
const pageMaxBytes = 40 * 1024
const lineMaxChars = 2_000

export const readFileTool: BuiltIn = defineBuiltIn({
  name: 'read_file',
  description: `Reads a text file of the working directory, up to ${defaultLines} lines or ${pageMaxBytes / 1024} KiB at a time; totalLines says how many it has, nextOffset where the next page begins. Longer lines than ${lineMaxChars} characters are cut, binary files refused.`,
  parameters: z.strictObject({
    filePath: pathParameter.describe('Path of the file, relative to the working directory'),
    offset: z.int().min(1).default(1).describe('First line to read, from 1'),
    limit: z.int().min(1).max(maxLines).default(defaultLines).describe('Lines to read'),
  }),
  readOnly: true,
  evidence: 'read',
  run: async ({ filePath, offset, limit }, context) =>
    toOutcome(
      await withinDirectory(context, filePath, {}, async (place) => {
        const opened = place.openFile('read')
        if (!opened.ok) return opened
        using file = opened.value
        const request = { offset, maxLines: limit, maxBytes: pageMaxBytes, maxLineChars: lineMaxChars }
        const read = await readTextPage(file.fd, request, context.signal)
        if (!read.ok) return failure(read.error.code, `cannot read ${place}: ${read.error.message}`)
        const { lines, totalLines } = read.value
        if (totalLines !== null && offset > Math.max(1, totalLines))
          return failure('invalid_input', `${place} has ${totalLines} lines; offset ${offset} is beyond.`)
        const next = offset + lines.length
        const notes = notesOf(read.value)
        const value = {
          filePath: shownPath(place),
          offset,
          limit,
          /** Null when the file is too large to count them. */
          totalLines,
          /** Null at the file's end. */
          nextOffset: totalLines !== null && next > totalLines ? null : next,
          sizeBytes: file.stat.size,
          ...(notes.length === 0 ? {} : { notes }),
          content: lines.join('\n'),
        }
        return { ok: true, value }
      }),
    ),
})

export const writeFileTool: BuiltIn = defineBuiltIn({
  name: 'write_file',
  description: 'Writes a whole text file of the working directory; folders that are missing are made.',
  parameters: z.strictObject({
    filePath: pathParameter.describe('Path of the file, relative to the working directory'),
    content: z.string().max(limits.frameMaxBytes).describe('The whole content of the file'),
    mode: z
      .enum(['overwrite', 'create'])
      .default('overwrite')
      .describe('"create" fails if the file exists; "overwrite" replaces it'),
  }),
  readOnly: false,
  evidence: 'write',
  // An alias of one of its three parameters is unambiguous; content and path are never guessed.
  destructive: false,
  run: async ({ filePath, content, mode }, context) => {
    if (filePath.endsWith('/'))
      return toOutcome(
        failure('invalid_input', `${JSON.stringify(filePath)} names a folder; name a file in it.`),
      )
    return toOutcome(
      await withinDirectory(context, filePath, { createParents: true }, (place) => {
        const target = inspectTarget(place)
        if (!target.ok) return target
        const bytes = Buffer.from(content, 'utf8')
        const written = writeWhole(place, bytes, { ...target.value, replace: mode === 'overwrite' })
        if (!written.ok) return written
        const created = target.value.mode === undefined
        return { ok: true, value: { filePath: shownPath(place), created, bytes: bytes.length } }
      }),
    )
  },
})
