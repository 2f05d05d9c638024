/** What the prompts show of a workspace: its files, as `path (N bytes)`, folders as `path/`, nearest first; and its AGENTS.md. */
import * as z from 'zod'
import { nameInLine } from '#specs/node/path-text.ts'
import type { Tool, ToolContext } from '../tool-calls/tool.ts'
import { countBytes, type FileToolsOptions, readBounded } from './file-access.ts'

export { nameInLine }

const depth = 3
const limit = 300

/** The part of the listing tool's output in use here. */
const Listing = z.object({
  entries: z.array(z.object({ path: z.string(), type: z.string(), sizeBytes: z.number().optional() })),
  truncated: z.boolean(),
})

/** The listing by `list_files` of `tools`; an error sentence when that fails. */
export async function describeWorkspace(tools: readonly Tool[], signal: AbortSignal): Promise<string> {
  const listFiles = tools.find(({ name }) => name === 'list_files')
  if (listFiles === undefined) return '(there is no tool that lists the workspace)'
  const context: ToolContext = { signal, emitOutput: () => undefined }
  const result = await listFiles.execute(listFiles.inputSchema.parse({ depth, limit }), context)
  if (!result.ok) return `(the workspace could not be listed: ${result.error.message})`
  const { entries, truncated } = Listing.parse(result.value)
  if (entries.length === 0) return '(empty)'
  const lines = entries.map(({ path, type, sizeBytes }) => {
    if (type === 'directory') return `${nameInLine(path)}/`
    return type === 'file'
      ? `${nameInLine(path)} (${countBytes(sizeBytes ?? 0)})`
      : `${nameInLine(path)} (${type})`
  })
  return [...lines, ...(truncated ? ['(there is more: list_files shows it)'] : [])].join('\n')
}

const fileName = 'AGENTS.md'
const maxBytes = 32 * 1024

/** The text, with a note where it is cut; undefined when the file is missing or is not text. */
export async function readGuidance(options: FileToolsOptions = {}): Promise<string | undefined> {
  const read = await readBounded(options, fileName, maxBytes)
  if (!read.ok) return undefined
  const bytes = read.value
  if (bytes.includes(0)) return undefined
  const isCut = bytes.length > maxBytes
  // Drop a character that the cut split.
  const text = new TextDecoder('utf-8').decode(bytes.subarray(0, maxBytes), { stream: isCut }).trim()
  if (text === '') return undefined
  return isCut ? `${text}\n[… only the first ${maxBytes} bytes of ${fileName} are shown …]` : text
}
