/**
 * Decides which directories may be a workspace, or be added to a run. Refuses `/`, the home folder and its parents,
 * directories of credentials, and folders with Caisson's own state.
 */
import { realpathSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { errnoOf } from '#specs/node/file-error.ts'
import { closeToPrograms } from '../processes/programs.ts'
import { isInSecretDirectory } from './scan/secret-files.ts'
import { failureOf, type WorkspaceResult, workspaceFailure, workspaceSuccess } from './workspace-error.ts'

export interface OwnPlaces {
  /** Caisson's folders (state, cache, configuration); they may not exist. */
  readonly ownFolders: readonly string[]
  /** Folder among them whose direct subfolders may be workspaces: those of the HTTP service. Absent: none. */
  readonly serviceWorkspaces?: string
  /** The user's home. Absent: the system's entry and `HOME`. */
  readonly home?: string
}

/**
 * The real path of a directory that may be a workspace; from now on this process runs no program from it. Failure:
 * `refused_directory`, `unreadable`.
 * @param directory any path; its links are resolved
 */
export function checkDirectory(directory: string, places: OwnPlaces): WorkspaceResult<string> {
  const checked = checkFolder(directory, places)
  // The host must never run a file that an agent wrote there.
  if (checked.ok) closeToPrograms(checked.value)
  return checked
}

/** The same for a folder that only goes in: nothing that an agent wrote is in it. */
export function checkFolder(directory: string, places: OwnPlaces): WorkspaceResult<string> {
  let real: string
  try {
    real = realpathSync(directory)
    if (!statSync(real).isDirectory()) return refuse(`"${directory}" is not a directory`)
  } catch (thrown) {
    if (errnoOf(thrown) === 'ENOENT') {
      return refuse(`"${directory}" does not exist`)
    }
    return failureOf(`opening the directory "${directory}"`, thrown)
  }
  if (real === path.parse(real).root) return refuse('the root of the file system cannot be a workspace')
  const homes = places.home === undefined ? [homedir(), process.env.HOME ?? homedir()] : [places.home]
  if (homes.some((home) => contains(real, realOrSame(home)))) {
    return refuse(`"${real}" is a home directory or holds one`)
  }
  if (isInSecretDirectory(real)) return refuse(`"${real}" is a directory of credentials`)
  const { serviceWorkspaces } = places
  const isOurs = serviceWorkspaces !== undefined && path.dirname(real) === realOrSame(serviceWorkspaces)
  for (const folder of isOurs ? [] : places.ownFolders.map(realOrSame)) {
    if (contains(real, folder) || contains(folder, real)) {
      return refuse(
        `"${real}" and the folder "${folder}", where Caisson keeps its own files, lie within one another`,
      )
    }
  }
  return workspaceSuccess(real)
}

/**
 * Checks that a real path of earlier still has no link in it: with one, it names another directory. Failures:
 * `refused_directory`, `unreadable`.
 */
export function checkSamePlace(earlier: string): WorkspaceResult<string> {
  let now: string
  try {
    now = realpathSync(earlier)
  } catch (thrown) {
    return failureOf(`opening the directory "${earlier}"`, thrown)
  }
  if (now === earlier) return workspaceSuccess(now)
  return workspaceFailure(
    'refused_directory',
    `"${earlier}" was a directory, and it or a directory above it is a link now: it leads to "${now}". Put the directory back in its place`,
  )
}

/** Whether `inner` equals `outer` or is below it; both are absolute and normalized. */
export function contains(outer: string, inner: string): boolean {
  return inner === outer || inner.startsWith(outer.endsWith('/') ? outer : `${outer}/`)
}

function refuse(why: string): WorkspaceResult<never> {
  return workspaceFailure('refused_directory', `${why}; choose a project directory`)
}

/** The real path of the existing part, followed by the rest. */
function realOrSame(place: string): string {
  const absolute = path.resolve(place)
  try {
    return realpathSync(absolute)
  } catch {
    const parent = path.dirname(absolute)
    return parent === absolute ? absolute : path.join(realOrSame(parent), path.basename(absolute))
  }
}
