/** Reads one file for the index: whole, within a bound, and text alone. */
import { Buffer, isUtf8 } from 'node:buffer'
import { readSync, type Stats } from 'node:fs'
import { Place } from '#specs/node/place.ts'
import type { FoundFile, LeftOut } from './walk.ts'

/** How a file was when it was read; another state is another content, as far as the system tells. */
export interface FileState {
  readonly size: number
  readonly ino: number
  readonly mtimeMs: number
  readonly ctimeMs: number
}

/** A change within this time of the one before may carry the same time: the system's clock for files is coarse. */
const clockStepMs = 100

export function stateOf({ size, ino, mtimeMs, ctimeMs }: Stats): FileState {
  return { size, ino, mtimeMs, ctimeMs }
}

export function isSameState(a: FileState, b: FileState): boolean {
  return a.size === b.size && a.ino === b.ino && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs
}

/** Whether it was changed so shortly before `nowMs` that a further change might not show. */
export function isFresh({ ctimeMs }: FileState, nowMs: number): boolean {
  return ctimeMs > nowMs - clockStepMs
}

export interface ReadText {
  readonly state: FileState
  /** Absent where there is none to be had, for the reason beside it. */
  readonly text?: string
  readonly leftOut?: LeftOut
}

/** The text of a file, with the state that it had before it was read; undefined where it is not there any more. */
export function readText(
  { directory, name, path }: Pick<FoundFile, 'directory' | 'name' | 'path'>,
  maxBytes: number,
): ReadText | undefined {
  // Not disposed: the directory is the caller's.
  const parent = path.slice(0, Math.max(0, path.length - name.length - 1))
  const opened = new Place(directory, name, parent).openFile()
  if (!opened.ok) return undefined
  using file = opened.value
  const state = stateOf(file.stat)
  if (state.size > maxBytes) return { state, leftOut: 'large' }
  try {
    const bytes = Buffer.allocUnsafe(state.size)
    let length = 0
    for (let count = -1; count !== 0 && length < bytes.length; length += count)
      count = readSync(file.fd, bytes, length, bytes.length - length, length)
    const content = bytes.subarray(0, length)
    if (content.includes(0)) return { state, leftOut: 'binary' }
    if (!isUtf8(content)) return { state, leftOut: 'encoding' }
    return { state, text: content.toString('utf8') }
  } catch {
    return { state, leftOut: 'unreadable' }
  }
}
