/**
 * What tools over files share, in the VM and in the library: reaching a path below a root, whole files out. Leaves the root
 * never: every path is walked by descriptor.
 */
import type { Buffer } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { fchmodSync, writeSync } from 'node:fs'
import { type LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { attempt, failure } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'

export interface RootPlace {
  /** The root; trusted. */
  readonly path: string
  /** The path by which calls and links name the root, where it is not the one that is opened. */
  readonly knownAs?: string
  /** Owner of what is created; absent: whoever this process is. */
  readonly owner?: Owner
}

/** Opens the root, finds `path` below it, runs `action` on it and closes both. */
export async function withPlaceIn<T>(
  { path: location, knownAs, owner }: RootPlace,
  path: string,
  locate: LocateOptions,
  action: (place: Place, root: Root) => Result<T> | Promise<Result<T>>,
): Promise<Result<T>> {
  const opened = Root.open(location, {
    ...(owner === undefined ? {} : { owner }),
    ...(knownAs === undefined ? {} : { knownAs }),
  })
  if (!opened.ok) return opened
  using root = opened.value
  const found = root.locate(path, locate)
  if (!found.ok) return found
  using place = found.value
  return await action(place, root)
}

/** How a path is shown in results: relative, `.` for the root itself. */
export function shownPath(place: Place): string {
  return place.path === '' ? '.' : place.path
}

/**
 * What is to be replaced by a whole file: its permission bits, nothing where there is no file. Anything but a regular file
 * is `not_a_file`.
 */
export function inspectTarget(place: Place): Result<{ mode?: number }> {
  const stat = place.stat()
  if (!stat.ok) return stat.error.code === 'not_found' ? { ok: true, value: {} } : stat
  if (stat.value.isFile()) return { ok: true, value: { mode: stat.value.mode & 0o777 } }
  if (stat.value.isDirectory()) return failure('not_a_file', `${place} is a directory; name a file in it.`)
  return failure(
    'not_a_file',
    `${place} is not a regular file (a device, FIFO or socket); choose another path.`,
  )
}

/**
 * Writes a file so that its name shows the old or the new content and never a part: a new file beside it, renamed.
 * @param mode permission bits; absent: those of a new file
 * @param replace whether a file of that name may be there; if not, `already_exists`
 * @param check asked when all is written and nothing is to be seen yet; its failure is the call's
 */
export function writeWhole(
  place: Place,
  content: Buffer,
  {
    mode,
    replace,
    check,
  }: { readonly mode?: number; readonly replace: boolean; readonly check?: () => Result<void> },
): Result<void> {
  const written = writeBeside(place, content, mode)
  if (!written.ok) return written
  const beside = written.value
  const checked = check?.() ?? { ok: true, value: undefined }
  const moved = checked.ok ? beside.renameTo(place, { replace }) : checked
  if (!moved.ok) beside.unlink()
  if (!moved.ok && moved.error.code === 'already_exists') {
    return failure('already_exists', `${place} exists already; use mode "overwrite" or another path.`)
  }
  return moved
}

/** Writes the content of a file beside its place, under a name that nobody has; nothing is left of what could not be written. */
export function writeBeside(place: Place, content: Buffer, mode?: number): Result<Place> {
  const beside = placeBeside(place)
  const created = beside.createFile()
  if (!created.ok) return created
  const written = attempt(`cannot write ${place}`, () => {
    using file = created.value
    for (let at = 0; at < content.length; ) at += writeSync(file.fd, content, at)
    if (mode !== undefined) fchmodSync(file.fd, mode)
  })
  if (written.ok) return { ok: true, value: beside }
  beside.unlink()
  return written
}

/** A name in the same directory that nobody has. */
export function placeBeside(place: Place): Place {
  return place.sibling(`.caisson-${randomBytes(8).toString('hex')}`)
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
