/**
 * Looks through a workspace for the files that an index takes: by descriptor, no link followed, nothing opened but directories.
 * What is left out is counted under its reason, so that a search can say what it did not search.
 */
import { lstatSync, type Stats } from 'node:fs'
import type { Directory } from '#specs/node/directory.ts'
import { attempt } from '#specs/node/file-error.ts'
import type { Slices } from './slices.ts'

/** Why a file or folder is not searched, in the words of a result. */
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
export type LeftOut = keyof typeof leftOutReasons

/** Never entered: large, and hardly ever what is sought. */
export const closedFolders: ReadonlySet<string> = new Set([
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

/** Folders within folders. */
const maxDepth = 64
/** Names that are looked at, whatever they are. */
const maxEntries = 400_000

export interface FoundFile {
  readonly directory: Directory
  readonly name: string
  /** Below the workspace's root. */
  readonly path: string
  readonly stat: Stats
}

export interface Walk {
  readonly slices: Slices
  /** Larger ones are left out, in bytes. */
  readonly fileMaxBytes: number
  /** Each file that may be taken; its directory is open until this resolves. */
  onFile(file: FoundFile): Promise<void> | undefined
  onLeftOut(reason: LeftOut): undefined
}

/** Whether everything was looked at; otherwise the bound of names ended it. */
export async function walkWorkspace(top: Directory, walk: Walk): Promise<boolean> {
  const state = { entries: 0 }
  return await enter(top, '', 0, walk, state)
}

/** Files before folders: what lies near counts first where something is bounded. */
async function enter(
  directory: Directory,
  path: string,
  depth: number,
  walk: Walk,
  state: { entries: number },
): Promise<boolean> {
  const listed = attempt('', () => directory.list())
  if (!listed.ok) walk.onLeftOut('unreadable')
  const folders: string[] = []
  const entries = listed.ok ? listed.value.sort((a, b) => (a.name < b.name ? -1 : 1)) : []
  for (const { name, kind } of entries) {
    if (++state.entries > maxEntries) return false
    if (kind === 'file') {
      // Most files are as they were: nothing is waited for then.
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

function look(directory: Directory, name: string, path: string, walk: Walk): Promise<void> | undefined {
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
