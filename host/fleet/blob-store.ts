/** Contents by their digest, where all hosts of a fleet find them: a directory that they share. Nothing in it changes. */
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, open, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { Sha256 } from '#specs/protocol/text.ts'
import { syncDirectory } from '../files/durable.ts'
import { openRegular } from '../files/regular-file.ts'

const pieceBytes = 256 * 1024

export interface Blob {
  readonly sha256: string
  readonly bytes: number
}

export interface BlobStore {
  /** Resolves once the content is on the disk, and every host can read it. */
  put(content: AsyncIterable<Uint8Array>): Promise<Blob>
  /** @throws {CaissonError} `state_corrupted` when it is missing, or is not what was put, at its end at the latest */
  get(blob: Blob): AsyncIterable<Buffer>
}

export class DirectoryBlobs implements BlobStore {
  readonly #directory: string

  /** @param directory is made where it is missing */
  constructor(directory: string) {
    this.#directory = directory
  }

  async put(content: AsyncIterable<Uint8Array>): Promise<Blob> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 })
    const draft = path.join(this.#directory, `.draft-${randomBytes(8).toString('hex')}`)
    try {
      const blob = await writeDraft(draft, content)
      const file = this.#fileOf(blob.sha256)
      const folder = path.dirname(file)
      await mkdir(folder, { recursive: true, mode: 0o700 })
      // Also over one that is there, which may be damaged.
      await rename(draft, file)
      await syncDirectory(folder)
      return blob
    } finally {
      await rm(draft, { force: true })
    }
  }

  async *get({ sha256, bytes }: Blob): AsyncGenerator<Buffer, void> {
    const file = this.#fileOf(sha256)
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

  /** In 256 folders. */
  #fileOf(sha256: string): string {
    // It comes from the database, and must lead to no other place.
    const name = Sha256.parse(sha256)
    return path.join(this.#directory, name.slice(0, 2), name)
  }
}

function damaged(file: string, how: string): CaissonError {
  return new CaissonError('state_corrupted', `the fleet's file ${file} was changed or damaged: ${how}`)
}

async function writeDraft(draft: string, content: AsyncIterable<Uint8Array>): Promise<Blob> {
  const hash = createHash('sha256')
  let bytes = 0
  const handle = await open(draft, 'wx', 0o600)
  try {
    for await (const piece of content) {
      hash.update(piece)
      bytes += piece.byteLength
      await handle.appendFile(piece)
    }
    await handle.sync()
  } finally {
    await handle.close()
  }
  return { sha256: hash.digest('hex'), bytes }
}
