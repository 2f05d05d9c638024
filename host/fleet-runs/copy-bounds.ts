/**
 * The bound on what this host has of runs of its fleet. The fleet has all of them, so the copies that nobody used for the longest
 * time are removed. One that a process works on, that was read a moment ago, or whose applied changes can be undone here, stays.
 */
import { existsSync } from 'node:fs'
import { mkdir, readdir, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { hasCode } from '#specs/errors.ts'
import { mapBounded } from '../files/bounded-map.ts'
import { bytesOnDisk } from '../files/disk-usage.ts'
import { copyMarker } from '../journal/fleet-mark.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { type FileLock, stateFileWaitMs, takeLock } from '../locks/file-lock.ts'
import type { KeptBounds } from '../runs/storage-bounds.ts'
import type { Folders } from '../state/folders.ts'
import { readAppliedCount } from '../workspace/index.ts'
import { isRunLocked, RunLock } from '../workspace/run-lock.ts'

/** Whoever reads a copy opens its files within this time. */
const readMs = 10 * 60_000
/** Depth inside the folder of a run that counts. */
const maxDepth = 3

interface Copy {
  readonly runId: string
  readonly directory: string
  readonly bytes: number
  /** ms since 1970; undefined: no copy. */
  readonly usedAt: number | undefined
}

/** Held by whoever changes the copy of a run. */
export async function lockCopy({ locks, runId }: Pick<RunPaths, 'locks' | 'runId'>): Promise<FileLock> {
  await mkdir(locks, { recursive: true, mode: 0o700 })
  return await takeLock(path.join(locks, `${runId}.copy.lock`), { waitMs: stateFileWaitMs })
}

/**
 * @param bounds of all folders of runs; copies give way until one more run has room
 * @param now ms since 1970
 * @returns ids of the removed ones
 */
export async function removeOldCopies(
  { runs, locks }: Pick<Folders, 'runs' | 'locks'>,
  { maxRuns, maxBytes }: KeptBounds,
  { isHere }: { isHere(runId: string): boolean },
  now = Date.now(),
): Promise<string[]> {
  const names = await readdir(runs).catch(() => [])
  const all = await mapBounded(names, (runId) => lookAt(path.join(runs, runId), runId))
  let count = all.length
  let bytes = all.reduce((sum, copy) => sum + copy.bytes, 0)
  const isFull = () => count >= maxRuns || bytes >= maxBytes
  const oldest = all
    .flatMap(({ usedAt, ...copy }) => (usedAt === undefined ? [] : [{ ...copy, usedAt }]))
    .toSorted((a, b) => a.usedAt - b.usedAt)
  const removed: string[] = []
  for (const copy of oldest) {
    if (!isFull() || copy.usedAt > now - readMs) break
    if (isHere(copy.runId) || !(await removeCopy(copy, locks))) continue
    removed.push(copy.runId)
    count -= 1
    bytes -= copy.bytes
  }
  return removed
}

async function lookAt(directory: string, runId: string): Promise<Copy> {
  const marker = await stat(path.join(directory, copyMarker)).catch(() => undefined)
  return { runId, directory, bytes: await bytesOnDisk(directory, maxDepth), usedAt: marker?.mtimeMs }
}

/** @returns whether it was removed */
async function removeCopy({ runId, directory, usedAt }: Copy, locks: string): Promise<boolean> {
  if (await isRunLocked(locks, runId)) return false
  const lock = await RunLock.take(locks, runId).catch((error: unknown) => {
    if (hasCode(error, 'run_busy')) return undefined
    throw error
  })
  if (lock === undefined) return false
  await using _ = lock
  await using _copy = await lockCopy({ runId, locks })
  const isSame = (await stat(path.join(directory, copyMarker)).catch(() => undefined))?.mtimeMs === usedAt
  // Null: its log cannot be read, which undo says.
  if (!isSame || readAppliedCount(directory) !== 0) return false
  await rm(directory, { recursive: true, force: true })
  return !existsSync(directory)
}
