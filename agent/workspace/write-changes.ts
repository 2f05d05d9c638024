/**
 * Writes a change set to a tree, so that it becomes what its sender had. The stream is hostile: paths are resolved
 * without links, and whatever stands at a path is replaced. A path that cannot be written is reported and left as it is.
 */
import { randomBytes } from 'node:crypto'
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  openSync,
  renameSync,
  symlinkSync,
  writeSync,
} from 'node:fs'
import { type DecodedChange, decodeChanges } from '#specs/node/change-stream.ts'
import { Root } from '#specs/node/descriptor-walk.ts'
import type { Directory, Owner } from '#specs/node/directory.ts'
import { ifPermitted, reasonOf } from '#specs/node/file-error.ts'
import { kindAt, makeDirectory, openSpot, removeAt, statSpot } from './trees.ts'

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

export interface LeftOutPath {
  readonly path: string
  readonly reason: string
}

/**
 * @returns paths that were not written, with the reason
 * @throws {ChangeStreamError} for a stream that is no change set or ends early; what came before it is written
 */
export async function writeChanges(
  source: AsyncIterable<Uint8Array>,
  directory: string,
  owner: Owner,
): Promise<LeftOutPath[]> {
  const opened = Root.open(directory, { owner })
  if (!opened.ok) throw new Error(opened.error.message)
  using root = opened.value
  const leftOut: LeftOutPath[] = []
  for await (const change of decodeChanges(source)) {
    const { path } = change.entry
    if (change.entry.kind === 'unsupported') {
      leftOut.push({ path, reason: change.entry.reason })
      continue
    }
    const reason = await writeOne(change, root, owner)
    if (reason !== undefined) leftOut.push({ path, reason })
  }
  return leftOut
}

/** @returns why it was not written */
async function writeOne(
  { entry, content }: DecodedChange,
  root: Root,
  owner: Owner,
): Promise<string | undefined> {
  const found = root.locate(entry.path, { links: 'refuse', createParents: entry.kind !== 'deleted' })
  // A directory that is deleted takes what is below it along.
  if (!found.ok)
    return entry.kind === 'deleted' && found.error.code === 'not_found' ? undefined : found.error.message
  using place = found.value
  const { directory, name } = place
  if (name === '.') return 'it is the workspace itself'
  const staged = `.caisson-${randomBytes(8).toString('hex')}`
  try {
    switch (entry.kind) {
      case 'file':
        await writeFile(directory, staged, content, owner, entry.mode)
        putInPlace(directory, staged, name)
        break
      case 'link':
        symlinkSync(Buffer.from(entry.target), directory.at(staged))
        putInPlace(directory, staged, name)
        break
      case 'directory':
        becomeDirectory(directory, name, entry.mode, owner)
        break
      case 'mode':
        setMode(directory, name, entry.mode)
        break
      case 'deleted':
        removeAt(directory, name)
        break
      default:
    }
    return undefined
  } catch (thrown) {
    removeAt(directory, staged)
    // A stream that breaks off is no fault of one path.
    if (!(thrown instanceof Error && 'syscall' in thrown)) throw thrown
    return reasonOf(thrown)
  }
}

async function writeFile(
  directory: Directory,
  name: string,
  content: AsyncIterable<Buffer>,
  owner: Owner,
  mode: number,
): Promise<void> {
  const fd = openSync(directory.at(name), NEW_FILE, 0o600)
  try {
    for await (const piece of content)
      for (let written = 0; written < piece.length; ) written += writeSync(fd, piece, written)
    ifPermitted(() => fchownSync(fd, owner.uid, owner.gid))
    fchmodSync(fd, mode)
  } finally {
    closeSync(fd)
  }
}

function putInPlace(directory: Directory, staged: string, name: string): void {
  // No rename replaces a directory with a file.
  if (kindAt({ directory, name }) === 'directory') removeAt(directory, name)
  renameSync(directory.at(staged), directory.at(name))
}

function becomeDirectory(directory: Directory, name: string, mode: number, owner: Owner): void {
  const stat = statSpot({ directory, name })
  if (stat?.isDirectory() === true) setMode(directory, name, mode)
  else {
    if (stat !== undefined) removeAt(directory, name)
    makeDirectory(directory, name, mode, owner)
  }
}

function setMode(directory: Directory, name: string, mode: number): void {
  using inside = openSpot({ directory, name })
  if (inside !== undefined) {
    inside.chmod(mode)
    return
  }
  const fd = openSync(directory.at(name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    fchmodSync(fd, mode)
  } finally {
    closeSync(fd)
  }
}
