/**
 * Reads AGENTS.md from the root of the workspace, up to a bound. The text is untrusted; the prompts mark it as the
 * workspace's.
 */
import { type FileToolsOptions, readBounded } from '../workspace/file-access.ts'

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
