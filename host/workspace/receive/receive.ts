/**
 * Receives the guest's change stream into the run's directory. Every byte is untrusted: the decoder checks format,
 * order and limits; this file checks entries against each other and the disk space. Touches no user file. A refused or
 * truncated stream leaves no change set.
 */

import { createHash, hash as hashOnce } from 'node:crypto'
import { type FileHandle, open, rename, rm, statfs } from 'node:fs/promises'
import { errorMessage } from '#specs/errors.ts'
import type { PathChange } from '#specs/node/change-encoder.ts'
import {
  type ChangeBounds,
  ChangeStreamError,
  type DecodedChange,
  decodeChanges,
} from '#specs/node/change-stream.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type WaitForDiskSpace, writeWithDiskSpace } from '../../files/disk-space.ts'
import { renameDurably } from '../../files/durable.ts'
import { type ChangeSet, changeSetPaths, type StoredChange } from '../change-set.ts'
import { INDEX_MAX_BYTES, meaningOfIndex } from '../git-history/index-file.ts'
import type { Manifest, ManifestEntry } from '../manifest.ts'
import {
  failureOf,
  WorkspaceFailure,
  type WorkspaceResult,
  workspaceFailure,
  workspaceSuccess,
} from '../workspace-error.ts'
import { SenseCheck } from './sense-check.ts'
import { WatchedSource } from './watched-source.ts'

type ManifestFile = Extract<ManifestEntry, { kind: 'file' }>

/** Bytes that must stay free on the disk. */
const SPARE_BYTES = 256 * 1024 * 1024
/** Bytes of content between two checks of the free space. */
const CHECK_EVERY_BYTES = 64 * 1024 * 1024
const WRITE_BYTES = 1024 * 1024

export interface ReceiveOptions {
  /** The guest's stream. */
  readonly source: AsyncIterable<Uint8Array>
  /** What was copied into the VM; entries must be consistent with it. */
  readonly manifest: Manifest
  readonly runDirectory: string
  /** Absent: the limits of the protocol. */
  readonly bounds?: Partial<ChangeBounds>
  /** Bytes to leave free on the disk. Absent: 256 MiB. */
  readonly spareBytes?: number
  readonly signal?: AbortSignal
  /** Called when the disk is full; the guest waits meanwhile. Absent: the change set is refused. */
  readonly waitForDiskSpace?: WaitForDiskSpace
  onProgress?(entries: number, contentBytes: number): void
}

/** Receives a change set. Failures: `invalid_changes`, `cut_short`, `no_space`, `cancelled`, `internal`. */
export async function receiveChanges(options: ReceiveOptions): Promise<WorkspaceResult<ChangeSet>> {
  const paths = changeSetPaths(options.runDirectory)
  const parts = { entries: `${paths.entries}.part`, contents: `${paths.contents}.part` }
  const source = new WatchedSource(options.source, options.signal)
  const diskSpace = new DiskSpace(options)
  try {
    const received = await receiveInto(parts, source, options, diskSpace)
    // The entries last: they make the change set complete.
    await diskSpace.write(() => rename(parts.contents, paths.contents))
    await diskSpace.write(() => renameDurably(parts.entries, paths.entries))
    return workspaceSuccess({ ...received, paths })
  } catch (thrown) {
    await Promise.all(Object.values(parts).map((part) => rm(part, { force: true })))
    return refused(thrown, source)
  }
}

async function receiveInto(
  parts: { entries: string; contents: string },
  source: AsyncIterable<Uint8Array>,
  options: ReceiveOptions,
  diskSpace: DiskSpace,
): Promise<Omit<ChangeSet, 'paths'>> {
  const bounds = {
    maxEntries: options.bounds?.maxEntries ?? limits.changeMaxEntries,
    maxContentBytes: options.bounds?.maxContentBytes ?? limits.changeMaxContentBytes,
  }
  await using contentsFile = await diskSpace.write(() => open(parts.contents, 'w', 0o600))
  await using entriesFile = await diskSpace.write(() => open(parts.entries, 'w', 0o600))
  const contents = new ContentFile(contentsFile, diskSpace)
  const entries = new Map<string, StoredChange>()
  const sense = new SenseCheck(options.manifest)
  for await (const change of decodeChanges(source, bounds)) {
    sense.next(change.entry)
    const offset = contents.size
    const stored = await store(change, contents, indexIn(options.manifest, change.entry))
    const entry = reduceToDifference(stored, options.manifest)
    if (entry?.kind !== 'file') contents.rewind(offset)
    if (entry !== undefined) entries.set(entry.path, entry)
    options.onProgress?.(entries.size, contents.size)
  }
  await contents.end()
  const sha256 = await writeEntries(entriesFile, entries, contents.size, diskSpace)
  return { entries, contentBytes: contents.size, sha256 }
}

