/**
 * Typed frames over one duplex stream, with back-pressure both ways: reads only on request, and `send` waits for
 * buffer space. Owns the stream; a protocol violation by the other side ends it and is thrown once.
 */
import type { Duplex } from 'node:stream'
import { waitForDrain } from './drain.ts'
import { parsePayload } from './frames.ts'
import {
  encodeTypedFrame,
  FRAME_MAX_BYTES,
  type FrameKind,
  frameKinds,
  type TypedFrame,
  TypedFrameReader,
} from './typed-frames.ts'

/** Maximum nesting in a JSON frame. */
const jsonMaxDepth = 32
/** Larger byte pieces are split. */
const chunkBytes = 64 * 1024

/** The other side violated the protocol, or the stream failed midway. */
export class FramedStreamError extends Error {
  override readonly name = 'FramedStreamError'
}

export class FramedStream {
  readonly #stream: Duplex
  readonly #maxBytes: number
  readonly #reader: TypedFrameReader
  readonly #pieces: AsyncIterator<Buffer>
  readonly #frames: TypedFrame[] = []
  /** Resolves when the stream has closed, for whatever reason. */
  readonly closed: Promise<void>

  /** @param stream owned by this object from now on */
  constructor(stream: Duplex, maxBytes: number = FRAME_MAX_BYTES) {
    this.#stream = stream
    this.#maxBytes = maxBytes
    this.#reader = new TypedFrameReader(maxBytes)
    // A plain iterator would destroy the stream when input ends, while output continues.
    this.#pieces = stream.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>
    stream.on('error', () => {})
    this.closed = stream.destroyed
      ? Promise.resolve()
      : new Promise((resolve) => stream.once('close', () => resolve()))
  }

  get isOpen(): boolean {
    return !this.#stream.destroyed && this.#stream.writable
  }

  /**
   * The next frame; null at an end between two frames. @throws {FramedStreamError} after which the stream is
   * destroyed
   */
  async next(): Promise<TypedFrame | null> {
    for (;;) {
      const frame = this.#frames.shift()
      if (frame !== undefined) return frame
      const piece = await this.#read()
      if (piece === null) return null
      const frames = this.#reader.feed(piece)
      if (typeof frames === 'string') throw this.#fail(frames)
      for (const one of frames) this.#frames.push(one)
    }
  }

  async #read(): Promise<Buffer | null> {
    let step: IteratorResult<Buffer>
    try {
      step = await this.#pieces.next()
    } catch (cause) {
      throw this.#fail('the connection broke off', cause)
    }
    if (step.done !== true) return Buffer.from(step.value)
    if (this.#reader.isBetweenFrames) return null
    throw this.#fail('the connection ended in the middle of a frame')
  }

  /** The value of a JSON frame. @throws {FramedStreamError} for anything but plain JSON */
  parseJson(frame: TypedFrame): unknown {
    if (frame.kind !== frameKinds.json)
      throw this.#fail(`expected a message, saw a frame of kind ${frame.kind}`)
    const parsed = parsePayload(frame.payload, jsonMaxDepth)
    if (parsed.ok) return parsed.value
    throw this.#fail(parsed.message)
  }

  /** Sends one frame; resolves when there is buffer space for the next. Frames after the end are dropped. */
  async send(kind: FrameKind, payload: Uint8Array): Promise<void> {
    const stream = this.#stream
    if (this.isOpen && !stream.write(encodeTypedFrame(kind, payload, this.#maxBytes)))
      await waitForDrain(stream)
  }

  /** Sends bytes in frames of a moderate size. */
  async sendBytes(kind: FrameKind, bytes: Uint8Array): Promise<void> {
    for (let start = 0; start < bytes.length; start += chunkBytes)
      await this.send(kind, bytes.subarray(start, start + chunkBytes))
  }

  async sendJson(value: unknown): Promise<void> {
    await this.send(frameKinds.json, Buffer.from(JSON.stringify(value)))
  }

  /** Ends this side after the queued frames. */
  end(): void {
    if (this.isOpen) this.#stream.end()
  }

  /** Aborts: the other side sees an abnormal end, as far as the stream supports it. */
  destroy(message = 'broken off'): void {
    this.#stream.destroy(new Error(message))
  }

  #fail(message: string, cause?: unknown): FramedStreamError {
    const error = new FramedStreamError(message, cause === undefined ? undefined : { cause })
    this.#stream.destroy(error)
    return error
  }
}
