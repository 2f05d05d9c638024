/** `list_files` of the library: entries of a folder, recursively on request, with limits on depth and number. */
import * as z from 'zod'
import { failure } from '#specs/node/file-error.ts'
import { comparePaths } from '#specs/node/path-text.ts'
import { type BuiltIn, defineBuiltIn, toOutcome } from './built-in.ts'
import { pathParameter, withinDirectory } from './directory-scope.ts'
import { matchesGlob } from './glob.ts'
import { closedDirectories, type ListedEntry, listed, Walk } from './walk.ts'
import { shownPath } from './workspace-file.ts'

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
  run: async (input, context) =>
    toOutcome(
      await withinDirectory(context, input.path, {}, async (place) => {
        const stat = place.stat()
        if (!stat.ok) return stat
        if (!stat.value.isDirectory())
          return failure('not_a_directory', `${place} is no folder; use read_file for a file.`)
        const opened = place.openDirectory()
        if (!opened.ok) return opened
        using directory = opened.value
        const walk = new Walk({
          maxDepth: input.recursive ? input.maxDepth : 1,
          includeHidden: input.includeHidden,
          signal: context.signal,
        })
        const entries: ListedEntry[] = []
        let chars = 0
        for await (const entry of walk.entries(directory, place.path)) {
          if (input.includePattern !== undefined && !matchesGlob(entry.path, input.includePattern)) continue
          chars += entry.path.length
          if (entries.length === input.maxEntries || chars > pathsMaxChars) {
            walk.truncated = true
            break
          }
          entries.push(listed(entry))
        }
        if (context.signal.aborted) return failure('cancelled', 'Listing was cancelled.')
        entries.sort((left, right) => comparePaths(left.path, right.path))
        const { notes } = walk
        const truncated = walk.truncated || (input.recursive && walk.hasDeeper)
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
