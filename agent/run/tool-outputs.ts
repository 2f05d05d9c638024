/**
 * Complete outputs of a run's tools, so that a conversation needs only their head and tail. Bounded in bytes: drops
 * the oldest first, and a later read says so.
 */
import { Buffer } from 'node:buffer'
import type { Result } from '#specs/protocol/error.ts'
import { type OutputPage, type OutputReader, toolFailure } from '../tool-calls/tool.ts'

interface KeptOutputBounds {
  /** Maximum bytes of all outputs. Default 16 MiB. */
  readonly maxBytes?: number
  /** Maximum bytes of one output, cut in its middle. Default 4 MiB. */
  readonly maxBytesEach?: number
}

interface Kept {
  /** As UTF-8: half the memory of a string, and outside V8's heap. */
  readonly bytes: Buffer
  readonly lostBytes: number
}

export class OutputStore implements OutputReader {
  readonly #maxBytes: number
  readonly #maxBytesEach: number
  /** In order of arrival. */
  readonly #kept = new Map<string, Kept>()
  readonly #dropped = new Set<string>()
  #bytes = 0

  constructor({ maxBytes = 16 * 1024 * 1024, maxBytesEach = 4 * 1024 * 1024 }: KeptOutputBounds = {}) {
    this.#maxBytes = maxBytes
    this.#maxBytesEach = Math.min(maxBytes, maxBytesEach)
  }

  /** Bytes that are kept. */
  get bytes(): number {
    return this.#bytes
  }

  /** Whether `read` would find it. */
  has(callId: string): boolean {
    return this.#kept.has(callId)
  }

  /** All that is kept of a call's output. */
  whole(callId: string): string | undefined {
    return this.#kept.get(callId)?.bytes.toString('utf8')
  }

  /** Keeps the output of a call; for a known id the first output stays. */
  keep(callId: string, text: string): void {
    if (this.#kept.has(callId) || this.#dropped.has(callId)) return
    const kept = this.#bound(text)
    this.#kept.set(callId, kept)
    this.#bytes += kept.bytes.length
    for (const [oldest, { bytes }] of this.#kept) {
      if (this.#bytes <= this.#maxBytes) break
      this.#kept.delete(oldest)
      this.#dropped.add(oldest)
      this.#bytes -= bytes.length
    }
  }

  /** A page of at most `limit` characters. Failure: `not_found`, with the reason. */
  read(callId: string, offset: number, limit: number): Result<OutputPage> {
    const kept = this.#kept.get(callId)
    if (kept === undefined) {
      const why = this.#dropped.has(callId)
        ? 'its output is no longer kept, as newer ones took its place; make the call again if you need it'
        : 'no output is kept under this id: short outputs stand whole in the conversation, and ids are those of cut results'
      return toolFailure('not_found', `${JSON.stringify(callId.slice(0, 64))}: ${why}`)
    }
    const text = kept.bytes.toString('utf8')
    const page = text.slice(offset, offset + limit).toWellFormed()
    return {
      ok: true,
      value: { text: page, offset, totalChars: text.length, lostBytes: kept.lostBytes },
    }
  }

  #bound(text: string): Kept {
    // Cut before encoding, so that a far too long text is not copied whole.
    const half = Math.floor(this.#maxBytesEach / 2)
    if (text.length <= half) {
      const bytes = Buffer.from(text)
      if (bytes.length <= this.#maxBytesEach) return { bytes, lostBytes: 0 }
    }
    const total = Buffer.byteLength(text)
    if (total <= this.#maxBytesEach) return { bytes: Buffer.from(text), lostBytes: 0 }
    const head = wholeHead(Buffer.from(text.slice(0, half)), half)
    const tail = wholeTail(Buffer.from(text.slice(-half)), half)
    const lostBytes = total - head.length - tail.length
    const note = Buffer.from(`\n[… ${lostBytes} bytes were never kept …]\n`)
    return { bytes: Buffer.concat([head, note, tail]), lostBytes }
  }
}

/** At most `max` bytes of the beginning, ending with a complete character. */
function wholeHead(bytes: Buffer, max: number): Buffer {
  let end = Math.min(max, bytes.length)
  while (end > 0 && end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--
  return bytes.subarray(0, end)
}

/** At most `max` bytes of the end, beginning with a complete character. */
function wholeTail(bytes: Buffer, max: number): Buffer {
  let start = Math.max(0, bytes.length - max)
  while (start < bytes.length && ((bytes[start] ?? 0) & 0xc0) === 0x80) start++
  return bytes.subarray(start)
}
