/** What the file tools share: their options, and reaching a path. Leaves the workspace never. */
import * as z from 'zod'
import { withPlaceIn } from '#runtime/tools/workspace-file.ts'
import type { LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
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
  /** The workspace. Default `/mnt/workspace`. */
  readonly root?: string
  /** The path by which calls and links name the workspace, where it is not the one that is opened. */
  readonly knownAs?: string
  /** Owner of what is created, where this process may give things away. Default the guest's user `work`. */
  readonly owner?: Owner
  /** What the conversations know of the files; absent: nothing is refused as `stale`. */
  readonly ledger?: ReadLedger
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
  const { root = defaultRoot, knownAs, owner = workOwner } = options
  const place = { path: root, owner, ...(knownAs === undefined ? {} : { knownAs }) }
  return await withPlaceIn(place, path, locate, action)
}
