/**
 * Compares git's index on the host by its entries: any `git status` rewrites the times and sizes of files in it, which
 * is no change.
 */
import type { Root } from '#specs/node/descriptor-walk.ts'
import { readWhole } from '../change-set.ts'
import type { PathState } from '../path-state.ts'
import { INDEX_MAX_BYTES, meaningOfIndex } from './index-file.ts'

/** @param meaning what {@link meaningOfIndex} said of the other index. Absent: it is none, or could not be read */
export function isRefreshedIndex(
  root: Root,
  path: string,
  now: PathState,
  meaning: string | undefined,
): boolean {
  if (meaning === undefined || now.kind !== 'file' || now.size > INDEX_MAX_BYTES) return false
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return false
  using place = located.value
  const opened = place.openFile()
  if (!opened.ok) return false
  using file = opened.value
  // Truncated meanwhile.
  if (file.stat.size !== now.size) return false
  return meaningOfIndex(readWhole(file.fd, 0, now.size)) === meaning
}
