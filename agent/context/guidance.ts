/**
 * What the workspace's own AGENTS.md says, of its root folder alone and bounded. The words of whoever wrote the workspace: the
 * prompts show them as such.
 */
import { type FileToolsOptions, readBounded } from '../workspace/file-access.ts'

const fileName = 'AGENTS.md'
const maxBytes = 32 * 1024

/** The text, with a note where it is cut; undefined where there is none, or none that can be read as text. */
export async function readGuidance(options: FileToolsOptions = {}): Promise<string | undefined> {
  const read = await readBounded(options, fileName, maxBytes)
  if (!read.ok) return undefined
  const bytes = read.value
  if (bytes.includes(0)) return undefined
  const isCut = bytes.length > maxBytes
  // A character that the cut went through is left out, not shown as damage.
  const text = new TextDecoder('utf-8').decode(bytes.subarray(0, maxBytes), { stream: isCut }).trim()
  if (text === '') return undefined
  return isCut ? `${text}\n[… only the first ${maxBytes} bytes of ${fileName} are shown …]` : text
}
