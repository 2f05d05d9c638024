/**
 * Contents where all hosts of a fleet find them. A store knows names alone, gives no name a second content, and never shows a
 * half of one. Which contents are kept is decided in the database (`blobs.ts`).
 */
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { syncDirectory } from '../files/durable.ts'
import { openRegular } from '../files/regular-file.ts'

const pieceBytes = 256 * 1024
/** A draft that nobody wrote to for so long is of a process that ended. */
const draftAgeMs = 24 * 60 * 60 * 1000

export interface Blob {
  readonly sha256: string
  readonly bytes: number
}

/** The same bytes at each call, or those and more. */
export type Content = () => AsyncIterable<Uint8Array>

export interface BlobStore {
  /** For people, without keys. */
  readonly shown: string
  /** Whether a content of this name and size is there, whole. */
  has(name: string, bytes: number): Promise<boolean>
  /**
   * Resolves once every host can read it. Until then the name has no content, or the same one.
   * @throws {ContentChanged} when the first bytes of the content are not the blob
   */
  write(name: string, blob: Blob, content: Content): Promise<void>
  /** @throws {CaissonError} `state_corrupted` when it is missing, or is not the blob, at its end at the latest */
  read(name: string, blob: Blob): AsyncIterable<Buffer>
  /** Does nothing when it is not there. */
  remove(name: string): Promise<void>
  /** Removes what ended processes left unfinished. Absent: the server does it. */
  removeDrafts?(now: number): Promise<void>
}

/** The content has other bytes than its description. */
export class ContentChanged extends Error {
  override readonly name = 'ContentChanged'
}

/** Digest, and what makes it another object than an earlier one of the same content. */
const names = /^[0-9a-f]{64}(-[0-9a-f]{16})?$/

/** A name comes from the database, and must lead to no other place. @throws {CaissonError} `state_corrupted` */
export function requireName(name: string): string {
  if (names.test(name)) return name
  throw new CaissonError(
    'state_corrupted',
    `the fleet's list of files names ${JSON.stringify(name.slice(0, 100))}, which is no digest`,
  )
}

/** The bytes of the blob out of a content that may be longer. @throws {ContentChanged} */
export async function* onlyBlob(content: Content, { sha256, bytes }: Blob): AsyncGenerator<Uint8Array, void> {
  const hash = createHash('sha256')
  let left = bytes
  for await (const piece of content()) {
    const part = piece.subarray(0, left)
    hash.update(part)
    left -= part.byteLength
    if (part.byteLength > 0) yield part
    if (left === 0) break
  }
  if (left > 0) throw new ContentChanged('the content became shorter while it was stored')
  if (hash.digest('hex') !== sha256) throw new ContentChanged('the content was changed while it was stored')
}

export function damaged(place: string, how: string): CaissonError {
  return new CaissonError('state_corrupted', `the fleet's file ${place} was changed or damaged: ${how}`, {
    remedy: 'restore it from a copy; a run that needs it cannot continue on another host',
  })
}

export class DirectoryBlobs implements BlobStore {
  readonly shown: string
  readonly #directory: string

  /** @param directory is made where it is missing */
  constructor(directory: string) {
    this.#directory = directory
    this.shown = directory
  }

  async has(name: string, bytes: number): Promise<boolean> {
    const found = await stat(this.#fileOf(name)).catch((error: unknown) => {
      if (hasSystemCode(error, 'ENOENT')) return undefined
      throw this.#unavailable('looking for a file', error)
    })
    return found?.isFile() === true && found.size === bytes
  }

  async write(name: string, blob: Blob, content: Content): Promise<void> {
    const file = this.#fileOf(name)
    const folder = path.dirname(file)
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const draft = path.join(this.#directory, `.draft-${randomBytes(8).toString('hex')}`)
    try {
      await writeDraft(draft, onlyBlob(content, blob))
      // Also over one that is there, which may be damaged.
      await rename(draft, file)
      await syncDirectory(folder)
    } finally {
      await rm(draft, { force: true })
    }
  }

  async *read(name: string, { sha256, bytes }: Blob): AsyncGenerator<Buffer, void> {
    const file = this.#fileOf(name)
    const hash = createHash('sha256')
    await using handle = await openRegular(file).catch((cause: unknown) => {
      if (cause instanceof CaissonError) throw cause
      throw new CaissonError('state_corrupted', `the fleet's file ${file} cannot be read: ${reasonOf(cause)}`)
    })
    const { size } = await handle.stat()
    if (size !== bytes) throw damaged(file, `it has ${size} bytes instead of ${bytes}`)
    for (let seen = 0; seen < bytes; ) {
      const piece = Buffer.allocUnsafe(Math.min(pieceBytes, bytes - seen))
      const { bytesRead } = await handle.read(piece, 0, piece.length, seen)
      if (bytesRead === 0) throw damaged(file, 'it became shorter while it was read')
      seen += bytesRead
      hash.update(piece.subarray(0, bytesRead))
      yield piece.subarray(0, bytesRead)
    }
    const found = hash.digest('hex')
    if (found !== sha256) throw damaged(file, `its digest is ${found}`)
  }

  async remove(name: string): Promise<void> {
    await rm(this.#fileOf(name), { force: true }).catch((error: unknown) => {
      throw this.#unavailable('removing a file', error)
    })
  }

  async removeDrafts(now: number): Promise<void> {
    for (const name of await readdir(this.#directory).catch(() => [])) {
      if (!name.startsWith('.draft-')) continue
      const draft = path.join(this.#directory, name)
      const found = await stat(draft).catch(() => undefined)
      if (found !== undefined && now - found.mtimeMs > draftAgeMs) await rm(draft, { force: true })
    }
  }

  /** In 256 folders. */
  #fileOf(name: string): string {
    return path.join(this.#directory, requireName(name).slice(0, 2), name)
  }

  #unavailable(phase: string, cause: unknown): CaissonError {
    return new CaissonError(
      'state_unavailable',
      `${phase} in ${this.#directory} failed: ${reasonOf(cause)}; expected a directory that all hosts share`,
      { cause, remedy: 'check that the directory is mounted, and that this host may write to it' },
    )
  }
}

function hasSystemCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}

async function writeDraft(draft: string, content: AsyncIterable<Uint8Array>): Promise<void> {
  const handle = await open(draft, 'wx', 0o600)
  try {
    for await (const piece of content) await handle.appendFile(piece)
    await handle.sync()
  } finally {
    await handle.close()
  }
}
