/**
 * Finds the repositories that a change set touches, whatever their directories are called. Reads configuration on the
 * host only for the working tree and the length of object names.
 */
import { posix } from 'node:path'
import { foldFileName, foldPath } from '../flags/folded-path.ts'
import type { Turns } from '../yield-turns.ts'
import type { HistorySurroundings } from './objects.ts'
import { isReference, readChangedBytes, readHostBytes } from './references.ts'

export interface RepositoryOptions extends HistorySurroundings {
  /** Whether git on the host treats a directory as a repository, or as the `.git` of a working tree. */
  isRepository(directory: string): boolean
}

/** Maximum repositories examined: each is compared with every change. */
const maxRepositories = 1_000

interface ChangedRepositories {
  /** The changes of each repository that affect where its history ends. */
  readonly members: ReadonlyMap<string, readonly string[]>
  /** Changes of the repositories beyond {@link maxRepositories}. */
  readonly unexamined: readonly string[]
}

export async function findChangedRepositories(
  { changes, index, isRepository }: RepositoryOptions,
  turns: Turns,
): Promise<ChangedRepositories> {
  const repositories = new Map<string, string[]>()
  const unexamined: string[] = []
  const repositoriesAbove = findRepositoriesAbove(isRepository)
  for (const change of changes.values()) {
    if (turns.isDue) await turns.give()
    if (change.kind === 'mode' || change.kind === 'unsupported') continue
    const found = repositoryOf(change.path, repositoriesAbove)
    // A directory alone means nothing; its contents are examined separately.
    if (found === undefined || (change.kind === 'directory' && index.get(change.path)?.kind !== 'file'))
      continue
    const [directory, below] = found
    const members = repositories.get(directory) ?? []
    if (members.length === 0 && repositories.size >= maxRepositories && !repositories.has(directory)) {
      unexamined.push(change.path)
      continue
    }
    if (isReference(below)) members.push(change.path)
    repositories.set(directory, members)
  }
  return { members: repositories, unexamined }
}

/**
 * The repository of a path, whatever its directory's name. A submodule's name may contain slashes, so the repository
 * below `modules` ends where the rest looks like git's. If that is too early, its objects are missing and it is
 * flagged.
 */
function repositoryOf(
  path: string,
  repositoriesAbove: RepositoriesAbove,
): [directory: string, below: string] | undefined {
  const depths = repositoriesAbove(path)
  if (depths.length === 0) return
  const names = path.split('/')
  let tried = names.length
  for (const git of depths) {
    const isModule = foldFileName(names[git] ?? '') === 'modules'
    const start = isModule ? git + 2 : git
    const end = isModule ? tried : git + 1
    for (let at = start; at < end; at++) {
      if (!mayBeginGit(names, at)) continue
      const below = names.slice(at).join('/')
      if (isReference(below) || isObject(below)) return [names.slice(0, at).join('/'), below]
    }
    // A repository below this one would look at the same names again.
    if (isModule) tried = Math.min(tried, start)
  }
  return
}

/** Whether the names from `at` on can be a reference or an object; cheaper than to look at all of them. */
function mayBeginGit(names: readonly string[], at: number): boolean {
  const isLast = at === names.length - 1
  return isLast || /^(refs|logs|objects|worktrees)$/.test(foldFileName(names[at] ?? ''))
}

/** Number of names in each parent directory that is a repository, shortest first. */
type RepositoriesAbove = (path: string) => readonly number[]

/** Judges each directory once, however many changes are below it. */
function findRepositoriesAbove(isRepository: RepositoryOptions['isRepository']): RepositoriesAbove {
  const known = new Map<string, readonly number[]>()
  const above: RepositoriesAbove = (path) => {
    const end = path.lastIndexOf('/')
    if (end < 0) return []
    const directory = path.slice(0, end)
    const found = known.get(directory)
    if (found !== undefined) return found
    const own = isRepository(directory) ? [directory.split('/').length] : []
    const all = [...above(directory), ...own]
    known.set(directory, all)
    return all
  }
  return above
}

/** Whether a path below a repository is one of its objects. */
export function isObject(below: string): boolean {
  return /^objects(\/|$)/.test(foldPath(below))
}

/** The working tree of a repository below the workspace, according to the host; empty if it is the workspace. */
export function workingTreeOf({ root }: RepositoryOptions, directory: string): string {
  const text = readHostBytes(root, `${directory}/config`, 1024 * 1024)?.toString('latin1') ?? ''
  const set = /^\s*worktree\s*=\s*"?([^"\r\n]+)"?\s*$/im.exec(text)?.[1]
  // The working tree of a repository named `.git` is its parent directory.
  const named = set ?? (/(^|\/)\.git$/i.test(directory) ? '..' : undefined)
  if (named === undefined || named.startsWith('/')) return ''
  const tree = posix.join(directory, named)
  return tree === '.' || tree === '..' || tree.startsWith('../') ? '' : tree.replace(/\/$/, '')
}

/** Length of an object name in bytes, from the repository's configuration on the host or in the changes. */
export function idBytesOf(options: RepositoryOptions, directory: string): number {
  const path = `${directory}/config`
  const own = readHostBytes(options.root, path, 1024 * 1024)
  const change = options.changes.get(path)
  const text = own ?? (change?.kind === 'file' ? readChangedBytes(options, change, 1024 * 1024) : undefined)
  return /^\s*objectformat\s*=\s*"?sha256/im.test(text?.toString('latin1') ?? '') ? 32 : 20
}
