// The guest's serial console: keeps the last bytes for reports and emits whole lines. All content is untrusted guest
// output, to be escaped before display.

import type { Readable } from 'node:stream'
import { ByteRing } from './byte-ring.ts'

const KEPT_BYTES = 64 * 1024
/** Longer lines are cut, so that a guest without line ends uses no memory. */
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

  /** Total bytes written by the guest; 0 means no output. */
  get totalBytes(): number {
    return this.#ring.totalBytes
  }

  /** The last 64 KiB as text. */
  text(): string {
    return this.#ring.text()
  }

  /** Calls `listener` with every later line (without its end, at most 4 KiB); the returned function removes it. */
  onLine(listener: (line: string) => void): () => void {
    this.#lineListeners.add(listener)
    return () => this.#lineListeners.delete(listener)
  }

  /** Calls `listener` with all later bytes; the returned function removes it. */
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
    const free = MAX_LINE_BYTES - this.#lineBytes
    if (free <= 0 || part.length === 0) return
    const kept = Buffer.from(part.subarray(0, free))
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
