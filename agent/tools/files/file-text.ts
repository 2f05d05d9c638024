/**
 * Reads a whole text file for editing, and detects changes just before it is replaced. Refuses text that is not
 * UTF-8.
 */
import { type Buffer, isUtf8 } from 'node:buffer'
import { readFileSync } from 'node:fs'
import { attempt } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type CallFacts, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { formatSize } from '../../workspace/file-access.ts'

/** Maximum size of an editable file, in bytes. */
export const editMaxBytes = 8 * 1024 * 1024

export interface FileText {
  /** Includes the byte order mark, if any. */
  readonly text: string
  readonly bytes: Buffer
  /** Permission bits. */
  readonly mode: number
}

/** Failures: those of opening it; `too_large`; and `binary_file` for NUL characters or invalid UTF-8. */
export function readFileText(place: Place): Result<FileText> {
  const opened = place.openFile('read')
  if (!opened.ok) return opened
  using file = opened.value
  const { size } = file.stat
  if (size > editMaxBytes) {
    const bound = formatSize(editMaxBytes)
    return toolFailure(
      'too_large',
      `${place} has ${formatSize(size)}; files are edited up to ${bound}. Use run_python or sed.`,
    )
  }
  const read = attempt(`cannot read ${place}`, () => readFileSync(file.fd))
  if (!read.ok) return read
  const bytes = read.value
  if (bytes.includes(0) || !isUtf8(bytes)) {
    return toolFailure(
      'binary_file',
      `${place} (${size} bytes) is not UTF-8 text; use run_python to change its bytes.`,
    )
  }
  return toolSuccess({ text: bytes.toString('utf8'), bytes, mode: file.stat.mode & 0o777 })
}

/** The text of a file that is about to go; undefined where it is not text, or cannot be read. */
export function textBefore(place: Place): string | undefined {
  const read = readFileText(place)
  return read.ok ? read.value.text : undefined
}

/** @param before undefined: not known */
export function factsOf(place: Place, before: string | undefined, after: string): CallFacts {
  const { path } = place
  return { writes: [path], ...(before === undefined ? {} : { edits: [{ path, before, after }] }) }
}

/**
 * Whether the file still holds the text that was read. Compares content, since timestamps are too coarse. A failure
 * is `stale`; a retry may succeed.
 */
export function checkUnchanged(place: Place, { bytes }: Pick<FileText, 'bytes'>): Result<void> {
  const opened = place.openFile('read')
  if (opened.ok) {
    using file = opened.value
    const isSame = attempt(
      `cannot read ${place}`,
      () => file.stat.size === bytes.length && readFileSync(file.fd).equals(bytes),
    )
    if (isSame.ok && isSame.value) return toolSuccess(undefined)
  }
  return toolFailure('stale', `${place} was changed while it was edited; nothing was done.`, true)
}
