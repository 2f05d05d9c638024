/** `search_code`: workspace passages by text or meaning, best first. Reports what it left out. */
import * as z from 'zod'
import { quotePath } from '#specs/node/path-text.ts'
import { block } from '#specs/node/prompt-block.ts'
import type { Result } from '#specs/protocol/error.ts'
import { Count } from '#specs/protocol/text.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import { type FileToolsOptions, findPath, isInFolders, pathArgument } from '../workspace/file-access.ts'
import { nameInLine } from '../workspace/listing.ts'

/** Maximum characters of all passages. */
const totalMaxChars = 40_000

const inputSchema = z.strictObject({
  query: z
    .string()
    .min(1)
    .max(1_000)
    .describe('Words of what is sought, names of code too: "retry with backoff", "parseHeader"'),
  path: pathArgument.default('.').describe('File or directory to search, relative to the workspace'),
  limit: z.int().min(1).max(20).default(8).describe('Passages to return at most'),
  by: z
    .enum(['words', 'meaning'])
    .default('words')
    .describe('words: passages that have them; meaning: also by an embedding model, if the user has set one'),
})

const outputSchema = z.strictObject({
  passages: z.array(
    z.strictObject({
      path: z.string(),
      /** From 1. */
      firstLine: z.int().min(1),
      lastLine: z.int().min(1),
      text: z.string(),
    }),
  ),
  /** Number of files searched in the whole workspace. */
  files: Count,
  /** What was not searched, and other notes on the result; one phrase each. */
  notes: z.array(z.string()),
})
export type CodeSearchResult = z.output<typeof outputSchema>

export interface CodeSearchRequest {
  readonly query: string
  /** Path below the root; empty: the whole workspace. */
  readonly path: string
  readonly limit: number
  readonly by: 'words' | 'meaning'
}

/** Searches one workspace. */
type SearchWorkspace = (request: CodeSearchRequest, signal: AbortSignal) => Promise<Result<CodeSearchResult>>

export const searchCodeName = 'search_code'

/** @param options of the workspace that `search` searches */
export function createSearchCode(
  search: SearchWorkspace,
  options: FileToolsOptions = {},
): Tool<typeof inputSchema, typeof outputSchema> {
  return defineTool({
    name: searchCodeName,
    description:
      'Finds the passages of the workspace that fit some words best, ranked, each with its file and lines. Use it when you do not know the exact text: names are found by their parts (readFile, read_file, "read file"), and not every word has to be there. For an exact text, a pattern, or every place where something stands, use search_files. Packages, lock files, binary and very large files are left out, which the result says.',
    inputSchema,
    outputSchema,
    requiresApproval: false,
    readOnly: true,
    async execute(input, { signal }) {
      if (isInFolders(options, input.path))
        return toolFailure(
          'invalid_input',
          `search_code covers the workspace alone; search_files also searches ${quotePath(input.path)}.`,
        )
      const path = await findPath(options, input.path)
      if (!path.ok) return path
      const found = await search({ ...input, path: path.value }, signal)
      return found.ok ? toolSuccess(bound(found.value)) : found
    },
    render({ passages, files, notes }) {
      const what = passages.length === 0 ? 'no passage fits' : `${passages.length} passages, the best first`
      const head = [`${what}, of ${files} ${files === 1 ? 'file' : 'files'}`, ...notes].join('; ')
      const shown = passages.map(
        ({ path, firstLine, lastLine, text }) =>
          `${nameInLine(path)} lines ${firstLine}-${lastLine}\n${block('passage', text)}`,
      )
      return [`[${head}]`, ...shown].join('\n')
    },
  })
}

/** As many passages as fit the model's result. */
function bound(result: CodeSearchResult): CodeSearchResult {
  let chars = 0
  const passages = result.passages.filter(({ text }) => {
    chars += text.length
    return chars <= totalMaxChars
  })
  const cut = result.passages.length - passages.length
  return cut === 0
    ? result
    : { ...result, passages, notes: [...result.notes, `${cut} more are not shown for their length`] }
}
