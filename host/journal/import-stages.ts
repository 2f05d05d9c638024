/** Names the folders in which archives are unpacked, beside the runs; lists and removes what killed imports left. */
import { readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { isLocked, LockHeldError, takeLock } from '../locks/file-lock.ts'
import type { Folders } from '../state/folders.ts'

type Places = Pick<Folders, 'runs' | 'locks'>

const stageName = /^\.import-[0-9a-f]{16}$/

/** Whether a folder beside the runs is one of an import. */
export function isImportStage(name: string): boolean {
  return stageName.test(name)
}

/** Held by the process that imports. */
export function lockOfStage(locks: string, name: string): string {
  return path.join(locks, `${name.slice(1)}.lock`)
}

/** Folders of imports, and whether their process is at work. */
export async function listStages({ runs, locks }: Places): Promise<{ place: string; isBusy: boolean }[]> {
  const names = (await readdir(runs).catch(() => [])).filter(isImportStage)
  return await Promise.all(
    names.map(async (name) => ({
      place: path.join(runs, name),
      isBusy: await isLocked(lockOfStage(locks, name)),
    })),
  )
}

/** Removes what a killed import left, with its lock. False when its process is at work. */
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

/** Removes what killed imports left. */
export async function clearLeftStages(places: Places): Promise<void> {
  for (const { place } of await listStages(places)) await removeLeftStage(places, place)
}
