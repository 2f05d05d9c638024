/** An answer that holds for a directory and for all below it. Looked for once per directory, however much lies in it. */

export class Inherited<T> {
  readonly #own: (directory: string) => T | undefined
  readonly #known = new Map<string, T | undefined>()

  /** @param own the answer of a directory itself, which must not change once something below it was asked for */
  constructor(own: (directory: string) => T | undefined) {
    this.#own = own
  }

  /** The answer of the nearest directory above a path that has one. */
  above(path: string): T | undefined {
    const end = path.lastIndexOf('/')
    if (end < 0) return
    const directory = path.slice(0, end)
    if (this.#known.has(directory)) return this.#known.get(directory)
    const answer = this.#own(directory) ?? this.above(directory)
    this.#known.set(directory, answer)
    return answer
  }
}
