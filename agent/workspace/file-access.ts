/** Shared options of the file tools, and path resolution. Never accesses paths outside the workspace. */
import { Buffer } from 'node:buffer'
import { readSync } from 'node:fs'
import * as z from 'zod'
import { withPlaceIn } from '#runtime/tools/workspace-file.ts'
import type { LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { attempt } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { ReadLedger } from './read-ledger.ts'

export {
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
  /** Owner of created files, if this process may set it. Default the guest's user `work`. */
  readonly owner?: Owner
  /** Ledger of what conversations have read; absent: nothing is refused as `stale`. */
  readonly ledger?: ReadLedger
}

export const defaultRoot = '/mnt/workspace'
/** The guest's user for programs. */
export const workOwner: Owner = { uid: 1000, gid: 1000 }

/** A path argument; the walk validates it. */
export const pathArgument = z
  .string()
  .min(1)
  .max(8192)
  .describe('Path relative to the workspace, such as src/main.py')

/** Opens the workspace, resolves `path`, runs `action` on it and closes both. */
export async function withPlace<T>(
  options: FileToolsOptions,
  path: string,
  locate: LocateOptions,
  action: (place: Place, root: Root) => Result<T> | Promise<Result<T>>,
): Promise<Result<T>> {
  // Opened per call: the workspace may have been mounted again since the last one.
  const { root = defaultRoot, knownAs, owner = workOwner } = options
  const place = { path: root, owner, ...(knownAs === undefined ? {} : { knownAs }) }
  return await withPlaceIn(place, path, locate, action)
}

/** The path of something that exists in the workspace, with links resolved: a link cannot redirect what follows. */
export function findPath(options: FileToolsOptions, path: string): Promise<Result<string>> {
  return withPlace(options, path, {}, (place) => {
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
