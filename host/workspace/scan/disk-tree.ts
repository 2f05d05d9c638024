/**
 * Copies one scanned directory onto a disk. Reads each file once and both hashes and writes these bytes, so that
 * manifest and disk always match. Refuses paths that are no longer plain files, or left the scanned tree.
 */
import { createHash, type Hash, hash as hashOnce } from 'node:crypto'
import { type BigIntStats, closeSync, constants, fstatSync, openSync, readSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Directory } from '#specs/node/directory.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { comparePaths, encodePath } from '#specs/node/path-text.ts'
import type { LeftOut } from '#specs/protocol/event.ts'
import { INDEX_MAX_BYTES, isIndexPath, meaningOfIndex } from '../git-history/index-file.ts'
import type { Manifest, ManifestEntry } from '../manifest.ts'
import { WorkspaceFailure } from '../workspace-error.ts'
import type { Child, ErofsWriter } from './erofs.ts'
import type { Scan, ScannedEntry } from './scan.ts'

/** Never follows a link and never blocks on a special file. */
const OPEN_FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY
const CHUNK_BYTES = 1024 * 1024
const TURN_MS = 20
/** Maximum reads of a file that changes meanwhile; then the last content is used. */
const READS = 3

/** A directory of the scan during writing. */
interface Folder {
  readonly index: number
  readonly parentIndex: number
  readonly attributes: { readonly mode: number; readonly mtimeNs: bigint }
  readonly children: Child[]
}

/** Gives other tasks of the process their turns. */
export class Turns {
  readonly #signal: AbortSignal | undefined
  #start = performance.now()

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal
  }

  async pause(): Promise<void> {
    if (performance.now() - this.#start < TURN_MS) return
    await nextTurn()
    this.#signal?.throwIfAborted()
    this.#start = performance.now()
  }
}

interface TreeOptions {
  readonly writer: ErofsWriter
  readonly diskBytes: number
  readonly turns: Turns
  /** Number of its root in the table of directories; those below follow. */
  readonly firstIndex: number
  /** Number of the directory that holds it; for the disk's root, its own. */
  readonly parentIndex: number
}

/** Content of a folder on the disk. */
export interface CopiedFolder {
  readonly name: string
  /** Real path on the host. */
  readonly root: string
  readonly files: number
  readonly bytes: number
  /** A directory's path ends with `/` and includes everything below it. */
  readonly leftOut: readonly LeftOut[]
}

/** One scan on the disk. */
export class Tree {
  readonly firstIndex: number
  readonly #scan: Scan
  readonly #options: TreeOptions
  readonly #writer: ErofsWriter
  readonly #folders = new Map<string, Folder>()
  readonly #entries = new Map<string, ManifestEntry>()
  readonly fileNids = new Map<string, number>()
  readonly #leftOut: LeftOut[]
  readonly #chunk = Buffer.allocUnsafe(CHUNK_BYTES)
  #bytes = 0
  /** The currently open directory. */
  #open: { path: string; directory: Directory } | undefined

  constructor(scan: Scan, options: TreeOptions) {
    this.#scan = scan
    this.#options = options
    this.#writer = options.writer
    this.firstIndex = options.firstIndex
    this.#leftOut = [...scan.leftOut]
  }

  /** The number after its last directory's. */
  get nextIndex(): number {
    return this.firstIndex + this.#folders.size
  }

