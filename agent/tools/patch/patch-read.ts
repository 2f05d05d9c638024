/** Parses a patch in either format. Touches no file; refuses ambiguous patches with the line number in the patch. */
import type { Result } from '#specs/protocol/error.ts'
import { toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { parseEnvelope } from './patch-envelope.ts'
import { badPatch, type FilePatch } from './patch-model.ts'
import { parseUnified } from './patch-unified.ts'

/** Maximum files in one patch. */
export const patchMaxFiles = 300

/** Parses a unified diff as git or diff write it, or the format that begins with `*** Begin Patch`. */
export async function readPatch(text: string): Promise<Result<readonly FilePatch[]>> {
  const lines = unwrap(text)
  const files = isEnvelope(lines) ? parseEnvelope(lines) : await parseUnified(lines)
  if (!files.ok) return files
  if (files.value.length === 0) return badPatch('it changes nothing', 1)
  if (files.value.length > patchMaxFiles) {
    return toolFailure(
      'too_large',
      `the patch changes ${files.value.length} files, the bound is ${patchMaxFiles}: give it in parts.`,
    )
  }
  return toolSuccess(files.value)
}

/**
 * Whether a line is the format's mark. Leading blanks are allowed only at the head; elsewhere they begin a hunk line.
 */
function isEnvelope(lines: readonly string[]): boolean {
  const first = lines.find((line) => line.trim() !== '') ?? ''
  return [first.trimStart(), ...lines].some((line) => /^\*\*\* Begin Patch\s*$/.test(line))
}

/**
 * The lines without a surrounding code fence. Removes CR when the whole patch uses CR LF: then it is the patch's line
 * end, not the file's.
 */
function unwrap(text: string): readonly string[] {
  const lines = text.replace(/^\ufeff/, '').split('\n')
  if (lines.at(-1) === '') lines.pop()
  const isCrlf = lines.length > 1 && lines.every((line) => line.endsWith('\r'))
  const plain = isCrlf ? lines.map((line) => line.slice(0, -1)) : lines
  const first = plain.findIndex((line) => line.trim() !== '')
  const last = plain.findLastIndex((line) => line.trim() !== '')
  const isFenced =
    last > first && /^```[\w-]*\s*$/.test(plain[first] ?? '') && /^```\s*$/.test(plain[last] ?? '')
  // Blanked rather than removed, so that line numbers hold.
  return isFenced ? plain.map((line, at) => (at === first || at === last ? '' : line)) : plain
}
