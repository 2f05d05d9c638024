/**
 * Reads a patch in either of its forms. Touches no file; what has two meanings or none is refused, with the line of the patch at
 * which it stands.
 */
import type { Result } from '#specs/protocol/error.ts'
import { toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { parseEnvelope } from './patch-envelope.ts'
import { badPatch, type FilePatch } from './patch-model.ts'
import { parseUnified } from './patch-unified.ts'

/** Files that one patch changes. */
export const patchMaxFiles = 300

/** Reads a patch: a unified diff as git or diff write it, or the form that begins with `*** Begin Patch`. */
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

/** Whether a line is the mark of the form. Blanks before it are taken only at the head, for elsewhere they begin a line of a hunk. */
function isEnvelope(lines: readonly string[]): boolean {
  const first = lines.find((line) => line.trim() !== '') ?? ''
  return [first.trimStart(), ...lines].some((line) => /^\*\*\* Begin Patch\s*$/.test(line))
}

/**
 * The lines, without a fence around them, and without the CR of a patch that was written with CR LF throughout: then it is the
 * patch that ends its lines so, and not the file.
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
  // Emptied and not taken out, so that line numbers hold.
  return isFenced ? plain.map((line, at) => (at === first || at === last ? '' : line)) : plain
}
