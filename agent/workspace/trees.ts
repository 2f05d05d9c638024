/**
 * Operations of the merge on names in trees: compare two, copy a file, remove a subtree. By descriptor alone; links
 * are never followed.
 */
import { Buffer } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  type Stats,
  symlinkSync,
  unlinkSync,
  writeSync,
} from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Directory, type EntryKind, kindOf, type Owner } from '#specs/node/directory.ts'
import { errnoOf, ifPermitted } from '#specs/node/file-error.ts'
import { isSameInode, readPiece } from './examine.ts'
import { emptyDirectory, removeMaxDepth, TooDeepError } from './remove-tree.ts'

const PIECE_BYTES = 256 * 1024
const OPEN_FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

/** A name in a directory that may not exist. */
export interface Spot {
  readonly directory: Directory | undefined
  readonly name: string
}

/** The entry at a spot; nothing if there is none. */
export function statSpot({ directory, name }: Spot): Stats | undefined {
  if (directory === undefined) return undefined
  try {
    return lstatSync(directory.at(name))
  } catch (thrown) {
    if (errnoOf(thrown) === 'ENOENT') return undefined
    throw thrown
  }
}

/** The kind of entry at a spot; `missing` if there is none. */
export function kindAt(spot: Spot): EntryKind | 'missing' {
  const stat = statSpot(spot)
  return stat === undefined ? 'missing' : kindOf(stat)
}

/** Opens the directory at a spot; nothing if there is none. The caller closes it. */
export function openSpot({ directory, name }: Spot): Directory | undefined {
  try {
    return directory?.open(name)
  } catch (thrown) {
    const errno = errnoOf(thrown)
    if (errno === 'ENOENT' || errno === 'ENOTDIR' || errno === 'ELOOP') return undefined
    throw thrown
  }
}

/**
 * Whether both are equal: kind, permission bits and content; for a directory the bits alone. Two devices, FIFOs or
 * sockets are equal. Throws the signal's reason between two chunks of a file.
 */
export async function isSame(a: Spot, b: Spot, signal?: AbortSignal): Promise<boolean> {
  const [statA, statB] = [statSpot(a), statSpot(b)]
  if (statA === undefined || statB === undefined) return statA === statB
  const kind = kindOf(statA)
  if (kind !== kindOf(statB)) return false
  if (kind === 'other') return true
  if (isSameInode(statA, statB)) return true
  if (kind === 'link') return readTarget(a).equals(readTarget(b))
  if ((statA.mode & 0o777) !== (statB.mode & 0o777)) return false
  return kind === 'directory' || (statA.size === statB.size && (await isSameContent(a, b, signal)))
}

async function isSameContent(a: Spot, b: Spot, signal: AbortSignal | undefined): Promise<boolean> {
  const [fdA, fdB] = [openFile(a), openFile(b)]
  try {
    const [pieceA, pieceB] = [Buffer.allocUnsafe(PIECE_BYTES), Buffer.allocUnsafe(PIECE_BYTES)]
    for (let at = 0; ; at += PIECE_BYTES) {
      const piece = readPiece(fdA, pieceA, at)
      if (!piece.equals(readPiece(fdB, pieceB, at))) return false
      if (piece.length < PIECE_BYTES) return true
      await nextTurn()
      signal?.throwIfAborted()
    }
  } finally {
    closeSync(fdA)
    closeSync(fdB)
  }
}

function openFile({ directory, name }: Spot): number {
  if (directory === undefined) throw new TypeError('expected a spot where there is a file')
  return openSync(directory.at(name), OPEN_FILE)
}

function readTarget({ directory, name }: Spot): Buffer {
  if (directory === undefined) throw new TypeError('expected a spot where there is a link')
  return readlinkSync(directory.at(name), { encoding: 'buffer' })
}

/** A new entry beside its place, ready to be moved there; disposing it removes it. */
interface Staged extends Disposable {
  /** Atomically replaces the file or link at its place. */
  place(): void
}

/**
 * Copies the file, link or directory `from` beside the name `to`; omits devices, FIFOs and sockets in a directory.
 * Throws the system's error, or the signal's reason between two chunks of a file.
 */
