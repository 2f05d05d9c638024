/** The files of an index as they were read, and the store rows of their passages. Knows nothing of text. */
import type { Passage } from './passages.ts'
import type { FileState } from './read-file.ts'
import type { SearchLeftOut } from './walk.ts'

export interface IndexedFile {
  readonly path: string
  readonly state: FileState
  /** Whether it may have changed again without a visible sign. */
  readonly isFresh: boolean
  /** Row of its first passage; the others follow. */
  readonly firstRow: number
  /** First and last line of each passage. */
  readonly lines: Uint32Array
  /** Why the file is not searched. */
  readonly leftOut?: SearchLeftOut
  /** The last update that saw it. */
  seenIn: number
}

interface Hit {
  readonly file: IndexedFile
  readonly passage: Passage
}

interface HitBounds {
  /** A file or folder below the root; empty: all. */
  readonly path: string
  readonly limit: number
  /** Maximum passages of one file. */
  readonly perFile: number
}

/** Rows reserved per file: its maximum number of passages. */
const rowsPerFile = 65_536

export class IndexedFiles {
  readonly #byPath = new Map<string, IndexedFile>()
  readonly #byNumber = new Map<number, IndexedFile>()
  #nextNumber = 0

  get count(): number {
    return this.#byPath.size
  }

  get(path: string): IndexedFile | undefined {
    return this.#byPath.get(path)
  }

  [Symbol.iterator](): Iterator<IndexedFile> {
    return this.#byPath.values()
  }

  /** Assigns rows to a file. @param passages extra ones beyond the file's rows are ignored */
  add(file: Omit<IndexedFile, 'firstRow' | 'lines'>, passages: readonly Passage[]): IndexedFile {
    const number = this.#nextNumber++
    const taken = passages.slice(0, rowsPerFile)
    const added: IndexedFile = {
      ...file,
      firstRow: number * rowsPerFile,
      lines: Uint32Array.from(taken.flatMap(({ firstLine, lastLine }) => [firstLine, lastLine])),
    }
    this.#byPath.set(file.path, added)
    this.#byNumber.set(number, added)
    return added
  }

  remove(file: IndexedFile): void {
    this.#byPath.delete(file.path)
    this.#byNumber.delete(file.firstRow / rowsPerFile)
  }

  /** All rows, in the order in which files were taken. */
  *rows(): Iterable<number> {
    for (const file of this) yield* rowsOf(file)
  }

  /** What is at the first of `rows` that are within `bounds`. */
  hitsAt(rows: Iterable<number>, { path, limit, perFile }: HitBounds): Hit[] {
    const counts = new Map<IndexedFile, number>()
    const hits: Hit[] = []
    for (const row of rows) {
      const file = this.#byNumber.get(Math.floor(row / rowsPerFile))
      if (file === undefined || !isBelow(file.path, path)) continue
      const count = counts.get(file) ?? 0
      if (count === perFile) continue
      counts.set(file, count + 1)
      const at = (row % rowsPerFile) * 2
      hits.push({ file, passage: { firstLine: file.lines[at] ?? 1, lastLine: file.lines[at + 1] ?? 1 } })
      if (hits.length === limit) break
    }
    return hits
  }
}

/** The rows of one file. */
export function* rowsOf({ firstRow, lines }: IndexedFile): Iterable<number> {
  for (let index = 0; index < lines.length / 2; index++) yield firstRow + index
}

function isBelow(path: string, folder: string): boolean {
  return folder === '' || path === folder || path.startsWith(`${folder}/`)
}
