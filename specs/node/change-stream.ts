/**
 * Decodes a change set from bytes (format: specs/protocol/change.ts; encoder: change-encoder.ts). The bytes are
 * hostile. Refuses frames over a limit, paths out of order, duplicates, alternative spellings, truncation, trailing
 * bytes, and wrong counts.
 */

import { ChangeEntry } from '#specs/protocol/change.ts'
import { limits } from '#specs/protocol/limits.ts'
import { describeIssues, plainMessages } from '../protocol/issue-text.ts'
import type { PathChange } from './change-encoder.ts'
import { comparePaths, isPathText } from './path-text.ts'

export interface ChangeBounds {
  readonly maxEntries: number
  readonly maxContentBytes: number
  /** Maximum bytes of all headers, which the receiver keeps in memory; absent: 256 MiB. */
  readonly maxHeaderBytes?: number
}

/** Half a KiB per entry at the maximum number; longer paths and targets would exhaust the host's memory. */
const MAX_HEADER_BYTES = 256 * 1024 * 1024

const defaultBounds: ChangeBounds = {
  maxEntries: limits.changeMaxEntries,
  maxContentBytes: limits.changeMaxContentBytes,
}

/** The stream is not a change set; the message names the entry and the reason. */
export class ChangeStreamError extends Error {
  override readonly name = 'ChangeStreamError'
}

/** A decoded entry. */
export interface DecodedChange {
  readonly entry: PathChange
  /** Content of a `file`, exactly `size` bytes; empty for other entries. Unread content is skipped. */
  readonly content: AsyncIterable<Buffer>
}

/**
 * Yields the entries of a change set in order. Throws {@link ChangeStreamError} for an invalid stream, and rethrows
 * errors of the source. Returns normally only for a complete stream.
 */
export async function* decodeChanges(
  source: AsyncIterable<Uint8Array>,
  bounds: ChangeBounds = defaultBounds,
): AsyncGenerator<DecodedChange, void, undefined> {
  const reader = new ChunkReader(source)
  const order = new OrderCheck(bounds)
  try {
    for (;;) {
      const header = await reader.frame()
      order.header(header.length)
      const entry = parseHeader(header, order.entries)
      if (entry.kind === 'end') {
        order.end(entry)
        if (await reader.hasMore()) throw new ChangeStreamError('bytes follow the end of the change set')
        return
      }
      order.next(entry)
      const content = new Content(reader, entry.kind === 'file' ? entry.size : 0, entry.path)
      yield { entry, content }
      await content.skip()
    }
  } finally {
    await reader.close()
  }
}

/** Constraints between entries. */
class OrderCheck {
  readonly #bounds: ChangeBounds
  #lastPath: string | undefined
  #contentBytes = 0
  #headerBytes = 0
  entries = 0

  constructor(bounds: ChangeBounds) {
    this.#bounds = bounds
  }

