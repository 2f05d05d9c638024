/** `read_file`: text in pages, and images. Another binary file is reported with its size, never printed. */
import * as z from 'zod'
import { notesOf, readTextPage } from '#runtime/tools/text-page.ts'
import { nameInLine, quotePath } from '#specs/node/path-text.ts'
import type { ToolError, ToolErrorCode } from '#specs/protocol/error.ts'
import { describeImage, ImageRef } from '#specs/protocol/image.ts'
import { Count } from '#specs/protocol/text.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import {
  type FileToolsOptions,
  formatSize,
  readablePathArgument,
  shownPath,
  withReadablePlace,
} from '../../workspace/file-access.ts'
import { readPicture } from '../../workspace/picture.ts'
import { fingerprintFile } from '../../workspace/read-ledger.ts'

const DEFAULT_LINES = 1_000
const MAX_LINES = 5_000
const PAGE_MAX_BYTES = 48 * 1024
const LINE_MAX_CHARS = 2_000

const inputSchema = z.strictObject({
  path: readablePathArgument,
  offset: z.int().min(1).default(1).describe('First line to read, from 1'),
  limit: z.int().min(1).max(MAX_LINES).default(DEFAULT_LINES).describe('Lines to read'),
})

const outputSchema = z.strictObject({
  path: z.string(),
  /** Of an image, whose content and lines are empty; absent: the file is text. */
  image: ImageRef.optional(),
  /** The lines, each but the last ended by a newline. */
  content: z.string(),
  /** Number of the first line returned. */
  offset: z.int().min(1),
  lines: Count,
  /** Number of lines in the file; absent when it is too large to count. */
  totalLines: Count.nullable(),
  /** Start of the next page; absent at the file's end. */
  nextOffset: z.int().min(1).nullable(),
  sizeBytes: Count,
  /** Whether bytes that are not UTF-8 are shown as U+FFFD. */
  lossy: z.boolean(),
  /** Other facts that matter before an edit. */
  notes: z.array(z.string()),
})

export function createReadFile(
  options: FileToolsOptions = {},
): Tool<typeof inputSchema, typeof outputSchema> {
  return defineTool({
    name: 'read_file',
    description: `Reads a text file of the workspace, up to ${DEFAULT_LINES} lines or ${PAGE_MAX_BYTES / 1024} KiB at a time. The result says how many lines the file has and where the next page begins. Lines longer than ${LINE_MAX_CHARS} characters are cut. Of an image (PNG, JPEG, GIF, WebP, up to 1 MiB) it shows the picture, such as a chart or a screenshot that you made. Other binary files are refused: use run_python or run_bash for them.`,
    inputSchema,
    outputSchema,
    requiresApproval: false,
    readOnly: true,
    async execute({ path, offset, limit }, context) {
      const { ledger } = options
      return await withReadablePlace(options, path, async (place) => {
        const opened = place.openFile('read')
        if (!opened.ok) {
          if (opened.error.code === 'not_found') ledger?.note(context, place, 'absent')
          return withHint(opened.error, path)
        }
        using file = opened.value
        // Recorded before the page: a change during reading counts as unseen.
        const seen = ledger === undefined ? undefined : fingerprintFile(file)
        const sizeBytes = file.stat.size
        const picture = readPicture(file)
        if (picture?.ok === true) {
          if (seen?.ok === true) ledger?.note(context, place, seen.value)
          context.tell?.({ reads: [place.path] })
          const { image, url } = picture.value
          const name = nameInLine(shownPath(place))
          context.show?.({ name, image, url })
          return toolSuccess(imageResult(shownPath(place), image, context.show !== undefined))
        }
        const request = { offset, maxLines: limit, maxBytes: PAGE_MAX_BYTES, maxLineChars: LINE_MAX_CHARS }
        const read = await readTextPage(file.fd, request, context.signal)
        if (!read.ok) return explain(read.error.code, picture?.error ?? read.error.message, path, sizeBytes)
        const page = read.value
        if (page.totalLines !== null && offset > Math.max(1, page.totalLines)) {
          return toolFailure(
            'invalid_input',
            `${quotePath(path)} has ${page.totalLines} lines; offset ${offset} is beyond.`,
          )
        }
        if (seen?.ok === true) ledger?.note(context, place, seen.value)
        context.tell?.({ reads: [place.path] })
        const next = offset + page.lines.length
        return toolSuccess({
          path: shownPath(place),
          content: page.lines.join('\n'),
          offset,
          lines: page.lines.length,
          totalLines: page.totalLines,
          nextOffset: page.totalLines !== null && next > page.totalLines ? null : next,
          sizeBytes,
          lossy: page.lossy,
          notes: notesOf(page),
        })
      })
    },
    render(value) {
      if (value.image !== undefined)
        return `[${[`${nameInLine(value.path)}: ${describeImage(value.image)}`, ...value.notes].join('; ')}]`
      const last = value.offset + value.lines - 1
      const of = value.totalLines === null ? '' : ` of ${value.totalLines}`
      const range = value.lines === 0 ? 'empty file' : `lines ${value.offset}-${last}${of}`
      const more = value.nextOffset === null ? [] : [`more from offset ${value.nextOffset}`]
      return `[${[`${nameInLine(value.path)}: ${range}`, ...more, ...value.notes].join('; ')}]\n${value.content}`
    },
  })
}

function imageResult(path: string, image: ImageRef, isShown: boolean): z.infer<typeof outputSchema> {
  return {
    path,
    image,
    content: '',
    offset: 1,
    lines: 0,
    totalLines: null,
    nextOffset: null,
    sizeBytes: image.sizeBytes,
    lossy: false,
    notes: [isShown ? 'the next message shows it' : 'a program gets no picture: open the file itself'],
  }
}

function withHint(error: ToolError, path: string): ReturnType<typeof toolFailure> {
  const hints: Partial<Record<ToolErrorCode, string>> = {
    not_found: ` Use list_files to see what is there, or search_files to find ${quotePath(path)}.`,
    not_a_file: ' Use list_files for a directory.',
  }
  return toolFailure(error.code, error.message + (hints[error.code] ?? ''), error.retryable)
}

function explain(
  code: ToolErrorCode,
  reason: string,
  path: string,
  size: number,
): ReturnType<typeof toolFailure> {
  if (code === 'binary_file') {
    return toolFailure(
      'binary_file',
      `${quotePath(path)} is a binary file of ${size} bytes (${formatSize(size)}): ${reason}. Use run_python to parse it, or run_bash with file, xxd or strings to look into it.`,
    )
  }
  if (code === 'cancelled') return toolFailure('cancelled', reason)
  return toolFailure(
    'too_large',
    `${quotePath(path)} has ${formatSize(size)}: ${reason}. Use run_bash with tail, sed or awk.`,
  )
}
