/**
 * Walks a workspace for files to index: by descriptor, without following links, opening only directories. Counts what
 * it leaves out by reason, so that a search can report it. Not the walk of `list_files`: that one goes level by level
 * and lists names, this one goes folder by folder and takes each file while its folder is open.
 */
import { lstatSync, type Stats } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Directory } from '#specs/node/directory.ts'
import { attempt } from '#specs/node/file-error.ts'

/** Why a file or folder is not searched, as shown in a result. */
export const leftOutReasons = {
  folder: 'folders of packages, caches and version control',
  generated: 'lock files and other generated files',
  large: 'files that are too large',
  binary: 'binary files',
  encoding: 'files that are not UTF-8',
  special: 'links, devices, FIFOs and sockets',
  unreadable: 'files and folders that could not be read',
  deep: 'folders that lie too deep',
  room: 'files for which the index had no room',
  late: 'files for which there was no time yet, so search again',
} as const
export type SearchLeftOut = keyof typeof leftOutReasons

/** Never entered: large, and rarely relevant. */
const closedFolders: ReadonlySet<string> = new Set([
  '.git',
  '.hg',
  '.svn',
  'node_modules',
  '__pycache__',
  '.venv',
])
const lockFiles: ReadonlySet<string> = new Set([
  'package-lock.json',
  'npm-shrinkwrap.json',
  'yarn.lock',
  'pnpm-lock.yaml',
  'bun.lock',
  'bun.lockb',
  'deno.lock',
  'Cargo.lock',
  'poetry.lock',
  'uv.lock',
  'pdm.lock',
  'Pipfile.lock',
  'Gemfile.lock',
  'composer.lock',
  'mix.lock',
  'pubspec.lock',
  'flake.lock',
  'go.sum',
])
const generatedNames = /\.min\.(?:js|mjs|css)$|\.(?:js|css|mjs|cjs)\.map$/

/** Maximum folder depth. */
const maxDepth = 64
/** Maximum number of names of any kind. */
const maxEntries = 400_000

export interface FoundFile {
  readonly directory: Directory
  readonly name: string
  /** Path below the workspace's root. */
  readonly path: string
  readonly stat: Stats
}

interface WorkspaceWalk {
  readonly slices: Slices
  /** Maximum file size in bytes; larger files are left out. */
  readonly fileMaxBytes: number
  /** Called for each candidate file; its directory is open until this resolves. */
  onFile(file: FoundFile): Promise<void> | undefined
  onLeftOut(reason: SearchLeftOut): undefined
}

/** Whether everything was visited; false when the limit on names ended the walk. */
export async function walkWorkspace(top: Directory, walk: WorkspaceWalk): Promise<boolean> {
  const state = { entries: 0 }
  return await enter(top, '', 0, walk, state)
}

/** Files before folders: near files come first when a limit applies. */
async function enter(
  directory: Directory,
  path: string,
  depth: number,
  walk: WorkspaceWalk,
  state: { entries: number },
): Promise<boolean> {
  const listed = attempt('', () => directory.list())
  if (!listed.ok) walk.onLeftOut('unreadable')
  const folders: string[] = []
  const entries = listed.ok ? listed.value.sort((a, b) => (a.name < b.name ? -1 : 1)) : []
  for (const { name, kind } of entries) {
    if (++state.entries > maxEntries) return false
    if (kind === 'file') {
      // Most files are unchanged, so nothing is awaited for them.
      const work = look(directory, name, path, walk)
      if (work !== undefined) await work
    } else if (kind !== 'directory') walk.onLeftOut('special')
    else if (closedFolders.has(name)) walk.onLeftOut('folder')
    else if (depth === maxDepth) walk.onLeftOut('deep')
    else folders.push(name)
    if (walk.slices.isDue) await walk.slices.pause()
  }
  for (const name of folders) {
    const opened = attempt('', () => directory.open(name))
    if (!opened.ok) {
      walk.onLeftOut('unreadable')
      continue
    }
    using below = opened.value
    if (!(await enter(below, join(path, name), depth + 1, walk, state))) return false
  }
  return true
}

function look(
  directory: Directory,
  name: string,
  path: string,
  walk: WorkspaceWalk,
): Promise<void> | undefined {
  if (lockFiles.has(name) || generatedNames.test(name)) return walk.onLeftOut('generated')
  const stat = attempt('', () => lstatSync(directory.at(name)))
  if (!stat.ok) return walk.onLeftOut('unreadable')
  if (!stat.value.isFile()) return walk.onLeftOut('special')
  if (stat.value.size > walk.fileMaxBytes) return walk.onLeftOut('large')
  return walk.onFile({ directory, name, path: join(path, name), stat: stat.value })
}

function join(parent: string, name: string): string {
  return parent === '' ? name : `${parent}/${name}`
}

const sliceMs = 12

export class Slices {
  readonly #signal: AbortSignal
  #since = performance.now()

  constructor(signal: AbortSignal) {
    this.#signal = signal
  }

  /** Whether the slice is used up; check between small pieces of work. */
  get isDue(): boolean {
    return performance.now() - this.#since >= sliceMs
  }

  /** Yields to other work. Throws the signal's reason once it is aborted. */
  async pause(): Promise<void> {
    await nextTurn()
    this.#signal.throwIfAborted()
    this.#since = performance.now()
  }
}
