/** Lists a workspace for the prompts: `path (N bytes)`, folders as `path/`, nearest first. */
import * as z from 'zod'
import { nameInLine } from '#specs/node/path-text.ts'
import type { Tool, ToolContext } from '../tool-calls/tool.ts'

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
    return type === 'file' ? `${nameInLine(path)} (${sizeBytes ?? 0} bytes)` : `${nameInLine(path)} (${type})`
  })
  return [...lines, ...(truncated ? ['(there is more: list_files shows it)'] : [])].join('\n')
}
