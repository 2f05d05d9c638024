/**
 * What an ended run keeps so that it can be forked or rewound: its disk with the checkpoints, the workspace that it
 * began with, and its options. The newest runs keep it, within bounds; a run's journal and changes never depend on it.
 */
import { mkdir, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { hasCode } from '#specs/errors.ts'
import { bytesOnDisk } from '../files/disk-usage.ts'
import { CheckpointDisk } from '../vm/checkpoints/checkpoint-disk.ts'
import { RunLock } from '../workspace/run-lock.ts'
import type { RunPaths, RunStore } from './run-store.ts'

export interface MomentBounds {
  /** Maximum number of ended runs that keep their moments. */
  readonly maxRuns: number
  /** Maximum bytes on disk of the moments of all ended runs. */
  readonly maxBytes: number
  /** Time after the end of a run for which it keeps them. */
  readonly maxAgeMs: number
}

export const defaultMomentBounds: MomentBounds = {
  maxRuns: 20,
  maxBytes: 4 * 1024 ** 3,
  maxAgeMs: 7 * 24 * 60 * 60 * 1000,
}

/** Of the files of the disk. */
const maxDepth = 2

type MomentPaths = Pick<RunPaths, 'scratch' | 'disk' | 'options' | 'diskFiles' | 'moments'>

/** The files of a run that can be forked, as {@link RunPaths} names them: in its folder, or where an ended run keeps them. */
export function momentPaths(paths: RunPaths, hasEnded: boolean): RunPaths {
  if (!hasEnded) return paths
  const { scratch, disk, options, diskFiles } = paths
  const kept = (file: string) => path.join(paths.moments, path.basename(file))
  return {
    ...paths,
    scratch: kept(scratch),
    disk: kept(disk),
    options: kept(options),
    diskFiles: kept(diskFiles),
  }
}

/** Keeps them for a run that has ended, if it has any; removes what is not needed for that. */
export async function keepMoments(paths: MomentPaths): Promise<void> {
  const { scratch, disk, options, diskFiles, moments } = paths
  const files = [scratch, disk, diskFiles, options]
  try {
    if ((await CheckpointDisk.trim(scratch)) && (await allThere(files))) {
      await mkdir(moments, { mode: 0o700, recursive: true })
      // The options last: without them nothing there is used.
      for (const file of files) await rename(file, path.join(moments, path.basename(file)))
    }
  } catch {
    // A run ends without them, where the disk is full, say.
    await rm(moments, { recursive: true, force: true }).catch(() => undefined)
  }
  for (const file of files) await rm(file, { recursive: true, force: true })
}

/** Of runs whose process was killed behind their last line. */
export async function keepLeftMoments(store: RunStore): Promise<void> {
  for (const runId of await store.ids()) {
    const paths = store.paths(runId)
    if (!(await allThere([paths.options]))) continue
    const { state } = await store.summary(runId)
    if (state.phase !== 'ended') continue
    const lock = await RunLock.take(paths.locks, runId).catch((error: unknown) => {
      if (hasCode(error, 'run_busy')) return undefined
      throw error
    })
    if (lock === undefined) continue
    await using _ = lock
    await keepMoments(paths)
  }
}

/** Removes the moments of ended runs beyond the bounds; the newest stay. @param now ms since 1970 */
export async function boundMoments(store: RunStore, bounds: MomentBounds, now: number): Promise<void> {
  const kept = await listMoments(store)
  let bytes = 0
  for (const [index, { runId, endedAt, bytes: size }] of kept.entries()) {
    bytes += size
    const isOld = now - endedAt > bounds.maxAgeMs
    if (index < bounds.maxRuns && bytes <= bounds.maxBytes && !isOld) continue
    await store.removeMoments(runId).catch((error: unknown) => {
      // A person applies its changes, say; the next run looks again.
      if (!hasCode(error, 'run_busy')) throw error
    })
    bytes -= size
  }
}

export interface KeptMoments {
  readonly runId: string
  /** ms since 1970. */
  readonly endedAt: number
  readonly bytes: number
}

/** Newest first. */
export async function listMoments(store: RunStore): Promise<KeptMoments[]> {
  const found: KeptMoments[] = []
  for (const runId of await store.ids()) {
    const { moments } = store.paths(runId)
    const folder = await stat(moments).catch(() => undefined)
    if (folder === undefined) continue
    found.push({ runId, endedAt: folder.mtimeMs, bytes: await bytesOnDisk(moments, maxDepth) })
  }
  return found.sort((a, b) => b.endedAt - a.endedAt)
}

/** What the disk of a run takes, from which it can be forked or continued; null when it has none. */
export async function keptDiskBytes(paths: RunPaths, hasEnded: boolean): Promise<number | null> {
  const { scratch, disk, options } = momentPaths(paths, hasEnded)
  if (!(await allThere([scratch, disk, options]))) return null
  return (await bytesOnDisk(scratch, maxDepth)) + (await bytesOnDisk(disk, 0))
}

async function allThere(files: readonly string[]): Promise<boolean> {
  const found = await Promise.all(files.map((file) => stat(file).catch(() => undefined)))
  return !found.includes(undefined)
}
