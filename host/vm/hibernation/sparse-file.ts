// Creates, syncs and hashes the files of a machine's memory and disks.

import { createHash } from 'node:crypto'
import { link, open } from 'node:fs/promises'
import { writeWhole } from '../../files/durable.ts'

/** Bytes per read when hashing and copying. */
const PIECE_BYTES = 1024 * 1024

/** Creates a sparse file of this size. Fails if the file exists. */
export async function makeSparseFile(file: string, bytes: number): Promise<void> {
  const handle = await open(file, 'wx', 0o600)
  try {
    await handle.truncate(bytes)
  } finally {
    await handle.close()
  }
}

/** Adds a hard link, so that the file may be removed under its first name; copies if that is not possible. */
export async function linkOrCopy(file: string, target: string): Promise<void> {
  await link(file, target).catch(() => copySparse(file, target))
}

/** Zero blocks take no space in the copy. */
async function copySparse(source: string, target: string): Promise<void> {
  await using from = await open(source, 'r')
  await using to = await open(target, 'wx', 0o600)
  const { size } = await from.stat()
  await to.truncate(size)
  const piece = Buffer.alloc(PIECE_BYTES)
  const zeros = Buffer.alloc(PIECE_BYTES)
  for (let at = 0; at < size; at += PIECE_BYTES) {
    const { bytesRead } = await from.read(piece, 0, PIECE_BYTES, at)
    const read = piece.subarray(0, bytesRead)
    if (!read.equals(zeros.subarray(0, bytesRead))) await writeWhole(to, read, at)
  }
}

/** Resolves once the file's content is on disk. */
export async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Number of pieces in a sample, and bytes of each. */
const SAMPLES = 128
const SAMPLE_BYTES = 64 * 1024

export interface FileSample {
  readonly bytes: number
  readonly sha256: string
}

/**
 * The length of a file and a digest over 128 pieces of 64 KiB, evenly spread from the first to the last byte; files up
 * to 8 MiB are read completely. Takes milliseconds. Detects a file that was truncated, emptied, replaced or largely
 * overwritten, but not one changed byte.
 */
export async function sampleFile(file: string): Promise<FileSample> {
  const handle = await open(file)
  try {
    const { size } = await handle.stat()
    const hash = createHash('sha256')
    const piece = Buffer.allocUnsafe(SAMPLE_BYTES)
    const last = Math.max(0, size - SAMPLE_BYTES)
    for (let index = 0; index < SAMPLES; index += 1) {
      const at = Math.floor((last * index) / (SAMPLES - 1))
      const { bytesRead } = await handle.read(piece, 0, SAMPLE_BYTES, at)
      hash.update(piece.subarray(0, bytesRead))
    }
    return { bytes: size, sha256: hash.digest('hex') }
  } finally {
    await handle.close()
  }
}

/** SHA-256 in hex. Reads in pieces, since a state with memory is large. */
export async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256')
  const piece = Buffer.allocUnsafe(PIECE_BYTES)
  const handle = await open(file)
  try {
    for (;;) {
      const { bytesRead } = await handle.read(piece)
      if (bytesRead === 0) return hash.digest('hex')
      hash.update(piece.subarray(0, bytesRead))
    }
  } finally {
    await handle.close()
  }
}
