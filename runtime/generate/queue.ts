/** A queue between one writer and one reader, which ends when the writer says so. */
export class Queue<T> implements AsyncIterable<T> {
  #waiting: T[] = []
  #wake: () => void = () => undefined
  #ended = false
  hasAny = false

  add(item: T): void {
    this.hasAny = true
    this.#waiting.push(item)
    this.#wake()
  }

  end(): void {
    this.#ended = true
    this.#wake()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void> {
    for (;;) {
      const ready = this.#waiting
      this.#waiting = []
      yield* ready
      if (this.#waiting.length > 0) continue
      if (this.#ended) return
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }
}
