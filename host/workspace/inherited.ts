/** A value that applies to a directory and everything below it. Computed once per directory. */

export class Inherited<T> {
  readonly #own: (directory: string) => T | undefined
  readonly #known = new Map<string, T | undefined>()

  /** @param own the value of a directory itself; it must not change after the first lookup below it */
  constructor(own: (directory: string) => T | undefined) {
    this.#own = own
  }

  /** The value of the nearest parent directory that has one. */
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
