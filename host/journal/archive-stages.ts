/** Names the folders in which archives are read or written, beside the runs; lists and removes what killed processes left. */
import { readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { isLocked, LockHeldError, takeLock } from '../locks/file-lock.ts'
import type { Folders } from '../state/folders.ts'

type Places = Pick<Folders, 'runs' | 'locks'>

const stageName = /^\.(import|export)-[0-9a-f]{16}$/

export type StageUse = 'import' | 'export'

/** Whether a folder beside the runs is one of an import or export. */
export function isArchiveStage(name: string): boolean {
  return stageName.test(name)
}

/** Held by the process that uses it. */
export function lockOfStage(locks: string, name: string): string {
  return path.join(locks, `${name.slice(1)}.lock`)
}

/** Folders of imports and exports, and whether their process is at work. */
export async function listStages({
  runs,
  locks,
}: Places): Promise<{ place: string; use: StageUse; isBusy: boolean }[]> {
  const names = (await readdir(runs).catch(() => [])).filter(isArchiveStage)
  return await Promise.all(
    names.map(async (name) => ({
      place: path.join(runs, name),
      use: name.startsWith('.export-') ? ('export' as const) : ('import' as const),
      isBusy: await isLocked(lockOfStage(locks, name)),
    })),
  )
}

/** Removes what a killed process left, with its lock. False when its process is at work. */
export async function removeLeftStage({ locks }: Places, place: string): Promise<boolean> {
  const lock = await takeLock(lockOfStage(locks, path.basename(place))).catch((error: unknown) => {
    if (error instanceof LockHeldError) return undefined
    throw error
  })
  if (lock === undefined) return false
  await using _ = lock
  await rm(place, { recursive: true, force: true })
  return true
}

/** Removes what killed imports and exports left. */
export async function clearLeftStages(places: Places): Promise<void> {
  for (const { place } of await listStages(places)) await removeLeftStage(places, place)
}
