/**
 * Lists everything below a directory level by level, nearest first, by descriptor: no link is followed, whatever
 * changes meanwhile. Bounded in depth and number; a huge folder is read in part.
 */
import { lstatSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Directory, DirectoryEntry, EntryKind } from '#specs/node/directory.ts'
import { attempt, failure } from '#specs/node/file-error.ts'
import { comparePaths, nameInLine } from '#specs/node/path-text.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'

/** Listed but not entered: large and never relevant. A walk reports those that it met. */
export const closedDirectories: ReadonlySet<string> = new Set([
  '.git',
  'node_modules',
  '__pycache__',
  '.venv',
])

/** Those reported by name. */
const closedMaxCount = 10
const defaultNamesMaxCount = 20_000
const defaultEntriesMaxCount = 200_000

interface WalkOptions {
  /** 1 is the directory alone. */
  readonly maxDepth: number
  /** Whether names that begin with a dot are included. */
  readonly includeHidden: boolean
  readonly signal: AbortSignal
  /** Maximum names per folder; default 20,000. */
  readonly namesMaxCount?: number
  /** Maximum entries of the walk; default 200,000. */
  readonly entriesMaxCount?: number
}

interface WalkedEntry extends DirectoryEntry {
  /** Its directory; open until the next entry is requested. */
  readonly directory: Directory
  /** Path below the root. */
  readonly path: string
}

export class Walk {
  readonly #options: WalkOptions
  readonly #notes: string[] = []
  readonly #closed: string[] = []
  #closedCount = 0
  #hiddenCount = 0
  #visited = 0
  /** Whether a limit on numbers left something out. */
  truncated = false
  /** Whether there are folders below the last level. */
  hasDeeper = false

  constructor(options: WalkOptions) {
    this.#options = options
  }

  /** What could not be read or was left out. */
  get notes(): readonly string[] {
    return [...this.#notes, ...this.#leftOut()]
  }

  #leftOut(): string[] {
    const more = this.#closedCount - this.#closed.length
    const closed = [...this.#closed, ...(more > 0 ? [`${more} more`] : [])].join(', ')
    const names = this.#hiddenCount === 1 ? '1 name that begins' : `${this.#hiddenCount} names that begin`
    return [
      ...(closed === '' ? [] : [`not entered: ${closed}; ask for one by its path to see what it holds`]),
      ...(this.#hiddenCount === 0 ? [] : [`left out: ${names} with a dot`]),
    ]
  }

  /** @param topPath of `top` below the root; empty for the root itself */
  async *entries(top: Directory, topPath: string): AsyncGenerator<WalkedEntry, void> {
    const { maxDepth, entriesMaxCount = defaultEntriesMaxCount } = this.#options
    let level: Folder[] = [{ path: topPath, names: [] }]
    for (let depth = 1; depth <= maxDepth && level.length > 0; depth++) {
      const next: Folder[] = []
      for (const folder of level) {
        // Yields to other work between two folders.
        await nextTurn()
        if (this.#options.signal.aborted) return
        yield* this.#folder(top, folder, next, depth)
        if (this.#visited > entriesMaxCount) return
      }
      level = next
    }
    this.hasDeeper = level.length > 0
  }

  *#folder(
    top: Directory,
    { path, names }: Folder,
    next: Folder[],
    depth: number,
  ): Generator<WalkedEntry, void> {
    const { includeHidden, maxDepth } = this.#options
    const { namesMaxCount = defaultNamesMaxCount, entriesMaxCount = defaultEntriesMaxCount } = this.#options
    using directory = enter(top, names)
    const listed = directory === undefined ? undefined : attempt('', () => directory.listSome(namesMaxCount))
    if (directory === undefined || listed?.ok !== true)
      return this.#note(`cannot read ${nameInLine(path || '.')}`)
    if (!listed.value.isWhole) {
      this.truncated = true
      this.#note(
        `${nameInLine(path || '.')} has more than ${namesMaxCount} entries; some of them are left out`,
      )
    }
    const sorted = listed.value.entries.sort((left, right) => (left.name < right.name ? -1 : 1))
    for (const { name, kind } of sorted) {
      if (!includeHidden && name.startsWith('.')) {
        this.#hiddenCount++
        continue
      }
      if (++this.#visited > entriesMaxCount) {
        this.truncated = true
        return
      }
      const entry = { directory, name, kind, path: path === '' ? name : `${path}/${name}` }
      if (kind === 'directory' && !closedDirectories.has(name))
        next.push({ path: entry.path, names: [...names, name] })
      else if (kind === 'directory' && depth < maxDepth) this.#noteClosed(entry.path)
      yield entry
    }
  }

  #noteClosed(path: string): void {
    this.#closedCount++
    if (this.#closed.length < closedMaxCount) this.#closed.push(nameInLine(path))
  }

  #note(text: string): void {
    if (this.#notes.length < 20) this.#notes.push(text)
  }
}

interface ListOptions extends WalkOptions {
  /** Maximum entries to return. */
  readonly limit: number
  /** Maximum characters of all paths; default: no limit. */
  readonly pathsMaxChars?: number
  /** Whether an entry is returned; default: each. */
  includes?(path: string): boolean
}

/** What lies below a directory. */
interface Listing {
  /** Sorted by path. */
  readonly entries: readonly ListedEntry[]
  /** Whether a limit on numbers left something out. */
  readonly truncated: boolean
  /** Whether there are folders below the last level. */
  readonly hasDeeper: boolean
  /** What could not be read or was left out. */
  readonly notes: readonly string[]
}

/** Lists what lies below `place`; failures: `not_a_directory`, `cancelled`, and those of opening it. */
export async function listBelow(place: Place, options: ListOptions): Promise<Result<Listing>> {
  const stat = place.stat()
  if (!stat.ok) return stat
  if (!stat.value.isDirectory())
    return failure('not_a_directory', `${place} is not a directory; use read_file for a file.`)
  const opened = place.openDirectory()
  if (!opened.ok) return opened
  using directory = opened.value
  const walk = new Walk(options)
  const { limit, pathsMaxChars = Number.POSITIVE_INFINITY, includes = () => true } = options
  const entries: ListedEntry[] = []
  let chars = 0
  for await (const entry of walk.entries(directory, place.path)) {
    if (!includes(entry.path)) continue
    chars += entry.path.length
    if (entries.length === limit || chars > pathsMaxChars) {
      walk.truncated = true
      break
    }
    entries.push(listed(entry))
  }
  if (options.signal.aborted) return failure('cancelled', 'Listing was cancelled.')
  entries.sort((left, right) => comparePaths(left.path, right.path))
  const { truncated, hasDeeper, notes } = walk
  return { ok: true, value: { entries, truncated, hasDeeper, notes } }
}

/** An entry in the form for lists. */
export interface ListedEntry {
  readonly path: string
  readonly type: EntryKind
  /** Size of a file that still exists. */
  readonly sizeBytes?: number
}

function listed({ directory, name, path, kind }: WalkedEntry): ListedEntry {
  if (kind !== 'file') return { path, type: kind }
  const stat = attempt('', () => lstatSync(directory.at(name)))
  return stat.ok ? { path, type: kind, sizeBytes: stat.value.size } : { path, type: kind }
}

interface Folder {
  readonly path: string
  /** Down from the top. */
  readonly names: readonly string[]
}

/** Descends name by name; nothing if one is no longer a directory or is unreadable. */
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
