/**
 * Typed frames of the guest's helper socket, of shells and of the host's control socket: u32 big-endian length, one
 * byte of kind, payload. Enforces the limit; an invalid frame ends the stream.
 */
import { Buffer } from 'node:buffer'

export const frameKinds = {
  /** A message in UTF-8. */
  json: 0x4a,
  /** Bytes to a program or server; an empty payload ends them. */
  stdin: 0x30,
  /** Bytes from it; an empty payload ends them where the protocol distinguishes that end. */
  stdout: 0x31,
  stderr: 0x32,
  /** Columns and rows of a terminal, u16 big-endian each. */
  windowSize: 0x57,
} as const
export type FrameKind = (typeof frameKinds)[keyof typeof frameKinds]

/** Largest length of a frame: its kind and its payload, in bytes. */
export const FRAME_MAX_BYTES = 1024 * 1024

const HEADER_BYTES = 5
const kinds: ReadonlySet<number> = new Set(Object.values(frameKinds))

export interface TypedFrame {
  readonly kind: FrameKind
  readonly payload: Buffer
}

/** Encodes one frame. Throws a RangeError for a payload over the limit: a caller's mistake. */
export function encodeTypedFrame(
  kind: FrameKind,
  payload: Uint8Array,
  maxBytes: number = FRAME_MAX_BYTES,
): Buffer {
  const length = payload.byteLength + 1
  if (length > maxBytes) throw new RangeError(`a frame of ${length} bytes is beyond the bound`)
  const frame = Buffer.allocUnsafe(4 + length)
  frame.writeUInt32BE(length)
  frame[4] = kind
  frame.set(payload, HEADER_BYTES)
  return frame
}

/** The payload of a `windowSize` frame; clamps both numbers to 1 to 65535. */
export function encodeWindowSize(columns: number, rows: number): Buffer {
  const payload = Buffer.allocUnsafe(4)
  const whole = (value: number): number => Math.min(0xffff, Math.max(1, Math.trunc(value) || 1))
  payload.writeUInt16BE(whole(columns), 0)
  payload.writeUInt16BE(whole(rows), 2)
  return payload
}

/** Splits bytes into frames for any chunking; holds less than one frame. */
export class TypedFrameReader {
  readonly #maxBytes: number
  #pieces: Buffer[] = []
  #held = 0
  /** Minimum bytes before there is anything to parse. */
  #needed = HEADER_BYTES

  constructor(maxBytes: number = FRAME_MAX_BYTES) {
    this.#maxBytes = maxBytes
  }

  /** The frames completed by `piece`, or an error message; after an error, do not push again. */
  feed(piece: Buffer): TypedFrame[] | string {
    this.#pieces.push(piece)
    this.#held += piece.length
    if (this.#held < this.#needed) return []
    let rest = this.#pieces.length === 1 ? piece : Buffer.concat(this.#pieces)
    const frames: TypedFrame[] = []
    this.#needed = HEADER_BYTES
    while (rest.length >= HEADER_BYTES) {
      const length = rest.readUInt32BE(0)
      const kind = rest.readUInt8(4)
      if (length < 1 || length > this.#maxBytes)
        return `expected a length of 1 to ${this.#maxBytes}, saw ${length}`
      if (!isKind(kind)) return `expected a known kind of frame, saw ${kind}`
      if (rest.length < 4 + length) {
        this.#needed = 4 + length
        break
      }
      frames.push({ kind, payload: rest.subarray(HEADER_BYTES, 4 + length) })
      rest = rest.subarray(4 + length)
    }
    this.#pieces = rest.length > 0 ? [rest] : []
    this.#held = rest.length
    return frames
  }

  /** Whether the stream may end here. */
  get isBetweenFrames(): boolean {
    return this.#held === 0
  }
}

function isKind(byte: number): byte is FrameKind {
  return kinds.has(byte)
}
