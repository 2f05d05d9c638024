/**
 * Files with holes as a stream: each piece of content with its position, then an end with the size. A position is a
 * multiple of a block, and each is behind the last.
 */
import { type FileHandle, open } from 'node:fs/promises'
import { writeWhole } from '../files/durable.ts'
import { invalidArchive } from './format.ts'
import { type Extent, findContent } from './holes.ts'

const blockBytes = 64 * 1024
const pieceMaxBytes = 1024 * 1024
/** Position and length, eight bytes each. */
const headBytes = 16

/** Less is read as fast as it is asked about. */
const worthAskingBytes = 64 * 1024 * 1024

/**
 * Where a file has content, by whole blocks.
 * @param usedBytes what lies behind is known to be zeros; absent: the whole file
 */
export async function findExtents(file: string, usedBytes?: number): Promise<Extent[]> {
  await using handle = await open(file, 'r')
  const { size, blocks } = await handle.stat()
  const end = Math.min(size, usedBytes ?? size)
  const found: Extent[] = []
  if (blocks === 0) return found
  const isWorthAsking = end - blocks * 512 > worthAskingBytes
  const known = isWorthAsking ? await findContent(file, size) : undefined
  let next = 0
  for (const { at, bytes } of known ?? [{ at: 0, bytes: end }]) {
    // The blocks that it touches, each once.
    const from = Math.max(next, at - (at % blockBytes))
    next = Math.max(from, Math.min(end, Math.ceil((at + bytes) / blockBytes) * blockBytes))
    await addContent(handle, from, next, found)
  }
  return found
}

/** The blocks between these positions that are not zeros. */
async function addContent(file: FileHandle, start: number, end: number, found: Extent[]): Promise<void> {
  const piece = Buffer.allocUnsafe(Math.min(pieceMaxBytes, Math.max(0, end - start)))
  const zeros = Buffer.alloc(piece.length)
  for (let at = start; at < end; at += pieceMaxBytes) {
    const { bytesRead } = await file.read(piece, 0, Math.min(piece.length, end - at), at)
    if (piece.subarray(0, bytesRead).equals(zeros.subarray(0, bytesRead))) continue
    for (let from = 0; from < bytesRead; from += blockBytes) {
      const block = piece.subarray(from, Math.min(from + blockBytes, bytesRead))
      if (!block.equals(zeros.subarray(0, block.length))) add(found, at + from, block.length)
    }
  }
}

function add(extents: Extent[], at: number, bytes: number): void {
  const last = extents.at(-1)
  if (last !== undefined && last.at + last.bytes === at && last.bytes + bytes <= pieceMaxBytes)
    extents[extents.length - 1] = { at: last.at, bytes: last.bytes + bytes }
  else extents.push({ at, bytes })
}

/** Bytes of the stream. */
export function encodedBytes(extents: readonly Extent[]): number {
  return extents.reduce((sum, { bytes }) => sum + headBytes + bytes, headBytes)
}

export async function* encodeSparse(
  file: FileHandle,
  extents: readonly Extent[],
  fileBytes: number,
): AsyncGenerator<Buffer> {
  for (const { at, bytes } of extents) {
    const piece = Buffer.alloc(bytes)
    let read = 0
    while (read < bytes) {
      const { bytesRead } = await file.read(piece, read, bytes - read, at + read)
      if (bytesRead === 0) break
      read += bytesRead
    }
    yield head(at, bytes)
    yield piece
  }
  yield head(fileBytes, 0)
}

function head(at: number, bytes: number): Buffer {
  const encoded = Buffer.alloc(headBytes)
  encoded.writeBigUInt64BE(BigInt(at), 0)
  encoded.writeBigUInt64BE(BigInt(bytes), 8)
  return encoded
}

/** Writes the stream's content into an empty file of that size. @throws {CaissonError} `invalid_archive` */
export async function decodeSparse(
  pieces: AsyncIterable<Buffer>,
  file: FileHandle,
  fileBytes: number,
): Promise<void> {
  await file.truncate(fileBytes)
  let held: Buffer = Buffer.alloc(0)
  let next = 0
  let left: { at: number; bytes: number } | undefined
  let isOver = false
  for await (const piece of pieces) {
    held = held.length === 0 ? piece : Buffer.concat([held, piece])
    for (;;) {
      if (left === undefined) {
        if (held.length < headBytes) break
        if (isOver) throw bad()
        left = readHead(held, next, fileBytes)
        held = held.subarray(headBytes)
        isOver = left.bytes === 0
        next = left.at + left.bytes
      }
      if (left.bytes === 0) {
        left = undefined
        if (held.length > 0 && isOver) throw bad()
        break
      }
      const now = held.subarray(0, left.bytes)
      if (now.length === 0) break
      await writeWhole(file, now, left.at)
      left = { at: left.at + now.length, bytes: left.bytes - now.length }
      if (left.bytes === 0) left = undefined
      held = held.subarray(now.length)
    }
  }
  if (!isOver || left !== undefined || held.length > 0) throw bad()
}

function readHead(bytes: Buffer, next: number, fileBytes: number): { at: number; bytes: number } {
  const [at, length] = [Number(bytes.readBigUInt64BE(0)), Number(bytes.readBigUInt64BE(8))]
  const isEnd = length === 0
  if (isEnd ? at !== fileBytes : at % blockBytes !== 0 || length > pieceMaxBytes) throw bad()
  if (at < next || at + length > fileBytes) throw bad()
  return { at, bytes: length }
}

const bad = () => invalidArchive('the content of a disk is not in its form')