  header(bytes: number): void {
    this.#headerBytes += bytes
    const most = this.#bounds.maxHeaderBytes ?? MAX_HEADER_BYTES
    if (this.#headerBytes > most)
      throw new ChangeStreamError(`the change set has more than ${most} bytes of paths and other headers`)
  }

  next(entry: PathChange): void {
    const at = `entry ${this.entries}`
    if (!isPathText(entry.path)) throw new ChangeStreamError(`${at}: the path is not the text of any bytes`)
    if (namesIn(entry.path) > limits.changeMaxDepth + 1)
      throw new ChangeStreamError(`${at}: it lies more than ${limits.changeMaxDepth} directories deep`)
    if (entry.kind === 'link' && (!isPathText(entry.target) || entry.target.includes('\0'))) {
      throw new ChangeStreamError(`${at}: the link's target is not the text of any bytes`)
    }
    if (this.#lastPath !== undefined && comparePaths(this.#lastPath, entry.path) >= 0) {
      throw new ChangeStreamError(`${at}: its path is doubled or out of order`)
    }
    this.#lastPath = entry.path
    if (++this.entries > this.#bounds.maxEntries) {
      throw new ChangeStreamError(`the change set has more than ${this.#bounds.maxEntries} entries`)
    }
    if (entry.kind === 'file') this.#contentBytes += entry.size
    if (this.#contentBytes > this.#bounds.maxContentBytes) {
      throw new ChangeStreamError(
        `the change set has more than ${this.#bounds.maxContentBytes} bytes of content`,
      )
    }
  }

  end(end: Extract<ChangeEntry, { kind: 'end' }>): void {
    if (end.entries === this.entries && end.contentBytes === this.#contentBytes) return
    throw new ChangeStreamError(
      `the end names ${end.entries} entries and ${end.contentBytes} bytes, but ${this.entries} and ${this.#contentBytes} came`,
    )
  }
}

function namesIn(path: string): number {
  let count = 1
  for (let at = path.indexOf('/'); at >= 0; at = path.indexOf('/', at + 1)) count++
  return count
}

/** The content of one entry, readable once. */
class Content implements AsyncIterable<Buffer> {
  readonly #reader: ChunkReader
  readonly #path: string
  #left: number

  constructor(reader: ChunkReader, size: number, path: string) {
    this.#reader = reader
    this.#left = size
    this.#path = path
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    while (this.#left > 0) {
      const piece = await this.#reader.take(this.#left)
      if (piece === undefined) {
        throw new ChangeStreamError(`the stream ended ${this.#left} bytes before the end of "${this.#path}"`)
      }
      this.#left -= piece.length
      yield piece
    }
  }

  async skip(): Promise<void> {
    for await (const _ of this);
  }
}

/** Extracts frames and pieces from chunks of any size; holds one chunk or one header at a time. */
class ChunkReader {
  readonly #source: AsyncIterator<Uint8Array>
  #chunk: Buffer = Buffer.alloc(0)

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]()
  }

  /** A piece of 1 to `maxBytes` bytes, or nothing at the end. */
  async take(maxBytes: number): Promise<Buffer | undefined> {
    if (this.#chunk.length === 0 && !(await this.#fill())) return undefined
    const piece = this.#chunk.subarray(0, maxBytes)
    this.#chunk = this.#chunk.subarray(piece.length)
    return piece
  }

  /** The payload of the next length-prefixed frame. */
  async frame(): Promise<Buffer> {
    const length = (await this.#exactly(4)).readUInt32BE(0)
    if (length > limits.changeHeaderMaxBytes) {
      throw new ChangeStreamError(
        `a header of ${length} bytes; at most ${limits.changeHeaderMaxBytes} are allowed`,
      )
    }
    return this.#exactly(length)
  }

  async hasMore(): Promise<boolean> {
    return this.#chunk.length > 0 || (await this.#fill())
  }

  async close(): Promise<void> {
    await this.#source.return?.()
  }

  async #exactly(length: number): Promise<Buffer> {
    if (this.#chunk.length >= length) return (await this.take(length)) ?? Buffer.alloc(0)
    const whole = Buffer.alloc(length)
    let filled = 0
    while (filled < length) {
      const piece = await this.take(length - filled)
      if (piece === undefined) throw new ChangeStreamError('the stream was cut before its end')
      piece.copy(whole, filled)
      filled += piece.length
    }
    return whole
  }

  async #fill(): Promise<boolean> {
    for (;;) {
      const next = await this.#source.next()
      if (next.done) return false
      const bytes = next.value
      if (bytes.length === 0) continue
      this.#chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
      return true
    }
  }
}

function parseHeader(payload: Buffer, index: number): ChangeEntry {
  let value: unknown
  try {
    value = JSON.parse(payload.toString('utf8'))
  } catch {
    throw new ChangeStreamError(`entry ${index}: its header is not JSON`)
  }
  const parsed = ChangeEntry.safeParse(value, plainMessages)
  if (parsed.success) return parsed.data
  throw new ChangeStreamError(
    `entry ${index}: ${describeIssues(parsed.error, { root: 'its header', max: 1 })}`,
  )
}
