/**
 * Takes the change stream from the guest into the run's directory. Every byte is hostile: the decoder checks form,
 * order and bounds, this checks what entries mean to one another and what fits on the disk. Nothing of the user's
 * is touched. A stream that is refused or cut leaves no change set behind.
 */

import { createHash, hash as hashOnce } from 'node:crypto'
import { type FileHandle, open, rename, rm, statfs } from 'node:fs/promises'
import { errorMessage } from '#specs/errors.ts'
import {
  type ChangeBounds,
  ChangeStreamError,
  type DecodedChange,
  decodeChanges,
} from '#specs/node/change-stream.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type WaitForRoom, writeWithRoom } from '../../files/disk-space.ts'
import { renameDurably } from '../../files/durable.ts'
import { type ChangeSet, changeSetPaths, type StoredChange } from '../change-set.ts'
import type { Manifest } from '../manifest.ts'
import {
  failureOf,
  WorkspaceFailure,
  type WorkspaceResult,
  workspaceFailure,
  workspaceSuccess,
} from '../workspace-error.ts'
import { SenseCheck } from './sense-check.ts'
import { WatchedSource } from './watched-source.ts'

/** Bytes that stay free on the disk whatever the guest sends. */
const SPARE_BYTES = 256 * 1024 * 1024
/** Content after which the free space is looked at again. */
const CHECK_EVERY_BYTES = 64 * 1024 * 1024
const WRITE_BYTES = 1024 * 1024

export interface ReceiveOptions {
  /** What comes from the guest. */
  readonly source: AsyncIterable<Uint8Array>
  /** What went in; entries must make sense against it. */
  readonly manifest: Manifest
  readonly runDirectory: string
  /** Absent: the bounds of the protocol. */
  readonly bounds?: Partial<ChangeBounds>
  /** Bytes left free on the disk; absent: 256 MiB. */
  readonly spareBytes?: number
  readonly signal?: AbortSignal
  /** Asked where the disk is full; the guest waits meanwhile. Absent: the change set is refused. */
  readonly waitForRoom?: WaitForRoom
  onProgress?(entries: number, contentBytes: number): void
}