/** git's index as it was copied; undefined for every other entry. */
function indexIn(manifest: Manifest, entry: PathChange): ManifestFile | undefined {
  const before = manifest.entries.get(entry.path)
  const isIndex = before?.kind === 'file' && before.indexMeaning !== undefined
  return isIndex && entry.kind === 'file' && entry.size <= INDEX_MAX_BYTES ? before : undefined
}

/** @param index the index in whose place the file comes: one with the same entries counts as that */
async function store(
  { entry, content }: DecodedChange,
  contents: ContentFile,
  index: ManifestFile | undefined,
): Promise<StoredChange> {
  if (entry.kind !== 'file') return entry
  const offset = contents.size
  const pieces: Buffer[] = []
  await contents.expect(entry.size)
  // Most files are small and arrive in one piece, which is several times faster to hash at once.
  let only: Buffer | undefined
  let hash: ReturnType<typeof createHash> | undefined
  for await (const piece of content) {
    if (piece.length === entry.size) only = piece
    else {
      hash ??= createHash('sha256')
      hash.update(piece)
    }
    if (index !== undefined) pieces.push(Buffer.from(piece))
    await contents.append(piece)
  }
  if (index !== undefined && meaningOfIndex(Buffer.concat(pieces)) === index.indexMeaning)
    return { ...entry, size: index.size, sha256: index.sha256, offset }
  const sha256 = hash?.digest('hex') ?? hashOnce('sha256', only ?? Buffer.alloc(0), 'hex')
  return { ...entry, sha256, offset }
}

/**
 * Reduces an entry to its difference from the original. The guest sends a small written file without comparing it; one
 * with the same content is no change, or only a mode change. So is git's index with the same entries.
 */
function reduceToDifference(entry: StoredChange, manifest: Manifest): StoredChange | undefined {
  const before = entry.kind === 'file' ? manifest.entries.get(entry.path) : undefined
  if (entry.kind !== 'file' || before?.kind !== 'file') return entry
  if (before.size !== entry.size || before.sha256 !== entry.sha256) return entry
  if ((before.mode & 0o777) === entry.mode) return undefined
  return { kind: 'mode', path: entry.path, mode: entry.mode }
}

async function writeEntries(
  file: FileHandle,
  entries: ReadonlyMap<string, StoredChange>,
  contentBytes: number,
  diskSpace: DiskSpace,
): Promise<string> {
  const hash = createHash('sha256')
  let text = ''
  let size = 0
  const flush = async () => {
    const bytes = Buffer.from(text)
    hash.update(bytes)
    await diskSpace.writeAll(file, bytes, size)
    size += bytes.length
    text = ''
  }
  for (const entry of entries.values()) {
    text += `${JSON.stringify(entry)}\n`
    if (text.length > WRITE_BYTES) await flush()
  }
  text += `${JSON.stringify({ end: true, entries: entries.size, contentBytes })}\n`
  await flush()
  await diskSpace.write(() => file.datasync())
  return hash.digest('hex')
}

/** The disk of the change set: keeps some space free, and waits when it is full. */
class DiskSpace {
  readonly #options: ReceiveOptions
  readonly #spareBytes: number

  constructor(options: ReceiveOptions) {
    this.#options = options
    this.#spareBytes = options.spareBytes ?? SPARE_BYTES
  }

