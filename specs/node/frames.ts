/**
 * Frames of the control port: a u32 big-endian length, four bytes of check, then the payload, JSON in UTF-8. The check
 * covers the payload and the frame's number, so a byte or frame that is lost, doubled or changed ends the session.
 * Enforces the limits; never skips or repairs anything.
 */
import { isUtf8 } from 'node:buffer'
import { crc32 } from 'node:zlib'
import { limits } from '#specs/protocol/limits.ts'

/** Why a stream of frames ended; `session_replaced` means that the other side has started a new session. */
export type FrameFault =
  | 'session_replaced'
  | 'empty_frame'
  | 'too_long'
  | 'bad_check'
  | 'bad_utf8'
  | 'bad_json'
  | 'too_deep'
  | 'forbidden_key'

export interface FrameEnd {
  fault: FrameFault
  /** For people: what was expected and what was seen. */
  message: string
  /** The bytes in which to search for the next session's preamble. */
  unread: Buffer
}

export interface FrameBounds {
  /** Maximum payload of a frame, in bytes; below 2^24. */
  maxBytes: number
  /** Maximum nesting of arrays and objects. */
  maxDepth: number
}

const defaultBounds: FrameBounds = { maxBytes: limits.frameMaxBytes, maxDepth: limits.jsonMaxDepth }
const lengthBytes = 4
const headerBytes = 8
/** Never part of UTF-8, of a check, and never the first byte of a length: it marks the start of a preamble. */
const preambleByte = 0xff

/**
 * Splits a byte stream into JSON values. Push-driven, linear in the number of bytes for any chunking; holds at most
 * one frame. Ignores input after `onEnd`.
 */
export class FrameDecoder {
  readonly #onMessage: (value: unknown, bytes: number) => void
  readonly #onEnd: (end: FrameEnd) => void
  readonly #bounds: FrameBounds
  readonly #header = Buffer.alloc(headerBytes)
  #headerFill = 0
  #payload: Buffer | null = null
  #payloadFill = 0
  /** Complete frames so far. */
  #count = 0
  #ended = false

  constructor(
    onMessage: (value: unknown, bytes: number) => void,
    onEnd: (end: FrameEnd) => void,
    bounds: FrameBounds = defaultBounds,
  ) {
    this.#onMessage = onMessage
    this.#onEnd = onEnd
    this.#bounds = bounds
  }

  /** Whether a frame is incomplete. */
  get partial(): boolean {
    return this.#headerFill > 0
  }

  /** Takes the next bytes; calls back synchronously. */
  push(chunk: Buffer): void {
    let offset = 0
    while (offset < chunk.length && !this.#ended) {
      offset =
        this.#headerFill < headerBytes ? this.#takeHeader(chunk, offset) : this.#takePayload(chunk, offset)
    }
  }

  /** Stops: no further values, and `onEnd` is not called. */
  stop(): void {
    this.#ended = true
    this.#payload = null
  }

  #takeHeader(chunk: Buffer, offset: number): number {
    let next = offset
    while (this.#headerFill < headerBytes && next < chunk.length) {
      const byte = chunk[next] ?? 0
      if (byte === preambleByte && (this.#headerFill === 0 || this.#headerFill >= lengthBytes)) {
        const message = 'a preamble came where a frame was expected'
        return this.#end('session_replaced', message, this.#unreadFrom(chunk, next))
      }
      this.#header[this.#headerFill++] = byte
      next++
      const problem = this.#headerFill === lengthBytes ? this.#checkLength() : null
      if (problem !== null) return this.#end(problem.fault, problem.message, this.#unreadFrom(chunk, next))
    }
    return next
  }

