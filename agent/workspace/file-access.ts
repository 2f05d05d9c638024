/**
 * Shared options of the file tools, and path resolution. Never accesses paths outside the workspace, but for reading the
 * user's folders that the run was given beside it.
 */
import { Buffer } from 'node:buffer'
import { readSync } from 'node:fs'
import * as z from 'zod'
import { withPlaceIn } from '#runtime/tools/workspace-file.ts'
import { type LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { attempt, failure } from '#specs/node/file-error.ts'
import { quotePath } from '#specs/node/path-text.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { ReadLedger } from './read-ledger.ts'

export {
  countBytes,
  formatSize,
  inspectTarget,
  placeBeside,
  shownPath,
  writeBeside,
  writeWhole,
} from '#runtime/tools/workspace-file.ts'

export interface FileToolsOptions {
  /** Path of the workspace. Default `/mnt/workspace`. */
  readonly root?: string
  /** Path by which calls and links name the workspace, when it differs from the opened one. */
  readonly knownAs?: string
  /** Path of the read-only folders. Default `/mnt/folders`. */
  readonly folders?: string
  /** Owner of created files, if this process may set it. Default the guest's user `work`. */
  readonly owner?: Owner
  /** Ledger of what conversations have read; absent: nothing is refused as `stale`. */
  readonly ledger?: ReadLedger
}

export const defaultRoot = '/mnt/workspace'
export const defaultFolders = '/mnt/folders'
/** The guest's user for programs. */
export const workOwner: Owner = { uid: 1000, gid: 1000 }

/** A path argument; the walk validates it. */
export const pathArgument = z
  .string()
  .min(1)
  .max(8192)
  .describe('Path relative to the workspace, such as src/main.py')

/** For tools that only read: also the absolute path of something in the user's read-only folders. */
export const readablePathArgument = pathArgument.describe(
  'Path relative to the workspace, such as src/main.py, or absolute in a folder below /mnt/folders',
)

/** Opens the workspace, resolves `path`, runs `action` on it and closes both. Refuses the read-only folders. */
export async function withPlace<T>(
  options: FileToolsOptions,
  path: string,
  locate: LocateOptions,
  action: (place: Place, root: Root) => Result<T> | Promise<Result<T>>,
): Promise<Result<T>> {
  if (isInFolders(options, path)) return refuseFolders(path)
  // Opened per call: the workspace may have been mounted again since the last one.
  const { root = defaultRoot, knownAs, owner = workOwner } = options
  const place = { path: root, owner, ...(knownAs === undefined ? {} : { knownAs }) }
  return await withPlaceIn(place, path, locate, action)
}

/**
 * As {@link withPlace}, for an `action` that only reads: `path` may also be in the read-only folders, whose places have
 * absolute paths.
 */
export async function withReadablePlace<T>(
  options: FileToolsOptions,
  path: string,
  action: (place: Place) => Result<T> | Promise<Result<T>>,
): Promise<Result<T>> {
  if (!isInFolders(options, path)) return await withPlace(options, path, {}, action)
  const opened = Root.open(options.folders ?? defaultFolders, { hasAbsolutePlaces: true })
  if (!opened.ok)
    return failure('not_found', `${quotePath(path)}: this run has no folders besides the workspace.`)
  using root = opened.value
  const found = root.locate(path)
  if (!found.ok) return found
  using place = found.value
  return await action(place)
}

/** Whether the path names the read-only folders or something in them. */
export function isInFolders({ folders = defaultFolders }: FileToolsOptions, path: string): boolean {
  return path === folders || path.startsWith(`${folders}/`)
}

/** The error for a change in the read-only folders. */
export function refuseFolders(path: string): ReturnType<typeof failure> {
  return failure(
    'permission_denied',
    `${quotePath(path)} is in a folder that is read-only: nothing in it can be changed. Copy what you need into the workspace, and change the copy.`,
  )
}

/** The path of something that exists, with links resolved: a link cannot redirect what follows. */
export function findPath(options: FileToolsOptions, path: string): Promise<Result<string>> {
  return withReadablePlace(options, path, (place) => {
    const stat = place.stat()
    return stat.ok ? { ok: true, value: place.path } : stat
  })
}

/** The first `maxBytes` of a regular file in the workspace, plus one byte if it is longer. */
export function readBounded(
  options: FileToolsOptions,
  file: string,
  maxBytes: number,
): Promise<Result<Buffer>> {
  return withPlace(options, file, {}, (place) => {
    const opened = place.openFile('read')
    if (!opened.ok) return opened
    using open = opened.value
    return attempt(`cannot read ${place}`, () => {
      const bytes = Buffer.alloc(Math.min(maxBytes + 1, open.stat.size + 1))
      let total = 0
      for (;;) {
        const count = readSync(open.fd, bytes, total, bytes.length - total, total)
        total += count
        if (count === 0 || total === bytes.length) return bytes.subarray(0, total)
      }
    })
  })
}
