/**
 * Limits on the stored runs of a user. Refuses a new run beyond them. Never removes a run, since it may hold changes
 * that are not applied yet.
 */

import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { mapBounded } from '../files/bounded-map.ts'
import { bytesOnDisk } from '../files/disk-usage.ts'

export interface KeptBounds {
  /** Maximum number of stored runs. */
  readonly maxRuns: number
  /** Maximum bytes on disk of all runs. */
  readonly maxBytes: number
}

const GiB = 1024 ** 3
/** Depth of the disk that an ended run keeps inside its folder; nothing deeper counts. */
const maxDepth = 3

export const defaultKeptBounds: KeptBounds = { maxRuns: 2_000, maxBytes: 100 * GiB }

/**
 * @param runs the folder of runs
 * @throws {CaissonError} `limit_reached`
 */
export async function requireRoomForRun(
  runs: string,
  { maxRuns, maxBytes }: KeptBounds = defaultKeptBounds,
): Promise<void> {
  const names = await readdir(runs).catch(() => [])
  const remedy = 'remove runs: caisson clean --runs --older-than 30d --yes, or caisson runs rm RUN'
  if (names.length >= maxRuns)
    throw new CaissonError(
      'limit_reached',
      `${names.length} runs are kept in ${runs}; the limit is ${maxRuns}; ${remedy}; or raise kept.maxRuns in the configuration`,
    )
  const sizes = await mapBounded(names, (name) => bytesOnDisk(path.join(runs, name), maxDepth))
  const bytes = sizes.reduce((sum, size) => sum + size, 0)
  if (bytes >= maxBytes)
    throw new CaissonError(
      'limit_reached',
      `the runs in ${runs} take ${gigabytes(bytes)}; the limit is ${gigabytes(maxBytes)}; ${remedy}; or raise kept.maxGiB in the configuration`,
    )
}

function gigabytes(bytes: number): string {
  return `${(bytes / GiB).toFixed(1)} GiB`
}
