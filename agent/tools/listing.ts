/** The workspace in a few lines, as the prompts show it: `path (N bytes)`, folders as `path/`. */
import type { FileToolsOptions } from './file-access.ts'
import { createListFiles } from './file-list.ts'

/** Entries that a prompt shows; the tools list the rest. */
const promptMaxEntries = 200

/** Nearest first. A workspace that cannot be listed says so in its place: the run goes on, the tools will tell more. */
export async function listWorkspace(signal: AbortSignal, options: FileToolsOptions = {}): Promise<string> {
  const input = { path: '.', depth: 4, limit: promptMaxEntries }
  const listed = await createListFiles(options).execute(input, { signal, emitOutput: () => undefined })
  if (!listed.ok) return `(the workspace could not be listed: ${listed.error.message})`
  const lines = listed.value.entries.map(({ path, type, sizeBytes }) => {
    if (type === 'directory') return `${path}/`
    return sizeBytes === undefined ? path : `${path} (${sizeBytes} bytes)`
  })
  if (listed.value.truncated) lines.push('(and more)')
  return lines.length === 0 ? '(empty)' : lines.join('\n')
}
