/**
 * `search_files`: runs ripgrep in the sandbox and parses its output within limits. The program never runs outside the
 * sandbox.
 */
import * as z from 'zod'
import { nameInLine, quotedNamesNote, quotePath } from '#specs/node/path-text.ts'
import type { Result } from '#specs/protocol/error.ts'
import { Count } from '#specs/protocol/text.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { type FileToolsOptions, findPath, readablePathArgument } from '../../workspace/file-access.ts'
import { RipgrepReader, ripgrepFormat, SearchLine } from './ripgrep.ts'

const MAX_MATCHES = 500
const MAX_CONTEXT = 10
const TIMEOUT_MS = 60_000
const STDERR_MAX_CHARS = 1_000

const wordsHint =
  'The words were sought as one text, exactly as written; search_code finds passages that have some of them.'

/** Runs a program in the sandbox, in the workspace's root. */
export type RunSandboxed = (
  request: { readonly argv: readonly string[]; readonly timeoutMs: number },
  options: {
    readonly signal: AbortSignal
    onOutput(stream: 'stdout' | 'stderr', bytes: Uint8Array): void
  },
) => Promise<Result<{ readonly exitCode: number | null; readonly timedOut: boolean }>>

const inputSchema = z.strictObject({
  pattern: z.string().min(1).max(4096).describe('Text to find, or a regular expression if regex is true'),
  path: readablePathArgument
    .default('.')
    .describe('File or directory to search, relative to the workspace, or absolute below /mnt/folders'),
  regex: z.boolean().default(false).describe('Take pattern as a regular expression (Rust syntax)'),
  ignoreCase: z.boolean().default(false),
  glob: z.string().min(1).max(1024).optional().describe('Only files whose path fits, such as *.py or src/**'),
  context: z.int().min(0).max(MAX_CONTEXT).default(0).describe('Lines to show before and after each match'),
  limit: z.int().min(1).max(MAX_MATCHES).default(100).describe('Matching lines to return at most'),
})

const outputSchema = z.strictObject({
  lines: z.array(SearchLine),
  /** Number of matching lines. */
  matches: Count,
  files: Count,
  /** Whether the search was stopped at a limit. */
  truncated: z.boolean(),
  /** Suggestion when nothing was found. */
  hint: z.string().optional(),
})

export function createSearchFiles(
  run: RunSandboxed,
  options: FileToolsOptions = {},
): Tool<typeof inputSchema, typeof outputSchema> {
  return defineTool({
    name: 'search_files',
    description:
      'Finds every line with an exact text or a pattern in the files of the workspace or of a read-only folder, hidden ones too but not .git, and gives path, line number and line. Binary files are passed over. For words that need not stand together, the best places first, use search_code; to find files by name use list_files.',
    inputSchema,
    outputSchema,
    requiresApproval: false,
    readOnly: true,
    async execute(input, { signal }) {
      const path = await findPath(options, input.path)
      return path.ok ? await search(run, input, path.value, signal) : path
    },
    render({ lines, matches, files, truncated, hint }) {
      if (matches === 0) return hint === undefined ? 'No match.' : `No match. ${hint}`
      const more = truncated ? '; there may be more: narrow the search or raise limit' : ''
      const shown = lines.map(
        (line) => `${pathOf(line.path)}:${line.line}${line.isMatch ? ':' : '-'} ${line.text}`,
      )
      const quoted = shown.some((line) => line.startsWith('"')) ? `; ${quotedNamesNote}` : ''
      const head = `${counted(matches, 'matching line')} in ${counted(files, 'file')}${more}${quoted}`
      return [`[${head}]`, ...shown].join('\n')
    },
  })
}

/** Also quotes a path that looks as if it contained the line number. */
const pathOf = (path: string) => (/:\d+[:-] /.test(path) ? quotePath(path) : nameInLine(path))

const counted = (count: number, noun: string) => `${count} ${noun}${count === 1 ? '' : 's'}`

async function search(
  run: RunSandboxed,
  input: z.output<typeof inputSchema>,
  path: string,
  signal: AbortSignal,
): Promise<Result<z.output<typeof outputSchema>>> {
  // An absolute path is in a read-only folder; other names could be taken for options.
  const place = path.startsWith('/') ? path : `./${path}`
  const reader = new RipgrepReader(input.limit, path.startsWith('/') ? path : './')
  const enough = new AbortController()
  let stderr = ''
  const ended = await run(
    { argv: argumentsOf(input, place), timeoutMs: TIMEOUT_MS },
    {
      signal: AbortSignal.any([signal, enough.signal]),
      onOutput(stream, bytes) {
        if (stream === 'stderr') {
          stderr = (stderr + Buffer.from(bytes).toString('utf8')).slice(0, STDERR_MAX_CHARS)
        } else if (!reader.take(bytes)) enough.abort()
      },
    },
  )
  if (signal.aborted) return toolFailure('cancelled', 'The search was cancelled.')
  const found = reader.result()
  // We ended it at the limit: the results are valid whatever its exit status.
  if (enough.signal.aborted) return toolSuccess({ ...found, truncated: true })
  if (!ended.ok) return ended
  if (ended.value.timedOut) {
    return toolFailure(
      'timed_out',
      'The search took longer than 60 seconds; search in a directory, or with a glob.',
    )
  }
  // 0: matches; 1: no matches; 2: an error, possibly with matches.
  if (ended.value.exitCode === 0 || ended.value.exitCode === 1 || found.matches > 0) {
    const isWords = found.matches === 0 && !input.regex && /\S\s+\S/.test(input.pattern)
    return toolSuccess(isWords ? { ...found, hint: wordsHint } : found)
  }
  const hint = input.regex ? ' Check the regular expression, or search without regex for plain text.' : ''
  return toolFailure(
    'invalid_input',
    `The search failed: ${stderr.trim() || 'no reason given'}.${hint}`.toWellFormed(),
  )
}

/** All files except .git, whatever ignore files say: the workspace was filtered when it was copied in. */
function argumentsOf(input: z.output<typeof inputSchema>, place: string): string[] {
  return [
    'rg',
    '--no-config',
    ...ripgrepFormat,
    '--no-ignore',
    '--hidden',
    '--glob=!.git',
    '--sort=path',
    ...(input.glob === undefined ? [] : [`--glob=${input.glob}`]),
    ...(input.regex ? [] : ['--fixed-strings']),
    ...(input.ignoreCase ? ['--ignore-case'] : []),
    ...(input.context > 0 ? [`--context=${input.context}`] : []),
    `--regexp=${input.pattern}`,
    '--',
    place,
  ]
}
