/**
 * The bytes of one session on a port, as a Duplex of their own: it ends with the session while the port lives on.
 * HTTP/2 runs over it on the host.
 */
import { Duplex } from 'node:stream'
import type { Channel } from './channel.ts'

const writeBufferBytes = 256 * 1024
/**
 * Read ahead while nobody takes it. Node's HTTP/2 does not read while a write of its own waits; with two such ends each
 * would wait for the other for ever once what is on its way fills all buffers. So this end has room for all that flow
 * control lets the other send (4 MiB and headers), and the other's writes always end.
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
