/**
 * What lies below a directory, level by level and so nearest first, by descriptor: no link is followed, whatever changes
 * meanwhile. Bounded in depth and number; a folder of millions is read in part.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Directory, DirectoryEntry } from '#specs/node/directory.ts'
import { attempt } from '#specs/node/file-error.ts'

/** Named, but not entered: large, and never what is sought. */
export const closedDirectories: ReadonlySet<string> = new Set([
  '.git',
  'node_modules',
  '__pycache__',
  '.venv',
])

/** Names of one folder that are read. */
const namesMaxCount = 20_000
const visitedMaxCount = 200_000

export interface WalkOptions {
  /** 1 is the directory alone. */
  readonly maxDepth: number
  /** Whether names that begin with a dot are among them. */
  readonly includeHidden: boolean
  readonly signal: AbortSignal
}

export interface WalkedEntry extends DirectoryEntry {
  /** Where the name lies; open until the next entry is asked for. */
  readonly directory: Directory
  /** Below the root. */
  readonly path: string
}

export class Walk {
  readonly #options: WalkOptions
  readonly #notes: string[] = []
  #visited = 0
  /** Whether there was more than a bound let through, the depth's but for a depth of 1. */
  truncated = false

  constructor(options: WalkOptions) {
    this.#options = options
  }

  /** What could not be read. */
  get notes(): readonly string[] {
    return this.#notes
  }

  /** @param topPath of `top` below the root; empty for the root itself */
  async *entries(top: Directory, topPath: string): AsyncGenerator<WalkedEntry, void> {
    const { maxDepth } = this.#options
    let level: Folder[] = [{ path: topPath, names: [] }]
    for (let depth = 1; depth <= maxDepth && level.length > 0; depth++) {
      const next: Folder[] = []
      for (const folder of level) {
        // Other work of the process has its turn between two folders.
        await nextTurn()
        if (this.#options.signal.aborted) return
        yield* this.#folder(top, folder, next)
        if (this.#visited >= visitedMaxCount) return
      }
      level = next
    }
    this.truncated ||= maxDepth > 1 && level.length > 0
  }

  *#folder(top: Directory, { path, names }: Folder, next: Folder[]): Generator<WalkedEntry, void> {
    using directory = enter(top, names)
    const listed = directory === undefined ? undefined : attempt('', () => directory.listSome(namesMaxCount))
    if (directory === undefined || listed?.ok !== true) return this.#note(`cannot read ${path || '.'}`)
    if (!listed.value.isWhole) {
      this.truncated = true
      this.#note(`${path || '.'} has more than ${namesMaxCount} entries; some of them are left out`)
    }
    const sorted = listed.value.entries.sort((left, right) => (left.name < right.name ? -1 : 1))
    for (const { name, kind } of sorted) {
      if (!this.#options.includeHidden && name.startsWith('.')) continue
      if (++this.#visited > visitedMaxCount) {
        this.truncated = true
        return
      }
      const entry = { directory, name, kind, path: path === '' ? name : `${path}/${name}` }
      if (kind === 'directory' && !closedDirectories.has(name))
        next.push({ path: entry.path, names: [...names, name] })
      yield entry
    }
  }

  #note(text: string): void {
    if (this.#notes.length < 20) this.#notes.push(text)
  }
}

interface Folder {
  readonly path: string
  /** Down from the top. */
  readonly names: readonly string[]
}

/** Goes down name by name; nothing if one of them is no directory any more or cannot be read. */
function enter(top: Directory, names: readonly string[]): Directory | undefined {
  let at = top.reopen()
  for (const name of names) {
    const from = at
    const next = attempt('', () => from.open(name))
    from[Symbol.dispose]()
    if (!next.ok) return undefined
    at = next.value
  }
  return at
}
