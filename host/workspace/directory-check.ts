/** Which directories may be a workspace. Refuses `/`, home and what is above it, and folders that hold our own state. */
import { realpathSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { closeToPrograms } from '../processes/programs.ts'
import { failureOf, type WorkspaceResult, workspaceFailure, workspaceSuccess } from './workspace-error.ts'

export interface OwnPlaces {
  /** Folders of ours: state, cache, configuration; they need not exist. */
  readonly ownFolders: readonly string[]
  /** The user's home; absent: the system's word and `HOME`. */
  readonly home?: string
}

/**
 * The real path of a directory that may be a workspace, from which this process takes no program from now on.
 * Failure: `refused_directory`, `unreadable`.
 * @param directory any path; links in it are resolved
 */
export function checkDirectory(directory: string, places: OwnPlaces): WorkspaceResult<string> {
  let real: string
  try {
    real = realpathSync(directory)
    if (!statSync(real).isDirectory()) return refuse(`"${directory}" is not a directory`)
  } catch (thrown) {
    if (thrown instanceof Error && 'code' in thrown && thrown.code === 'ENOENT') {
      return refuse(`"${directory}" does not exist`)
    }
    return failureOf(`opening the workspace "${directory}"`, thrown)
  }
  if (real === path.parse(real).root) return refuse('the root of the file system cannot be a workspace')
  const homes = places.home === undefined ? [homedir(), process.env.HOME ?? homedir()] : [places.home]
  if (homes.some((home) => contains(real, realOrSame(home)))) {
    return refuse(`"${real}" is a home directory or holds one`)
  }
  for (const folder of places.ownFolders.map(realOrSame)) {
    if (contains(real, folder) || contains(folder, real)) {
      return refuse(
        `"${real}" and the folder "${folder}", where Caisson keeps its own files, lie within one another`,
      )
    }
  }
  // What an agent leaves there must not become a program that the host runs.
  closeToPrograms(real)
  return workspaceSuccess(real)
}

/** Whether `inner` is `outer` or lies below it; both absolute and normal. */
export function contains(outer: string, inner: string): boolean {
  return inner === outer || inner.startsWith(outer.endsWith('/') ? outer : `${outer}/`)
}

function refuse(why: string): WorkspaceResult<never> {
  return workspaceFailure('refused_directory', `${why}; choose a project directory`)
}

/** The real path of the part that exists, and the rest as it is. */
function realOrSame(place: string): string {
  const absolute = path.resolve(place)
  try {
    return realpathSync(absolute)
  } catch {
    const parent = path.dirname(absolute)
    return parent === absolute ? absolute : path.join(realOrSame(parent), path.basename(absolute))
  }
}
