/** `list_files`: entries of a directory tree, nearest first, with limits on depth and number. */
import * as z from 'zod'
import { closedDirectories, listBelow } from '#runtime/tools/walk.ts'
import { nameInLine, quotedNamesNote } from '#specs/node/path-text.ts'
import { Count } from '#specs/protocol/text.ts'
import { defineTool, type Tool, toolSuccess } from '../../tool-calls/tool.ts'
import {
  type FileToolsOptions,
  formatSize,
  readablePathArgument,
  shownPath,
  withReadablePlace,
} from '../../workspace/file-access.ts'

const MAX_DEPTH = 10
const MAX_ENTRIES = 2_000

const inputSchema = z.strictObject({
  path: readablePathArgument.default('.'),
  depth: z.int().min(1).max(MAX_DEPTH).default(3).describe('Levels to list; 1 is the directory alone'),
  limit: z.int().min(1).max(MAX_ENTRIES).default(500).describe('Entries to return at most'),
})

const Listed = z.strictObject({
  /** Relative to the workspace, or absolute in a read-only folder. */
  path: z.string(),
  type: z.enum(['file', 'directory', 'link', 'other']),
  /** Size of a file, in bytes. */
  sizeBytes: Count.optional(),
})

const outputSchema = z.strictObject({
  path: z.string(),
  entries: z.array(Listed),
  /** Whether the limit on entries or depth left something out. */
  truncated: z.boolean(),
  notes: z.array(z.string()),
})

export function createListFiles(
  options: FileToolsOptions = {},
): Tool<typeof inputSchema, typeof outputSchema> {
  return defineTool({
    name: 'list_files',
    description: `Lists files and directories of the workspace with their sizes, down to a depth. Hidden files are included; ${[...closedDirectories].join(', ')} are named but not entered.`,
    inputSchema,
    outputSchema,
    requiresApproval: false,
    readOnly: true,
    async execute({ path, depth, limit }, { signal }) {
      return await withReadablePlace(options, path, async (place) => {
        const listing = await listBelow(place, { maxDepth: depth, includeHidden: true, limit, signal })
        if (!listing.ok) return listing
        const { entries, truncated, hasDeeper, notes } = listing.value
        return toolSuccess({
          path: shownPath(place),
          entries: [...entries],
          truncated: truncated || hasDeeper,
          notes: [...notes],
        })
      })
    },
    render({ path, entries, truncated, notes }) {
      const lines = entries.map((entry) => {
        const name = nameInLine(entry.path)
        if (entry.type === 'directory') return `${name}/`
        return entry.type === 'file'
          ? `${name} (${formatSize(entry.sizeBytes ?? 0)})`
          : `${name} (${entry.type})`
      })
      const more = truncated ? ['there is more: list a directory below, or raise depth or limit'] : []
      const quoted = lines.some((line) => line.startsWith('"')) ? [quotedNamesNote] : []
      const head = [`${nameInLine(path)}: ${entries.length} entries`, ...more, ...quoted, ...notes].join('; ')
      return [`[${head}]`, ...lines].join('\n')
    },
  })
}
