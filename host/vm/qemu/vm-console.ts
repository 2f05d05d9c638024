// The guest's serial console as the host keeps it: the last bytes for reports, whole lines for whoever waits for one.
// Everything in it was written by the guest: a claim to be shown escaped, never trusted.

import type { Readable } from 'node:stream'
import { ByteRing } from './byte-ring.ts'

const KEPT_BYTES = 64 * 1024
/** A longer line is cut here, so that a guest that never ends its line costs nothing. */
const MAX_LINE_BYTES = 4096

export class VmConsole {
  readonly #ring = new ByteRing(KEPT_BYTES)
  readonly #lineListeners = new Set<(line: string) => void>()
  readonly #dataListeners = new Set<(chunk: Buffer) => void>()
  #line: Buffer[] = []
  #lineBytes = 0

  constructor(stream: Readable) {
    stream.on('data', (chunk: Buffer) => this.#receive(chunk))
  }

  /** All bytes the guest ever wrote; 0 says that it is silent. */
  get totalBytes(): number {
    return this.#ring.totalBytes
  }

  /** The last 64 KiB as text. */
  text(): string {
    return this.#ring.text()
  }

  /** Calls `listener` with every line from now on (without its end, at most 4 KiB); the result ends that. */
  onLine(listener: (line: string) => void): () => void {
    this.#lineListeners.add(listener)
    return () => this.#lineListeners.delete(listener)
  }

  /** Calls `listener` with all bytes as they come from now on; the result ends that. */
  onData(listener: (chunk: Buffer) => void): () => void {
    this.#dataListeners.add(listener)
    return () => this.#dataListeners.delete(listener)
  }

  #receive(chunk: Buffer): void {
    this.#ring.push(chunk)
    for (const listener of this.#dataListeners) listener(chunk)
    let start = 0
    for (let end = chunk.indexOf(0x0a); end !== -1; end = chunk.indexOf(0x0a, start)) {
      this.#extendLine(chunk.subarray(start, end))
      this.#endLine()
      start = end + 1
    }
    this.#extendLine(chunk.subarray(start))
  }

  #extendLine(part: Buffer): void {
    const room = MAX_LINE_BYTES - this.#lineBytes
    if (room <= 0 || part.length === 0) return
    const kept = Buffer.from(part.subarray(0, room))
    this.#line.push(kept)
    this.#lineBytes += kept.length
  }

  #endLine(): void {
    const line = Buffer.concat(this.#line).toString('utf8').replace(/\r+$/, '')
    this.#line = []
    this.#lineBytes = 0
    for (const listener of this.#lineListeners) listener(line)
  }
}