  #checkLength(): { fault: FrameFault; message: string } | null {
    const length = this.#header.readUInt32BE(0)
    const { maxBytes } = this.#bounds
    if (length === 0) return { fault: 'empty_frame', message: 'a frame of length 0 came' }
    if (length <= maxBytes) return null
    return {
      fault: 'too_long',
      message: `a frame of ${length} bytes was announced, at most ${maxBytes} are allowed`,
    }
  }

  #takePayload(chunk: Buffer, offset: number): number {
    const length = this.#header.readUInt32BE(0)
    const wanted = length - this.#payloadFill
    const piece = chunk.subarray(offset, offset + wanted)
    const preambleAt = piece.indexOf(preambleByte)
    if (preambleAt !== -1) {
      const atStart = this.#payloadFill + preambleAt === 0
      const unread = atStart
        ? this.#unreadFrom(chunk, offset + preambleAt)
        : chunk.subarray(offset + preambleAt)
      return this.#end('session_replaced', 'a preamble came in the middle of a frame', unread)
    }
    if (piece.length === length) {
      this.#deliver(piece, chunk.subarray(offset + piece.length))
    } else {
      this.#payload ??= Buffer.allocUnsafe(length)
      piece.copy(this.#payload, this.#payloadFill)
      this.#payloadFill += piece.length
      if (this.#payloadFill === length) {
        this.#deliver(this.#payload, chunk.subarray(offset + piece.length))
      }
    }
    return offset + piece.length
  }

  #deliver(payload: Buffer, rest: Buffer): void {
    this.#headerFill = 0
    this.#payload = null
    this.#payloadFill = 0
    if (checkOf(payload, this.#count++) !== this.#header.readUInt32BE(lengthBytes)) {
      const message = `frame ${this.#count} is not as it was sent, or is not the next one`
      this.#end('bad_check', message, rest)
      return
    }
    const parsed = parsePayload(payload, this.#bounds.maxDepth)
    if (parsed.ok) this.#onMessage(parsed.value, payload.length)
    else this.#end(parsed.fault, parsed.message, rest)
  }

  /** A preamble may begin inside an apparent length. */
  #unreadFrom(chunk: Buffer, offset: number): Buffer {
    return Buffer.concat([this.#header.subarray(0, this.#headerFill), chunk.subarray(offset)])
  }

  #end(fault: FrameFault, message: string, unread: Buffer): number {
    this.#ended = true
    this.#payload = null
    this.#onEnd({ fault, message, unread })
    return Number.POSITIVE_INFINITY
  }
}

type Parsed = { ok: true; value: unknown } | { ok: false; fault: FrameFault; message: string }

/** The JSON value of one payload, or an error message. */
export function parsePayload(payload: Buffer, maxDepth: number): Parsed {
  if (!isUtf8(payload)) return { ok: false, fault: 'bad_utf8', message: 'a frame is not UTF-8' }
  if (exceedsDepth(payload, maxDepth)) {
    return {
      ok: false,
      fault: 'too_deep',
      message: `a frame nests deeper than the ${maxDepth} levels allowed`,
    }
  }
  const text = payload.toString('utf8')
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return { ok: false, fault: 'bad_json', message: 'a frame is not JSON' }
  }
  // The key may be escaped; the full check runs only when escapes are present.
  if ((text.includes('proto') || text.includes('\\u')) && hasPrototypeKey(value)) {
    return { ok: false, fault: 'forbidden_key', message: 'an object in a frame has the key __proto__' }
  }
  return { ok: true, value }
}

const quote = 0x22
const backslash = 0x5c

/** Counts brackets outside strings, before parsing. */
function exceedsDepth(payload: Buffer, maxDepth: number): boolean {
  let depth = 0
  let inString = false
  for (let index = 0; index < payload.length; index++) {
    const byte = payload[index]
    if (inString) {
      if (byte === backslash) index++
      else if (byte === quote) inString = false
    } else if (byte === quote) inString = true
    else if (byte === 0x7b || byte === 0x5b) {
      if (++depth > maxDepth) return true
    } else if (byte === 0x7d || byte === 0x5d) depth--
  }
  return false
}

function hasPrototypeKey(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some(hasPrototypeKey)
  return Object.hasOwn(value, '__proto__') || Object.values(value).some(hasPrototypeKey)
}

/** A message too large for a frame; nothing of it was written. */
export class FrameTooLongError extends Error {
  override name = 'FrameTooLongError'
  readonly bytes: number
  constructor(bytes: number, maxBytes: number) {
    super(`the message has ${bytes} bytes, a frame holds at most ${maxBytes}`)
    this.bytes = bytes
  }
}

/** Four bytes of seven bits each. */
function checkOf(payload: Buffer, count: number): number {
  const sum = crc32(payload, count)
  return ((sum & 0xfe00000) << 3) | ((sum & 0x1fc000) << 2) | ((sum & 0x3f80) << 1) | (sum & 0x7f)
}

/**
 * One frame with the JSON of `value`. Throws {@link FrameTooLongError}.
 * @param count number of frames before it in this session and direction
 */
export function encodeFrame(value: unknown, count: number, maxBytes: number = limits.frameMaxBytes): Buffer {
  const text = JSON.stringify(value)
  const length = Buffer.byteLength(text)
  if (length > maxBytes) throw new FrameTooLongError(length, maxBytes)
  return encodePayload(Buffer.from(text), count)
}

/** One frame with these bytes, whatever they are. */
export function encodePayload(payload: Buffer, count: number): Buffer {
  const header = Buffer.allocUnsafe(headerBytes)
  header.writeUInt32BE(payload.length, 0)
  header.writeUInt32BE(checkOf(payload, count), lengthBytes)
  return Buffer.concat([header, payload])
}
