/**
 * Where the host keeps what: state (runs, VMs, locks) and cache (image, downloads), under the XDG directories
 * (XDG Base Directory Specification 0.8). Refuses a folder that another user owns, may write to, or could exchange.
 */

import { mkdir, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { type Distrust, findDistrust } from '../files/path-trust.ts'

export interface Folders {
  /** State: `CAISSON_HOME`, else `$XDG_STATE_HOME/caisson`, else `~/.local/state/caisson`. */
  readonly home: string
  /** Cache, safe to delete: `CAISSON_CACHE`, else `$XDG_CACHE_HOME/caisson`, else `~/.cache/caisson`. */
  readonly cache: string
  /** Configuration: `$XDG_CONFIG_HOME/caisson`, else `~/.config/caisson`; read only. */
  readonly config: string
  readonly runs: string
  readonly vms: string
  readonly locks: string
}

type Environment = Readonly<Record<string, string | undefined>>

/** The folders for this environment; makes nothing. */
export function resolveFolders(env: Environment = process.env): Folders {
  const base = (variable: string, fallback: string) => {
    const value = env[variable]
    // The specification: a relative path is invalid and to be ignored.
    return value !== undefined && path.isAbsolute(value) ? value : path.join(env.HOME || homedir(), fallback)
  }
  const home = absolute(env.CAISSON_HOME) ?? path.join(base('XDG_STATE_HOME', '.local/state'), 'caisson')
  const cache = absolute(env.CAISSON_CACHE) ?? path.join(base('XDG_CACHE_HOME', '.cache'), 'caisson')
  const config = path.join(base('XDG_CONFIG_HOME', '.config'), 'caisson')
  const below = (name: string) => path.join(home, name)
  return { home, cache, config, runs: below('runs'), vms: below('vms'), locks: below('locks') }
}

/** The places that `checkDirectory` keeps workspaces out of, and the one within them that it allows. */
export function ownPlaces({ home, cache, config }: Pick<Folders, 'home' | 'cache' | 'config'>): {
  readonly ownFolders: readonly string[]
  readonly serviceWorkspaces: string
} {
  return { ownFolders: [home, cache, config], serviceWorkspaces: serviceWorkspaces(home) }
}

/** Folder of the workspaces that the HTTP service makes. @param home the state folder */
export function serviceWorkspaces(home: string): string {
  return path.join(home, 'service', 'workspaces')
}

/** Of folders there while they are uploaded. */
export const stagePrefix = '.upload-'

/** Whether a folder there is an uploaded workspace, by its name. Its files go with its last run. */
export function isUploadedWorkspace(name: string): boolean {
  return /^workspace-[0-9a-f]{32}$/.test(name)
}

function absolute(value: string | undefined): string | undefined {
  return value === undefined || value === '' ? undefined : path.resolve(value)
}

/**
 * Makes the state and cache folders with mode 0700.
 * @throws {CaissonError} `state_unavailable` when one exists and belongs to another user or is writable by
 * others, or when another user
 *   could put something else in its place
 */
export async function prepareFolders(folders: Folders): Promise<void> {
  for (const folder of [folders.home, folders.cache, folders.runs, folders.vms, folders.locks]) {
    const variable = folder === folders.cache ? 'CAISSON_CACHE' : 'CAISSON_HOME'
    // Before anything is made where another user may have placed a link.
    checkWay(path.dirname(folder), folder, variable)
    await makeFolder(folder).catch((cause: unknown) => {
      throw new CaissonError(
        'state_unavailable',
        `cannot make the folder ${folder}: ${errorMessage(cause)}; set ${variable}`,
        {
          cause,
        },
      )
    })
    await checkFolder(folder, variable)
  }
}

/** Node's own recursive mkdir never returns where the kernel says ENOENT below a folder that exists, as /proc does. */
async function makeFolder(folder: string): Promise<void> {
  const isThere = await stat(folder).then(
    () => true,
    () => false,
  )
  if (isThere) return
  const parent = path.dirname(folder)
  if (parent !== folder) await makeFolder(parent)
  await mkdir(folder, { mode: 0o700 }).catch((error: unknown) => {
    // Another process made it in between.
    if (errnoOf(error) !== 'EEXIST') throw error
  })
}

/**
 * For who reads what lies in `folder` and makes nothing: what another user could have put there must not be believed.
 * One that is not there is in order. @throws {CaissonError} `state_unavailable`
 */
export async function checkFolderIfThere(folder: string): Promise<void> {
  const isThere = await stat(folder).then(
    () => true,
    (error: unknown) => errnoOf(error) !== 'ENOENT',
  )
  if (isThere) await checkFolder(folder)
}

/**
 * @throws {CaissonError} `state_unavailable` unless `folder` is a directory of this user that no one else may write to
 * or replace
 */
export async function checkFolder(
  folder: string,
  variable: 'CAISSON_HOME' | 'CAISSON_CACHE' = 'CAISSON_HOME',
): Promise<void> {
  const found = await stat(folder).catch((cause: unknown) => {
    throw new CaissonError(
      'state_unavailable',
      `${folder} cannot be used: ${errorMessage(cause)}; set ${variable}`,
      { cause },
    )
  })
  const me = process.getuid?.()
  if (!found.isDirectory())
    throw new CaissonError('state_unavailable', `${folder} is not a folder; move it away or set ${variable}`)
  if (me !== undefined && found.uid !== me) {
    throw new CaissonError(
      'state_unavailable',
      `${folder} belongs to user ${found.uid}, not to you (${me}); set ${variable} to a folder of your own`,
    )
  }
  if ((found.mode & 0o022) !== 0) {
    throw new CaissonError(
      'state_unavailable',
      `${folder} can be written by others (mode ${(found.mode & 0o777).toString(8)}); run: chmod 700 ${folder}`,
    )
  }
  checkWay(folder, folder, variable)
}

/** @throws {CaissonError} `state_unavailable` when another user can change what the path `way` to `folder` leads to */
function checkWay(way: string, folder: string, variable: string): void {
  let found: Distrust | undefined
  try {
    found = findDistrust(way)
  } catch (cause) {
    throw new CaissonError(
      'state_unavailable',
      `${folder} cannot be reached: ${errorMessage(cause)}; set ${variable}`,
      { cause },
    )
  }
  if (found === undefined) return
  throw new CaissonError(
    'state_unavailable',
    `${folder} is reached through ${found.at}, which ${found.why}, so that somebody else could put another folder ` +
      `in its place; set ${variable} to a path that only you can change, or correct ${found.at}`,
  )
}