/** Receives a change set. Failures: `invalid_changes`, `cut_short`, `no_space`, `cancelled`, `internal`. */
export async function receiveChanges(options: ReceiveOptions): Promise<WorkspaceResult<ChangeSet>> {
  const paths = changeSetPaths(options.runDirectory)
  const parts = { entries: `${paths.entries}.part`, contents: `${paths.contents}.part` }
  const source = new WatchedSource(options.source, options.signal)
  const room = new Room(options)
  try {
    const received = await receiveInto(parts, source, options, room)
    // The entries last: with them the change set is there.
    await room.write(() => rename(parts.contents, paths.contents))
    await room.write(() => renameDurably(parts.entries, paths.entries))
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
  room: Room,
): Promise<Omit<ChangeSet, 'paths'>> {
  const bounds = {
    maxEntries: options.bounds?.maxEntries ?? limits.changeMaxEntries,
    maxContentBytes: options.bounds?.maxContentBytes ?? limits.changeMaxContentBytes,
  }
  await using contentsFile = await room.write(() => open(parts.contents, 'w', 0o600))
  await using entriesFile = await room.write(() => open(parts.entries, 'w', 0o600))
  const contents = new ContentFile(contentsFile, room)
  const entries = new Map<string, StoredChange>()
  const sense = new SenseCheck(options.manifest)
  for await (const change of decodeChanges(source, bounds)) {
    sense.next(change.entry)
    const offset = contents.size
    const stored = await store(change, contents)
    const entry = reduceToDifference(stored, options.manifest)
    if (entry?.kind !== 'file') contents.rewind(offset)
    if (entry !== undefined) entries.set(entry.path, entry)
    options.onProgress?.(entries.size, contents.size)
  }
  await contents.end()
  const sha256 = await writeEntries(entriesFile, entries, contents.size, room)
  return { entries, contentBytes: contents.size, sha256 }
}

async function store({ entry, content }: DecodedChange, contents: ContentFile): Promise<StoredChange> {
  if (entry.kind !== 'file') return entry
  const offset = contents.size
  await contents.expect(entry.size)
  // Most files are small and come in one piece: hashing such a one at once is several times faster.
  let only: Buffer | undefined
  let hash: ReturnType<typeof createHash> | undefined
  for await (const piece of content) {
    if (piece.length === entry.size) only = piece
    else {
      hash ??= createHash('sha256')
      hash.update(piece)
    }
    await contents.append(piece)
  }
  const sha256 = hash?.digest('hex') ?? hashOnce('sha256', only ?? Buffer.alloc(0), 'hex')
  return { ...entry, sha256, offset }
}

/**
 * What of an entry differs from what went in. The guest sends a small file that was written to without a look at
 * what it was; one whose content is the same is no change, or one of its mode alone.
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
  room: Room,
): Promise<string> {
  const hash = createHash('sha256')
  let text = ''
  let size = 0
  const flush = async () => {
    const bytes = Buffer.from(text)
    hash.update(bytes)
    await room.writeAll(file, bytes, size)
    size += bytes.length
    text = ''
  }
  for (const entry of entries.values()) {
    text += `${JSON.stringify(entry)}\n`
    if (text.length > WRITE_BYTES) await flush()
  }
  text += `${JSON.stringify({ end: true, entries: entries.size, contentBytes })}\n`
  await flush()
  await room.write(() => file.datasync())
  return hash.digest('hex')
}

/** The disk that the change set goes to: some of it stays free, and where it is full the receiver waits. */
class Room {
  readonly #options: ReceiveOptions
  readonly #spareBytes: number

  constructor(options: ReceiveOptions) {
    this.#options = options
    this.#spareBytes = options.spareBytes ?? SPARE_BYTES
  }

  /** Resolves when `bytes` more fit and the spare bytes stay free. @throws {WorkspaceFailure} */
  async require(bytes: number): Promise<void> {
    const { runDirectory, waitForRoom } = this.#options
    const neededBytes = this.#spareBytes + bytes
    const { bavail, bsize } = await statfs(runDirectory)
    const freeBytes = bavail * bsize
    if (freeBytes >= neededBytes) return
    if (waitForRoom !== undefined) return await this.#wait(neededBytes)
    throw new WorkspaceFailure(
      'no_space',
      `receiving the change set: expected ${neededBytes} free bytes in ${runDirectory}, found ${freeBytes}; free some disk space and collect again`,
    )
  }

  /** Does `write`, which may be done again. */
  write<T>(write: () => Promise<T>): Promise<T> {
    const wait = this.#options.waitForRoom === undefined ? undefined : () => this.#wait(WRITE_BYTES)
    return writeWithRoom(write, wait)
  }

  async writeAll(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const write = () => file.write(bytes, done, bytes.length - done, position + done)
      done += (await this.write(write)).bytesWritten
    }
  }

  async #wait(neededBytes: number): Promise<void> {
    const { runDirectory: directory, waitForRoom, signal } = this.#options
    try {
      await waitForRoom?.({
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

/** Appends contents in large writes, and keeps the disk from filling up. */
class ContentFile {
  readonly #file: FileHandle
  readonly #room: Room
  readonly #buffer = Buffer.allocUnsafe(WRITE_BYTES)
  #used = 0
  /** Where in the file the buffer begins. */
  #start = 0
  #sinceCheck = Number.POSITIVE_INFINITY

  constructor(file: FileHandle, room: Room) {
    this.#file = file
    this.#room = room
  }

  get size(): number {
    return this.#start + this.#used
  }

  /** Forgets what lies from `offset` on. */
  rewind(offset: number): void {
    this.#used = Math.max(0, offset - this.#start)
    this.#start = Math.min(this.#start, offset)
  }

  /** A file of this size follows. */
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
    await this.#room.write(() => this.#file.datasync())
  }

  async #flush(): Promise<void> {
    await this.#room.writeAll(this.#file, this.#buffer.subarray(0, this.#used), this.#start)
    this.#start += this.#used
    this.#used = 0
  }

  async #check(bytes: number): Promise<void> {
    await this.#room.require(bytes)
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
