/** Reads one file for the index: complete, within a bound, text only. */
import { Buffer, isAscii, isUtf8 } from 'node:buffer'
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs'
import type { FoundFile, SearchLeftOut } from './walk.ts'

/** File state at reading time; a different state means different content, as far as the system shows. */
export interface FileState {
  readonly size: number
  readonly ino: number
  readonly mtimeMs: number
  readonly ctimeMs: number
}

/** A second change within this time may have the same timestamp: the file system's clock is coarse. */
const clockStepMs = 100

export function stateOf({ size, ino, mtimeMs, ctimeMs }: Stats): FileState {
  return { size, ino, mtimeMs, ctimeMs }
}

export function isUnchanged(a: FileState, b: FileState): boolean {
  return a.size === b.size && a.ino === b.ino && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs
}

/** Whether it changed so shortly before `nowMs` that another change might be invisible. */
export function isFresh({ ctimeMs }: FileState, nowMs: number): boolean {
  return ctimeMs > nowMs - clockStepMs
}

export interface IndexedText {
  readonly state: FileState
  /** Absent when the file has no usable text; the reason is beside it. */
  readonly text?: string
  /** Whether the text is ASCII alone. */
  readonly isAscii: boolean
  readonly leftOut?: SearchLeftOut
}

/**
 * Opens a file by name in an open directory, without following links. A file may have been replaced by a FIFO
 * meanwhile: that opens at once and is closed again. Devices do nothing because the mount disables them. Needs half
 * the system calls of a {@link Place}.
 */
const openFlags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

/** The text of a file with its state before reading; undefined when the file is gone. */
export function readIndexedText(
  { directory, name }: Pick<FoundFile, 'directory' | 'name'>,
  maxBytes: number,
): IndexedText | undefined {
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

function readOpen(fd: number, state: FileState, maxBytes: number): IndexedText {
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
