/** What the file tools share: their options, reaching a path, whole files in and out. Leaves the workspace never. */
import type { Buffer } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { fchmodSync, writeSync } from 'node:fs'
import * as z from 'zod'
import { type LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { attempt } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { toolFailure } from './tool.ts'

export interface FileToolsOptions {
  /** The workspace. Default `/mnt/workspace`. */
  readonly root?: string
  /** The path by which calls and links name the workspace, where it is not the one that is opened. */
  readonly knownAs?: string
  /** Owner of what is created, where this process may give things away. Default the guest's user `work`. */
  readonly owner?: Owner
}

export const defaultRoot = '/mnt/workspace'
/** The user of the guest that programs run as. */
export const workOwner: Owner = { uid: 1000, gid: 1000 }

/** A path argument; its meaning is checked by the walk. */
export const pathArgument = z
  .string()
  .min(1)
  .max(8192)
  .describe('Path relative to the workspace, such as src/main.py')

/** Opens the workspace, finds `path`, runs `action` on it and closes both. */
export async function withPlace<T>(
  options: FileToolsOptions,
  path: string,
  locate: LocateOptions,
  action: (place: Place, root: Root) => Result<T> | Promise<Result<T>>,
): Promise<Result<T>> {
  // Opened for each call: the workspace may have been mounted anew since the last one.
  const { root: location = defaultRoot, knownAs, owner = workOwner } = options
  const opened = Root.open(location, { owner, ...(knownAs === undefined ? {} : { knownAs }) })
  if (!opened.ok) return opened
  using root = opened.value
  const found = root.locate(path, locate)
  if (!found.ok) return found
  using place = found.value
  return await action(place, root)
}

/** How a path is shown in results: relative, `.` for the workspace itself. */
export function shownPath(place: Place): string {
  return place.path === '' ? '.' : place.path
}

/**
 * Writes a file so that its name shows the old or the new content and never a part: a new file beside it, renamed.
 * @param mode permission bits; absent: those of a new file
 * @param replace whether a file of that name may be there; if not, `already_exists`
 */
export function writeWhole(
  place: Place,
  content: Buffer,
  { mode, replace }: { readonly mode?: number; readonly replace: boolean },
): Result<void> {
  const beside = place.sibling(`.caisson-${randomBytes(8).toString('hex')}`)
  const created = beside.createFile()
  if (!created.ok) return created
  const written = attempt(`cannot write ${place}`, () => {
    using file = created.value
    for (let at = 0; at < content.length; ) at += writeSync(file.fd, content, at)
    if (mode !== undefined) fchmodSync(file.fd, mode)
  })
  const moved = written.ok ? beside.renameTo(place, { replace }) : written
  if (!moved.ok) beside.unlink()
  if (!moved.ok && moved.error.code === 'already_exists') {
    return toolFailure('already_exists', `${place} exists already; use mode "overwrite" or another path.`)
  }
  return moved
}

/** 1234567 as `1.2 MB`. */
export function formatSize(bytes: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB']
  let value = bytes
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000
    unit++
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`
}
