/** `read_file` of the library: text in pages. Refuses binary files. */
import * as z from 'zod'
import { failure } from '#specs/node/file-error.ts'
import { type BuiltIn, defineBuiltIn, toOutcome } from './built-in.ts'
import { pathParameter, withinDirectory } from './directory-scope.ts'
import { notesOf, readTextPage } from './text-page.ts'
import { shownPath } from './workspace-file.ts'

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
