/**
 * Compares one name in the workspace and in its base: the read-only half of the change set. Never blocks: devices and
 * FIFOs are reported, not opened.
 */
import { Buffer } from 'node:buffer'
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readlinkSync,
  readSync,
  type Stats,
} from 'node:fs'
import type { PathChange } from '#specs/node/change-encoder.ts'
import { type Directory, type DirectoryEntry, type EntryKind, kindOf } from '#specs/node/directory.ts'
import { fileFailure } from '#specs/node/file-error.ts'
import { decodePath } from '#specs/node/path-text.ts'
import { limits } from '#specs/protocol/limits.ts'

/** Files up to this size are read whole before they are announced, so that the announcement matches the content. */
const SMALL_BYTES = 64 * 1024
/** Chunk size for comparing larger files, in bytes. */
const PIECE_BYTES = 1024 * 1024
/** How often a small file that changes during reading is read again. */
const READ_ATTEMPTS = 3
const OPEN_FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

/** One directory in both trees; without `base` everything in it is new. */
export interface DirectoryPair {
  readonly merged: Directory
  readonly base: Directory | undefined
  /** The same path in the overlay's upper directory; absent when there is none or it is unreadable. */
  readonly upper: Directory | undefined
  /** Entries of each tree. */
  readonly after: readonly DirectoryEntry[]
  readonly before: readonly DirectoryEntry[]
  /** Entries of `upper` by name. A regular file in it is the one that the workspace shows under that name. */
  readonly written: ReadonlyMap<string, EntryKind> | undefined
  /** Path below the workspace; empty for the root. */
  readonly path: string
  readonly depth: number
}

/** A difference at one name. */
export interface ChangeFinding {
  readonly entry?: PathChange
  /** Content of a small file; valid until the next examination. */
  readonly bytes?: Buffer
  /** A large file to send; whoever takes the finding closes it. */
  readonly large?: { readonly fd: number; readonly stat: Stats }
  /** A directory to enter; whoever takes the finding closes it. */
  readonly enter?: DirectoryPair
}

export class Examiner {
  readonly #after = Buffer.allocUnsafeSlow(SMALL_BYTES + 1)
  readonly #before = Buffer.allocUnsafeSlow(SMALL_BYTES + 1)
  readonly #pieces: [Buffer, Buffer] = [Buffer.alloc(0), Buffer.alloc(0)]

  /**
   * The difference at `name`, or nothing. A written small file is returned without comparing the base, which costs as
   * much as sending it: the host compares digests.
   * @param was its kind in the base, if it is there
   * @param is its kind in the workspace
   * @param roomBytes what still fits in the change set: an unchanged file must not be reported as too large
   */
  examine(
    pair: DirectoryPair,
    name: string,
    was: EntryKind | undefined,
    is: EntryKind,
    roomBytes: number,
  ): ChangeFinding | undefined {
    const path = pair.path === '' ? name : `${pair.path}/${name}`
    const base = was === is ? pair.base : undefined
    try {
      if (is === 'file') {
        const wasWritten = base !== undefined && pair.written?.get(name) === 'file'
        const written = wasWritten ? this.#readWritten(pair.merged, name, path, roomBytes) : undefined
        return written ?? this.#examineFile(pair.merged, base, name, path)
      }
      if (is === 'directory') return examineDirectory(pair, base, name, path)
      if (is === 'link') return examineLink(pair.merged, base, name, path)
      return unsupported(path, 'it is a device, FIFO or socket')
    } catch (thrown) {
      return unsupported(path, fileFailure('it cannot be read', thrown).error.message)
    }
  }

  /** A small file with its content; nothing if it is large or not a file. */
  #readWritten(merged: Directory, name: string, path: string, roomBytes: number): ChangeFinding | undefined {
    const fd = openSync(merged.at(name), OPEN_FILE)
    try {
      const stat = fstatSync(fd)
      if (!stat.isFile() || stat.size > Math.min(SMALL_BYTES, roomBytes)) return undefined
      const bytes = readSmall(fd, stat.size, this.#after)
      if (bytes === undefined) return undefined
      return { entry: { kind: 'file', path, mode: stat.mode & 0o777, size: bytes.length }, bytes }
    } finally {
      closeSync(fd)
    }
  }