export async function stageCopy(
  from: Spot,
  to: { readonly directory: Directory; readonly name: string },
  owner: Owner,
  signal?: AbortSignal,
): Promise<Staged> {
  const { directory } = to
  const beside = { directory, name: `.caisson-${randomBytes(8).toString('hex')}` }
  try {
    await copyInto(from, beside, { owner, signal, depth: 0 })
  } catch (thrown) {
    removeAt(directory, beside.name)
    throw thrown
  }
  let isThere = true
  return {
    place: () => {
      renameSync(directory.at(beside.name), directory.at(to.name))
      isThere = false
    },
    [Symbol.dispose]: () => {
      if (isThere) removeAt(directory, beside.name)
    },
  }
}

interface CopyOptions {
  readonly owner: Owner
  readonly signal: AbortSignal | undefined
  readonly depth: number
}

/** Copies `from` to a free spot. */
async function copyInto(
  from: Spot,
  to: { readonly directory: Directory; readonly name: string },
  options: CopyOptions,
): Promise<void> {
  const kind = kindAt(from)
  if (kind === 'link') symlinkSync(readTarget(from), to.directory.at(to.name))
  else if (kind === 'file') await copyFile(from, to.directory.at(to.name), options)
  else if (kind === 'directory') await copyDirectory(from, to, options)
}

async function copyDirectory(
  from: Spot,
  to: { readonly directory: Directory; readonly name: string },
  options: CopyOptions,
): Promise<void> {
  if (options.depth >= removeMaxDepth) throw new TooDeepError('nested too deep')
  using source = openSpot(from)
  makeDirectory(to.directory, to.name, (statSpot(from)?.mode ?? 0o755) & 0o777, options.owner)
  using target = to.directory.open(to.name)
  for (const { name } of source?.list() ?? []) {
    await copyInto(
      { directory: source, name },
      { directory: target, name },
      { ...options, depth: options.depth + 1 },
    )
  }
}

async function copyFile(from: Spot, to: string | Buffer, { owner, signal }: CopyOptions): Promise<void> {
  const source = openFile(from)
  try {
    const target = openSync(to, NEW_FILE, 0o600)
    try {
      const piece = Buffer.allocUnsafe(PIECE_BYTES)
      // Limited to the current size: a program that keeps writing would never end it.
      const { size, mode } = fstatSync(source)
      for (let at = 0; at < size; ) {
        const bytes = readPiece(source, piece, at)
        for (let written = 0; written < bytes.length; )
          written += writeSync(target, bytes, written, bytes.length - written)
        at += bytes.length
        if (bytes.length < PIECE_BYTES) break
        await nextTurn()
        signal?.throwIfAborted()
      }
      ifPermitted(() => fchownSync(target, owner.uid, owner.gid))
      fchmodSync(target, mode & 0o777)
    } finally {
      closeSync(target)
    }
  } finally {
    closeSync(source)
  }
}

/** A new directory with the permission bits `mode`. Throws the system's error. */
export function makeDirectory(directory: Directory, name: string, mode: number, owner: Owner): void {
  mkdirSync(directory.at(name))
  using made = directory.open(name)
  ifPermitted(() => made.chown(owner))
  made.chmod(mode)
}

/** Removes the entry, a directory with its content. */
export function removeAt(directory: Directory, name: string): void {
  const kind = kindAt({ directory, name })
  if (kind === 'directory') {
    emptyTree(directory, name)
    rmdirSync(directory.at(name))
  } else if (kind !== 'missing') unlinkSync(directory.at(name))
}

function emptyTree(directory: Directory, name: string): void {
  using tree = directory.open(name)
  emptyDirectory(tree)
}

/** Text of a file for people and models, cut to `maxChars`; absent when there is no file or it is not text. */
export function readTextAt(spot: Spot, maxChars: number): string | undefined {
  if (kindAt(spot) !== 'file') return undefined
  const fd = openFile(spot)
  try {
    // At most four bytes per character, plus one to detect more.
    const bytes = readPiece(fd, Buffer.allocUnsafe(maxChars * 4 + 1), 0)
    if (bytes.includes(0)) return undefined
    const text = bytes.toString('utf8')
    if (text.length <= maxChars) return text
    return `${text.slice(0, maxChars).toWellFormed()}\n[… cut: the file has ${fstatSync(fd).size} bytes …]`
  } finally {
    closeSync(fd)
  }
}
