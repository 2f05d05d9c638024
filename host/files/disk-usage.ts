/** What files take on the disk. */
import { lstat, readdir } from 'node:fs/promises'
import path from 'node:path'

/**
 * Allocated bytes; links are not followed, and what is gone takes none. Reads one file at a time, since callers read
 * many folders in parallel.
 * @param depth of folders below `place` that count
 */
export async function bytesOnDisk(place: string, depth: number): Promise<number> {
  const found = await lstat(place).catch(() => undefined)
  if (found === undefined) return 0
  let bytes = found.blocks * 512
  if (!found.isDirectory() || depth === 0) return bytes
  for (const name of await readdir(place).catch(() => []))
    bytes += await bytesOnDisk(path.join(place, name), depth - 1)
  return bytes
}
