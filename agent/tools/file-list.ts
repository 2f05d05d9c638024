/** `list_files`: what is in a directory and below it, nearest first, bounded in depth and number. */
import { lstatSync } from 'node:fs'
import * as z from 'zod'
import type { Directory, EntryKind } from '#specs/node/directory.ts'
import { attempt } from '#specs/node/file-error.ts'
import { comparePaths } from '#specs/node/path-text.ts'
import type { Result } from '#specs/protocol/error.ts'
import { Count } from '#specs/protocol/text.ts'
import { type FileToolsOptions, formatSize, pathArgument, shownPath, withPlace } from './file-access.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from './tool.ts'

const MAX_DEPTH = 10
const MAX_ENTRIES = 2_000
/** Named, but looked into only when they are what is listed: large, and never what is sought. */
const closedDirectories = new Set(['.git', 'node_modules', '__pycache__', '.venv'])

const inputSchema = z.strictObject({
  path: pathArgument.default('.'),
  depth: z.int().min(1).max(MAX_DEPTH).default(3).describe('Levels to list; 1 is the directory alone'),
  limit: z.int().min(1).max(MAX_ENTRIES).default(500).describe('Entries to return at most'),
})

const Listed = z.strictObject({
  /** Relative to the workspace. */
  path: z.string(),
  type: z.enum(['file', 'directory', 'link', 'other']),
  /** Of a file. */
  sizeBytes: Count.optional(),
})
type Listed = z.infer<typeof Listed>

const outputSchema = z.strictObject({
  path: z.string(),
  entries: z.array(Listed),
  /** Whether there is more than was returned, for the limit on entries or on depth. */
  truncated: z.boolean(),
  notes: z.array(z.string()),
})

export function createListFiles(
  options: FileToolsOptions = {},
): Tool<typeof inputSchema, typeof outputSchema> {
  return defineTool({
    name: 'list_files',
    description: `Lists files and directories of the workspace with their sizes, down to a depth. Hidden files are included; ${[...closedDirectories].join(', ')} are named but not entered.`,
    inputSchema,
    outputSchema,
    requiresApproval: false,
    readOnly: true,
    async execute({ path, depth, limit }, { signal }) {
      return await withPlace(options, path, {}, (place) => {
        const stat = place.stat()
        if (!stat.ok) return stat
        if (!stat.value.isDirectory()) {
          return toolFailure('not_a_directory', `"${path}" is not a directory; use read_file for a file.`)
        }
        const opened = place.openDirectory()
        if (!opened.ok) return opened
        using directory = opened.value
        const listing = new Listing(depth, limit, signal)
        const done = attempt(`cannot list ${place}`, () => listing.addAll(directory, place.path))
        if (!done.ok) return done
        return listing.result(shownPath(place))
      })
    },
    render({ path, entries, truncated, notes }) {
      const lines = entries.map((entry) => {
        if (entry.type === 'directory') return `${entry.path}/`
        return entry.type === 'file'
          ? `${entry.path} (${formatSize(entry.sizeBytes ?? 0)})`
          : `${entry.path} (${entry.type})`
      })
      const more = truncated ? ['there is more: list a directory below, or raise depth or limit'] : []
      const head = [`${path}: ${entries.length} entries`, ...more, ...notes].join('; ')
      return [`[${head}]`, ...lines].join('\n')
    },
  })
}

class Listing {
  readonly #entries: Listed[] = []
  readonly #notes: string[] = []
  readonly #depth: number
  readonly #limit: number
  readonly #signal: AbortSignal
  #truncated = false

  constructor(depth: number, limit: number, signal: AbortSignal) {
    this.#depth = depth
    this.#limit = limit
    this.#signal = signal
  }

  /** Level by level, so that a bound cuts what is deepest. */
  addAll(top: Directory, topPath: string): void {
    let level = [{ path: topPath, names: [] as readonly string[] }]
    for (let depth = 1; depth <= this.#depth && level.length > 0; depth++) {
      const next: typeof level = []
      for (const { path, names } of level) {
        if (this.#signal.aborted || this.#truncated) return
        using directory = enter(top, names)
        if (directory === undefined) {
          this.#notes.push(`cannot read ${path}`)
          continue
        }
        for (const name of this.#addOne(directory, path)) {
          next.push({ path: join(path, name), names: [...names, name] })
        }
      }
      level = next
    }
    this.#truncated ||= level.length > 0
  }

  result(path: string): Result<z.infer<typeof outputSchema>> {
    if (this.#signal.aborted) return toolFailure('cancelled', 'Listing was cancelled.')
    const entries = this.#entries.sort((left, right) => comparePaths(left.path, right.path))
    return toolSuccess({ path, entries, truncated: this.#truncated, notes: this.#notes.slice(0, 20) })
  }

  /** Adds what is in one directory; returns the directories to go into. */
  #addOne(directory: Directory, path: string): string[] {
    const below: string[] = []
    const found = directory.list().sort((left, right) => (left.name < right.name ? -1 : 1))
    for (const { name, kind } of found) {
      if (this.#entries.length === this.#limit) {
        this.#truncated = true
        return []
      }
      this.#entries.push(describe(directory, name, join(path, name), kind))
      if (kind === 'directory' && !closedDirectories.has(name)) below.push(name)
    }
    return below
  }
}

function describe(directory: Directory, name: string, path: string, kind: EntryKind): Listed {
  if (kind !== 'file') return { path, type: kind }
  const stat = attempt('', () => lstatSync(directory.at(name)))
  return stat.ok ? { path, type: kind, sizeBytes: stat.value.size } : { path, type: kind }
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

function join(parent: string, name: string): string {
  return parent === '' ? name : `${parent}/${name}`
}