  /** Resolves when `bytes` more fit with the reserved space. @throws {WorkspaceFailure} */
  async require(bytes: number): Promise<void> {
    const { runDirectory, waitForDiskSpace } = this.#options
    const neededBytes = this.#spareBytes + bytes
    const { bavail, bsize } = await statfs(runDirectory)
    const freeBytes = bavail * bsize
    if (freeBytes >= neededBytes) return
    if (waitForDiskSpace !== undefined) return await this.#wait(neededBytes)
    throw new WorkspaceFailure(
      'no_space',
      `receiving the change set: expected ${neededBytes} free bytes in ${runDirectory}, found ${freeBytes}; free some disk space and collect again`,
    )
  }

  /** Executes `write`, and repeats it after a wait for space. */
  write<T>(write: () => Promise<T>): Promise<T> {
    const wait = this.#options.waitForDiskSpace === undefined ? undefined : () => this.#wait(WRITE_BYTES)
    return writeWithDiskSpace(write, wait)
  }

  async writeAll(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const write = () => file.write(bytes, done, bytes.length - done, position + done)
      done += (await this.write(write)).bytesWritten
    }
  }

  async #wait(neededBytes: number): Promise<void> {
    const { runDirectory: directory, waitForDiskSpace, signal } = this.#options
    try {
      await waitForDiskSpace?.({
        what: 'the change set',
        directory,
        neededBytes,
        ...(signal === undefined ? {} : { signal }),
      })
    } catch (cause) {
      if (signal?.aborted) throw signal.reason
      throw new WorkspaceFailure('no_space', errorMessage(cause))
    }
  }
}

/** Appends contents in large writes, and checks the free space. */
class ContentFile {
  readonly #file: FileHandle
  readonly #diskSpace: DiskSpace
  readonly #buffer = Buffer.allocUnsafe(WRITE_BYTES)
  #used = 0
  /** Offset of the buffer in the file. */
  #start = 0
  #sinceCheck = Number.POSITIVE_INFINITY

  constructor(file: FileHandle, diskSpace: DiskSpace) {
    this.#file = file
    this.#diskSpace = diskSpace
  }

  get size(): number {
    return this.#start + this.#used
  }

  /** Discards everything from `offset` on. */
  rewind(offset: number): void {
    this.#used = Math.max(0, offset - this.#start)
    this.#start = Math.min(this.#start, offset)
  }

  /** Announces a file of this size. */
  async expect(bytes: number): Promise<void> {
    if (bytes > CHECK_EVERY_BYTES) await this.#check(bytes)
  }

  async append(piece: Buffer): Promise<void> {
    this.#sinceCheck += piece.length
    if (this.#sinceCheck > CHECK_EVERY_BYTES) await this.#check(CHECK_EVERY_BYTES)
    let rest = piece
    while (rest.length > 0) {
      const count = rest.copy(this.#buffer, this.#used)
      this.#used += count
      rest = rest.subarray(count)
      if (this.#used === this.#buffer.length) await this.#flush()
    }
  }

  async end(): Promise<void> {
    await this.#flush()
    await this.#file.truncate(this.size)
    await this.#diskSpace.write(() => this.#file.datasync())
  }

  async #flush(): Promise<void> {
    await this.#diskSpace.writeAll(this.#file, this.#buffer.subarray(0, this.#used), this.#start)
    this.#start += this.#used
    this.#used = 0
  }

  async #check(bytes: number): Promise<void> {
    await this.#diskSpace.require(bytes)
    this.#sinceCheck = 0
  }
}

function refused(thrown: unknown, source: WatchedSource): WorkspaceResult<never> {
  if (source.wasCancelled(thrown))
    return workspaceFailure('cancelled', 'receiving the change set was cancelled')
  const remedy = 'nothing on the host was changed; collect the changes again'
  const text = errorMessage(thrown)
  if (source.ended !== undefined && (thrown instanceof ChangeStreamError || source.ended.thrown === thrown)) {
    return workspaceFailure('cut_short', `the change set ended before its end: ${text}; ${remedy}`)
  }
  if (thrown instanceof ChangeStreamError) {
    return workspaceFailure(
      'invalid_changes',
      `the guest sent a change set that is refused: ${text}; ${remedy}`,
    )
  }
  return failureOf('receiving the change set', thrown)
}
