/**
 * File access shared by the tools in the VM and in the library: resolves a path below a root and writes whole files.
 * Never leaves the root: every path is walked by descriptor.
 */
import type { Buffer } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { fchmodSync, writeSync } from 'node:fs'
import { type LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { attempt, failure } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'

interface RootPlace {
  /** The root directory; trusted. */
  readonly path: string
  /** Path by which calls and links name the root, when it differs from the opened one. */
  readonly knownAs?: string
  /** Owner of created files; absent: this process's user. */
  readonly owner?: Owner
}

/** Opens the root, resolves `path` below it, runs `action` on it and closes both. */
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

/** A path for results: relative, `.` for the root itself. */
export function shownPath(place: Place): string {
  return place.path === '' ? '.' : place.path
}

/** Permission bits of the file to replace; absent when there is none. Anything but a regular file is `not_a_file`. */
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
 * Writes a file atomically: a new file beside it, then renamed.
 * @param mode permission bits; absent: those of a new file
 * @param replace whether an existing file may be replaced; if not, `already_exists`
 * @param check called when everything is written and nothing is visible; its failure is the call's
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

/** Writes a file's content beside its place under a free name; removes it again on failure. */
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

/** A free name in the same directory. */
export function placeBeside(place: Place): Place {
  return place.sibling(`.caisson-${randomBytes(8).toString('hex')}`)
}

/** `1 byte`, `2 bytes`: all digits, as a model may count on. */
export function countBytes(bytes: number): string {
  return `${bytes} ${bytes === 1 ? 'byte' : 'bytes'}`
}

/** Formats 1234567 as `1.2 MB`. */
export function formatSize(bytes: number): string {
  const units = [bytes === 1 ? 'byte' : 'bytes', 'kB', 'MB', 'GB', 'TB']
  let value = bytes
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000
    unit++
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`
}