  async write(): Promise<void> {
    const { diskBytes, firstIndex, parentIndex, turns } = this.#options
    // Regardless of its mode on the host, the agent must be able to use the root.
    const attributes = { mode: (this.#scan.rootMode & 0o777) | 0o700, mtimeNs: 0n }
    this.#folders.set('', { index: firstIndex, parentIndex, attributes, children: [] })
    using root = Directory.openTrusted(this.#scan.root)
    try {
      for (const entry of this.#scan.entries) {
        await this.#add(root, entry)
        if (this.#writer.size > diskBytes) throw grewTooLarge(diskBytes)
        await turns.pause()
      }
    } finally {
      this.#open?.directory[Symbol.dispose]()
    }
    for (const { index, parentIndex, attributes, children } of this.#folders.values()) {
      this.#writer.setDirectory(index, parentIndex, attributes, children)
    }
  }

  manifest(): Manifest {
    return {
      root: this.#scan.root,
      device: String(this.#scan.device),
      inode: String(this.#scan.inode),
      entries: this.#entries,
      leftOut: this.#leftOut.sort((a, b) => comparePaths(a.path, b.path)),
      bytes: this.#bytes,
    }
  }

  copied(): Omit<CopiedFolder, 'name'> {
    const { root, leftOut, bytes } = this.manifest()
    return { root, leftOut, bytes, files: this.fileNids.size }
  }

  async #add(root: Directory, entry: ScannedEntry): Promise<void> {
    const slash = entry.path.lastIndexOf('/')
    const parentPath = slash < 0 ? '' : entry.path.slice(0, slash)
    const parent = this.#folders.get(parentPath)
    if (parent === undefined) throw new TypeError('a scan lists each directory before what is in it')
    const name = entry.path.slice(slash + 1)
    let nid: number | undefined
    if (entry.kind === 'directory') {
      const folder: Folder = {
        index: this.nextIndex,
        parentIndex: parent.index,
        attributes: guestAttributes(entry),
        children: [],
      }
      this.#folders.set(entry.path, folder)
      nid = this.#writer.directoryNid(folder.index)
      this.#entries.set(entry.path, { kind: 'directory', ...recorded(entry) })
    } else if (entry.kind === 'link') {
      const target = entry.target ?? ''
      nid = this.#writer.addLink(encodePath(target), guestAttributes(entry))
      this.#entries.set(entry.path, { kind: 'link', ...recorded(entry), target })
    } else if (entry.content !== undefined) nid = this.#addGiven(entry, entry.content)
    else nid = await this.#addFile(this.#enter(root, parentPath), name, entry)
    if (nid !== undefined && entry.kind === 'file') this.fileNids.set(entry.path, nid)
    if (nid !== undefined) parent.children.push({ name: encodePath(name), kind: entry.kind, nid })
  }

  #addGiven(entry: ScannedEntry, content: Buffer): number {
    const erofs = this.#writer.beginFile()
    erofs.write(content)
    const sha256 = hashOnce('sha256', content, 'hex')
    this.#entries.set(entry.path, { kind: 'file', ...recorded(entry), size: content.length, sha256 })
    this.#bytes += content.length
    return erofs.end(guestAttributes(entry))
  }

  async #addFile(
    directory: Directory | undefined,
    name: string,
    entry: ScannedEntry,
  ): Promise<number | undefined> {
    if (directory === undefined) return
    let fd: number
    try {
      fd = openSync(directory.at(name), OPEN_FILE)
    } catch (thrown) {
      // Otherwise it was removed or is a link now: treat it as not scanned.
      if (['EACCES', 'EPERM', 'EIO'].includes(errnoOf(thrown))) {
        this.#leftOut.push({ path: entry.path, reason: 'unreadable' })
      }
      return
    }
    try {
      return await this.#copyFile(fd, entry)
    } finally {
      closeSync(fd)
    }
  }

  async #copyFile(fd: number, entry: ScannedEntry): Promise<number | undefined> {
    const before = fstatSync(fd, { bigint: true })
    if (!before.isFile()) return
    const erofs = this.#writer.beginFile()
    const content = this.#readSmall(fd, before)
    const isIndex = isIndexPath(entry.path) && before.size <= BigInt(INDEX_MAX_BYTES)
    const index: Buffer[] = []
    const write = (chunk: Buffer) => {
      erofs.write(chunk)
      if (isIndex) index.push(Buffer.from(chunk))
    }
    let sha256: string
    let size: number
    if (content !== undefined) {
      write(content)
      sha256 = hashOnce('sha256', content, 'hex')
      size = content.length
    } else ({ sha256, size } = await this.#copyLarge(fd, before, write))
    const seen = { ...entry, ...statFields(before) }
    const indexMeaning = isIndex ? meaningOfIndex(Buffer.concat(index)) : undefined
    const meaning = indexMeaning === undefined ? {} : { indexMeaning }
    this.#entries.set(entry.path, { kind: 'file', ...recorded(seen), size, sha256, ...meaning })
    this.#bytes += size
    return erofs.end(guestAttributes(seen))
  }

  /** The whole content, read again if the file changed meanwhile; undefined if it outgrew the buffer. */
  #readSmall(fd: number, opened: BigIntStats): Buffer | undefined {
    let before = opened
    let content = this.#chunk.subarray(0, 0)
    for (let tries = 0; tries < READS; tries++) {
      if (before.size > BigInt(CHUNK_BYTES)) return
      content = this.#chunk.subarray(0, readFully(fd, this.#chunk.subarray(0, Number(before.size)), 0))
      const after = fstatSync(fd, { bigint: true })
      if (after.mtimeNs === before.mtimeNs && after.size === BigInt(content.length)) break
      before = after
    }
    return content
  }

  /** Copies the file's size at opening, or less if it shrank. */
  async #copyLarge(
    fd: number,
    before: BigIntStats,
    write: (chunk: Buffer) => void,
  ): Promise<{ sha256: string; size: number }> {
    const hash: Hash = createHash('sha256')
    const total = Number(before.size)
    let size = 0
    while (size < total) {
      const wanted = Math.min(CHUNK_BYTES, total - size)
      const chunk = this.#chunk.subarray(0, readFully(fd, this.#chunk.subarray(0, wanted), size))
      hash.update(chunk)
      write(chunk)
      size += chunk.length
      if (chunk.length < wanted) break
      if (this.#writer.size > this.#options.diskBytes) throw grewTooLarge(this.#options.diskBytes)
      await this.#options.turns.pause()
    }
    return { sha256: hash.digest('hex'), size }
  }

  /**
   * The directory at this path, opened name by name without following links; undefined if it was removed or replaced.
   */
  #enter(root: Directory, wanted: string): Directory | undefined {
    if (this.#open?.path === wanted) return this.#open.directory
    this.#open?.directory[Symbol.dispose]()
    this.#open = undefined
    let directory = root.reopen()
    try {
      for (const name of wanted === '' ? [] : wanted.split('/')) {
        const next = directory.open(name)
        directory[Symbol.dispose]()
        directory = next
      }
    } catch {
      directory[Symbol.dispose]()
      return
    }
    this.#open = { path: wanted, directory }
    return directory
  }
}

/** Fills the buffer from `position` until the end of the file. */
function readFully(fd: number, buffer: Buffer, position: number): number {
  let done = 0
  while (done < buffer.length) {
    const count = readSync(fd, buffer, done, buffer.length - done, position + done)
    if (count === 0) break
    done += count
  }
  return done
}

function statFields(stat: BigIntStats): Pick<ScannedEntry, 'mode' | 'inode' | 'mtimeNs' | 'ctimeNs'> {
  return { mode: Number(stat.mode) & 0o7777, inode: stat.ino, mtimeNs: stat.mtimeNs, ctimeNs: stat.ctimeNs }
}

/** Set-uid, set-gid and sticky are meaningless in the VM and are not transferred back. */
function guestAttributes({ mode, mtimeNs }: ScannedEntry): { mode: number; mtimeNs: bigint } {
  return { mode: mode & 0o777, mtimeNs }
}

function recorded(
  entry: ScannedEntry,
): Pick<ManifestEntry, 'path' | 'mode' | 'mtimeNs' | 'ctimeNs' | 'inode'> {
  return {
    path: entry.path,
    mode: entry.mode,
    mtimeNs: String(entry.mtimeNs),
    ctimeNs: String(entry.ctimeNs),
    inode: String(entry.inode),
  }
}

export function grewTooLarge(diskBytes: number): WorkspaceFailure {
  return new WorkspaceFailure(
    'too_large',
    `the workspace grew beyond the ${diskBytes} bytes of its disk during the copy; start again when nothing writes to it`,
  )
}
