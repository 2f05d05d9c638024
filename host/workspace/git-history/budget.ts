/** Cost limits of examining a git history, and the error when it cannot continue. */
import { readSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'

/** Maximum time before other tasks of the process get a turn, in milliseconds. */
const TURN_MS = 20

export interface HistoryBounds {
  /** Maximum objects read, from the change set and the host. */
  readonly maxObjects: number
  /** Maximum uncompressed bytes of these objects. */
  readonly maxBytes: number
  /** Maximum commits read to find the new ones. */
  readonly maxCommits: number
  /** Maximum paths checked for flags. */
  readonly maxPaths: number
}

const historyBounds: HistoryBounds = {
  maxObjects: 200_000,
  maxBytes: 512 * 1024 * 1024,
  maxCommits: 20_000,
  maxPaths: 50_000,
}

/** The history is damaged, unsupported, or over a limit. The message completes "could not be examined: …". */
export class NotExaminable extends Error {
  override readonly name = 'NotExaminable'
}

export class HistoryBudget {
  readonly #bounds: HistoryBounds
  #objects = 0
  #bytes = 0
  #commits = 0
  #paths = 0
  #turnStart = performance.now()

  constructor(bounds: HistoryBounds = historyBounds) {
    this.#bounds = bounds
  }

  /** @throws {NotExaminable} */
  object(bytes: number): void {
    this.#bytes += bytes
    if (++this.#objects > this.#bounds.maxObjects || this.#bytes > this.#bounds.maxBytes)
      throw new NotExaminable('its objects are too many or too large')
  }

  /** @throws {NotExaminable} */
  commit(): void {
    if (++this.#commits > this.#bounds.maxCommits) throw new NotExaminable('it has too many commits')
  }

  /** @throws {NotExaminable} */
  path(): void {
    if (++this.#paths > this.#bounds.maxPaths) throw new NotExaminable('its commits change too many paths')
  }

  /** Gives other tasks of the process a turn from time to time. */
  async pause(): Promise<void> {
    if (performance.now() - this.#turnStart < TURN_MS) return
    await nextTurn()
    this.#turnStart = performance.now()
  }
}

/** A range of an open file. */
export class ByteRange {
  readonly size: number
  readonly #fd: number
  readonly #offset: number

  constructor(fd: number, offset: number, size: number) {
    this.#fd = fd
    this.#offset = offset
    this.size = size
  }

  /** @throws {NotExaminable} when the range is shorter */
  read(at: number, length: number): Buffer {
    if (at < 0 || length < 0 || at + length > this.size)
      throw new NotExaminable('a file of it ends too early')
    const bytes = Buffer.allocUnsafe(length)
    for (let done = 0; done < length; ) {
      const count = readSync(this.#fd, bytes, done, length - done, this.#offset + at + done)
      if (count === 0) throw new NotExaminable('a file of it ends too early')
      done += count
    }
    return bytes
  }
}
