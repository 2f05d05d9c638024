/** Reads one file for the index: whole, within a bound, and text alone. */
import { Buffer, isAscii, isUtf8 } from 'node:buffer'
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs'
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
  /** Whether that has no character beyond ASCII. */
  readonly isAscii: boolean
  readonly leftOut?: LeftOut
}

/**
 * By its name in an open directory, no link followed. What a walk saw to be a file may be something else by now: a FIFO opens
 * at once and is closed again, and devices do nothing on a workspace, which is mounted without them. So it takes half of
 * the calls to the system that a {@link Place} makes, to be certain before it opens.
 */
const openFlags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

/** The text of a file, with the state that it had before it was read; undefined where it is not there any more. */
export function readText(
  { directory, name }: Pick<FoundFile, 'directory' | 'name'>,
  maxBytes: number,
): ReadText | undefined {
  let fd: number
  try {
    fd = openSync(directory.at(name), openFlags)
  } catch {
    return undefined
  }
  try {
    const stat = fstatSync(fd)
    return stat.isFile() ? readOpen(fd, stateOf(stat), maxBytes) : undefined
  } finally {
    closeSync(fd)
  }
}

function readOpen(fd: number, state: FileState, maxBytes: number): ReadText {
  if (state.size > maxBytes) return { state, isAscii: true, leftOut: 'large' }
  try {
    const bytes = Buffer.allocUnsafe(state.size)
    let length = 0
    for (let count = -1; count !== 0 && length < bytes.length; length += count)
      count = readSync(fd, bytes, length, bytes.length - length, length)
    const content = bytes.subarray(0, length)
    if (content.includes(0)) return { state, isAscii: true, leftOut: 'binary' }
    if (isAscii(content)) return { state, isAscii: true, text: content.toString('latin1') }
    if (!isUtf8(content)) return { state, isAscii: false, leftOut: 'encoding' }
    return { state, isAscii: false, text: content.toString('utf8') }
  } catch {
    return { state, isAscii: true, leftOut: 'unreadable' }
  }
}
