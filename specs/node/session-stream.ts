/**
 * The bytes of one session on a port as a Duplex: it ends with the session while the port remains open. The host runs
 * HTTP/2 over it.
 */
import { Duplex } from 'node:stream'
import type { Channel } from './channel.ts'

const writeBufferBytes = 256 * 1024
/**
 * Read-ahead buffer. Node's HTTP/2 does not read while its own write is pending; two such ends would deadlock once
 * all buffers are full. This side can buffer everything that flow control lets the other send (4 MiB and headers), so
 * the other's writes always finish.
 */
const readAheadBytes = 8 * 1024 * 1024

export class SessionStream extends Duplex {
  readonly #channel: Channel
  readonly #detach: () => void

  /** Attaches to `channel` at once, so that no byte after the preamble is missed. */
  constructor(channel: Channel) {
    super({
      allowHalfOpen: false,
      readableHighWaterMark: readAheadBytes,
      writableHighWaterMark: writeBufferBytes,
    })
    this.#channel = channel
    this.#detach = channel.attach((chunk) => {
      if (!this.push(chunk)) channel.setPaused(true)
    })
    // HTTP/2 reports its own session error; without a listener here it would also end the process.
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