  #examineFile(
    merged: Directory,
    base: Directory | undefined,
    name: string,
    path: string,
  ): ChangeFinding | undefined {
    const was = base === undefined ? undefined : lstatSync(base.at(name))
    const seen = was === undefined ? undefined : lstatSync(merged.at(name))
    if (was !== undefined && seen !== undefined && isSameInode(seen, was)) return undefined
    const fd = openSync(merged.at(name), OPEN_FILE)
    let keepOpen = false
    try {
      const stat = seen ?? fstatSync(fd)
      if (!stat.isFile()) return unsupported(path, `it became a ${kindOf(stat)} while it was read`)
      const mode = stat.mode & 0o777
      if (stat.size <= SMALL_BYTES) {
        const bytes = readSmall(fd, stat.size, this.#after)
        if (bytes === undefined) return unsupported(path, 'it kept changing while it was read')
        if (base !== undefined && bytes.length === was?.size && this.#equalsSmall(bytes, base, name)) {
          return modeChange(path, mode, was)
        }
        return { entry: { kind: 'file', path, mode, size: bytes.length }, bytes }
      }
      if (base !== undefined && stat.size === was?.size && this.#equalsLarge(fd, base, name)) {
        return modeChange(path, mode, was)
      }
      keepOpen = true
      const now = fstatSync(fd)
      return { entry: { kind: 'file', path, mode, size: now.size }, large: { fd, stat: now } }
    } finally {
      if (!keepOpen) closeSync(fd)
    }
  }

  #equalsSmall(bytes: Buffer, base: Directory, name: string): boolean {
    const fd = openSync(base.at(name), OPEN_FILE)
    try {
      return readPiece(fd, this.#before.subarray(0, bytes.length), 0).equals(bytes)
    } finally {
      closeSync(fd)
    }
  }

  /** Compares in chunks and stops at the first difference. */
  #equalsLarge(fd: number, base: Directory, name: string): boolean {
    if (this.#pieces[0].length === 0) this.#pieces.fill(Buffer.allocUnsafeSlow(PIECE_BYTES), 0, 1)
    if (this.#pieces[1].length === 0) this.#pieces.fill(Buffer.allocUnsafeSlow(PIECE_BYTES), 1, 2)
    const [after, before] = this.#pieces
    const baseFd = openSync(base.at(name), OPEN_FILE)
    try {
      for (let at = 0; ; ) {
        const piece = readPiece(fd, after, at)
        if (!piece.equals(readPiece(baseFd, before, at))) return false
        if (piece.length < PIECE_BYTES) return true
        at += piece.length
      }
    } finally {
      closeSync(baseFd)
    }
  }
}

/** An entry that the change set cannot contain. */
export function unsupported(path: string, reason: string): ChangeFinding {
  return { entry: { kind: 'unsupported', path, reason: reason.slice(0, limits.lineMaxChars) } }
}

/**
 * Fills `into` from `position` on, or less at the file's end. A short read is the end of a regular file; avoiding
 * another call matters with thousands of files.
 */
export function readPiece(fd: number, into: Buffer, position: number): Buffer {
  return into.subarray(0, readSync(fd, into, 0, into.length, position))
}

/** A file's whole content; nothing if it outgrew a small file or keeps changing. */
function readSmall(fd: number, expectedSize: number, into: Buffer): Buffer | undefined {
  let size = expectedSize
  for (let attempt = 0; attempt < READ_ATTEMPTS && size < into.length; attempt++) {
    // One extra byte, so that growth is visible.
    const bytes = readPiece(fd, into.subarray(0, size + 1), 0)
    if (bytes.length === size) return bytes
    size = fstatSync(fd).size
  }
  return undefined
}

/**
 * Whether two trees show the same inode, as workspace and base do for unchanged files. A copied-up file has another
 * change time, which nobody in the guest can set; so no content need be read.
 */
export function isSameInode(is: Stats, was: Stats): boolean {
  return is.ino === was.ino && is.ctimeMs === was.ctimeMs && is.size === was.size && is.mode === was.mode
}

function modeChange(path: string, mode: number, was: Stats): ChangeFinding | undefined {
  return (was.mode & 0o777) === mode ? undefined : { entry: { kind: 'mode', path, mode } }
}

function examineDirectory(
  pair: DirectoryPair,
  base: Directory | undefined,
  name: string,
  path: string,
): ChangeFinding | undefined {
  const merged = pair.merged.open(name)
  const before = base?.open(name)
  const upper = before === undefined ? undefined : openHint(pair, name)
  try {
    const mode = fstatSync(merged.fd).mode & 0o777
    const enter = openPair({ merged, base: before, upper }, path, pair.depth + 1)
    if (before === undefined) return { entry: { kind: 'directory', path, mode }, enter }
    return { ...modeChange(path, mode, fstatSync(before.fd)), enter }
  } catch (thrown) {
    for (const directory of [merged, before, upper]) directory?.[Symbol.dispose]()
    throw thrown
  }
}

/** The directories of a pair; whoever takes the pair closes them. */
type Directories = Pick<DirectoryPair, 'merged' | 'base' | 'upper'>

/** Lists everything now, so that an unreadable directory is known before it is announced. */
export function openPair(directories: Directories, path: string, depth: number): DirectoryPair {
  const { merged, base, upper } = directories
  const written = upper === undefined ? undefined : listHint(upper)
  return { ...directories, after: merged.list(), before: base?.list() ?? [], written, path, depth }
}

/** Opens the directory `name` of the upper directory; nothing when there is none, and then everything is compared. */
function openHint({ upper, written }: DirectoryPair, name: string): Directory | undefined {
  if (written?.get(name) !== 'directory') return undefined
  try {
    return upper?.open(name)
  } catch {
    return undefined
  }
}

function listHint(upper: Directory): ReadonlyMap<string, EntryKind> | undefined {
  try {
    return new Map(upper.list().map(({ name, kind }) => [name, kind]))
  } catch {
    return undefined
  }
}

function examineLink(
  merged: Directory,
  base: Directory | undefined,
  name: string,
  path: string,
): ChangeFinding | undefined {
  const target = readlinkSync(merged.at(name), { encoding: 'buffer' })
  if (base !== undefined && readlinkSync(base.at(name), { encoding: 'buffer' }).equals(target))
    return undefined
  return { entry: { kind: 'link', path, target: decodePath(target) } }
}
