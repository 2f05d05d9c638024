/**
 * The bytes of one session on a port, as a Duplex of their own: it ends with the session while the port lives on.
 * HTTP/2 runs over it on both sides.
 */
import { Duplex } from 'node:stream'
import type { Channel } from './channel.ts'

const bufferBytes = 256 * 1024

export class SessionStream extends Duplex {
  readonly #channel: Channel
  readonly #detach: () => void

  /** Attaches to `channel` at once, so that no byte after the preamble is missed. */
  constructor(channel: Channel) {
    super({
      allowHalfOpen: false,
      readableHighWaterMark: bufferBytes,
      writableHighWaterMark: bufferBytes,
    })
    this.#channel = channel
    this.#detach = channel.attach((chunk) => {
      if (!this.push(chunk)) channel.setPaused(true)
    })
    // HTTP/2 reports the error of its own session; without a listener here it would end the process as well.
    this.on('error', () => {})
  }

  override _read(): void {
    if (!this.destroyed) this.#channel.setPaused(false)
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#channel.write(chunk, (error) => callback(error))
  }

  override _writev(
    chunks: Array<{ chunk: Buffer; encoding: BufferEncoding }>,
    callback: (error?: Error | null) => void,
  ): void {
    this.#channel.write(Buffer.concat(chunks.map((entry) => entry.chunk)), (error) => callback(error))
  }

  override _final(callback: (error?: Error | null) => void): void {
    callback()
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#detach()
    callback(error)
  }
}
