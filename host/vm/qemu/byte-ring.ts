// Keeps the last bytes of an untrusted stream: QEMU's stderr and the guest's console. Never exceeds its capacity; older
// bytes are dropped and counted.

export class ByteRing {
  readonly #capacity: number
  #chunks: Buffer[] = []
  #kept = 0
  #total = 0

  /** @param capacityBytes number of bytes to keep */
  constructor(capacityBytes: number) {
    this.#capacity = capacityBytes
  }

  /** Total number of bytes received, including dropped ones. */
  get totalBytes(): number {
    return this.#total
  }

  push(chunk: Buffer): void {
    this.#total += chunk.length
    // A slice would keep the larger chunk in memory, so copy it.
    this.#chunks.push(Buffer.from(chunk.subarray(Math.max(0, chunk.length - this.#capacity))))
    this.#kept += this.#chunks.at(-1)?.length ?? 0
    // Joining at twice the capacity keeps the cost per byte constant, even for one-byte chunks.
    if (this.#kept > 2 * this.#capacity || this.#chunks.length > 1024) this.#compact()
  }

  /** The kept bytes as text. Marks a truncated first line and replaces invalid UTF-8. */
  text(): string {
    this.#compact()
    const text = this.#chunks[0]?.toString('utf8') ?? ''
    const lost = this.#total - this.#kept
    return lost > 0 ? `[… ${lost} earlier bytes not kept …]${text}` : text
  }

  #compact(): void {
    const all = Buffer.concat(this.#chunks)
    const tail = all.subarray(Math.max(0, all.length - this.#capacity))
    this.#chunks = tail.length === 0 ? [] : [Buffer.from(tail)]
    this.#kept = tail.length
  }
}
