// The last bytes of a stream nobody may make us keep in full: QEMU's stderr and the guest's console.
// It refuses to grow: whatever is older than the capacity is forgotten and counted.

export class ByteRing {
  readonly #capacity: number
  #chunks: Buffer[] = []
  #kept = 0
  #total = 0

  /** @param capacityBytes how many of the last bytes are kept */
  constructor(capacityBytes: number) {
    this.#capacity = capacityBytes
  }

  /** All bytes that ever came, kept or not. */
  get totalBytes(): number {
    return this.#total
  }

  push(chunk: Buffer): void {
    this.#total += chunk.length
    // A slice of a larger chunk would pin that chunk, so what is kept is copied.
    this.#chunks.push(Buffer.from(chunk.subarray(Math.max(0, chunk.length - this.#capacity))))
    this.#kept += this.#chunks.at(-1)?.length ?? 0
    // Joining at twice the capacity keeps the cost per byte constant, also for one-byte chunks.
    if (this.#kept > 2 * this.#capacity || this.#chunks.length > 1024) this.#compact()
  }

  /** The kept bytes as text; a line start cut by the limit is marked, invalid UTF-8 is replaced. */
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
