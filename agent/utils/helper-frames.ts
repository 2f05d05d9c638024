/**
 * Frames of the helper socket: u32 big-endian length of what follows, one byte of kind, payload. Owns the bound;
 * refuses, for good, whatever is not such a frame.
 */
import { Buffer } from 'node:buffer'

export const helperFrameKinds = { json: 0x4a, stdin: 0x30, stdout: 0x31, stderr: 0x32 } as const
export type HelperFrameKind = (typeof helperFrameKinds)[keyof typeof helperFrameKinds]

/** Largest length of a frame: its kind and its payload, in bytes. */
export const HELPER_FRAME_MAX_BYTES = 1024 * 1024

const HEADER_BYTES = 5
const kinds: ReadonlySet<number> = new Set(Object.values(helperFrameKinds))

export interface HelperFrame {
  readonly kind: HelperFrameKind
  readonly payload: Buffer
}

/** One frame. Throws a RangeError for a payload beyond the bound: a mistake of the caller's. */
export function encodeHelperFrame(kind: HelperFrameKind, payload: Uint8Array): Buffer {
  const length = payload.byteLength + 1
  if (length > HELPER_FRAME_MAX_BYTES) throw new RangeError(`a frame of ${length} bytes is beyond the bound`)
  const frame = Buffer.allocUnsafe(4 + length)
  frame.writeUInt32BE(length)
  frame[4] = kind
  frame.set(payload, HEADER_BYTES)
  return frame
}

/** Cuts bytes into frames, however they arrive; holds less than one frame. */
export class HelperFrameReader {
  #pieces: Buffer[] = []
  #held = 0
  /** What has to be held before there is anything to look at. */
  #needed = HEADER_BYTES

  /** The frames that `piece` completes, or what is wrong with them; after that it is not to be fed again. */
  feed(piece: Buffer): HelperFrame[] | string {
    this.#pieces.push(piece)
    this.#held += piece.length
    if (this.#held < this.#needed) return []
    let rest = this.#pieces.length === 1 ? piece : Buffer.concat(this.#pieces)
    const frames: HelperFrame[] = []
    this.#needed = HEADER_BYTES
    while (rest.length >= HEADER_BYTES) {
      const length = rest.readUInt32BE(0)
      const kind = rest.readUInt8(4)
      if (length < 1 || length > HELPER_FRAME_MAX_BYTES)
        return `expected a length of 1 to ${HELPER_FRAME_MAX_BYTES}, saw ${length}`
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

function isKind(byte: number): byte is HelperFrameKind {
  return kinds.has(byte)
}
