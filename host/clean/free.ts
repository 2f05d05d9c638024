// Removes the entries of an inventory, each kind in its owner's way: images, agents and templates under their lock
// after a rename, VMs by the sweep, runs by their store. Keeps and reports what is in use.

import { lstat, mkdtemp, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { errorMessage } from '#specs/errors.ts'
import { RunId } from '#specs/protocol/text.ts'
import { removeLeftStage } from '../journal/archive-stages.ts'
import { RunStore } from '../journal/run-store.ts'
import { LockHeldError, removeLeftLock, takeLock } from '../locks/file-lock.ts'
import type { Folders } from '../state/folders.ts'
import { sweepDeadVms } from '../vm/vm-folder.ts'
import { listStaleNotes } from './inventory.ts'
import type { Kept } from './kept.ts'

export interface Freed {
  readonly freed: readonly Kept[]
  /** What could not be removed, and why. */
  readonly failed: readonly { readonly kept: Kept; readonly reason: string }[]
}

/** Removes the entries; never throws for one of them. */
export async function freeKept(folders: Folders, entries: readonly Kept[]): Promise<Freed> {
  const freed: Kept[] = []
  const failed: { kept: Kept; reason: string }[] = []
  for (const kept of entries) {
    try {
      await freeOne(folders, kept)
      freed.push(kept)
    } catch (error) {
      failed.push({ kept, reason: errorMessage(error) })
    }
  }
  if (entries.some(({ kind }) => kind === 'agent'))
    for (const note of await listStaleNotes(folders.cache)) await rm(note, { force: true })
  return { freed, failed }
}

async function freeOne(folders: Folders, { kind, name, path: place }: Kept): Promise<void> {
  switch (kind) {
    case 'image':
    case 'agent':
    case 'template':
      return await freeFolder(folders.cache, place)
    case 'run':
      return await new RunStore(folders).remove(name)
    case 'moments':
      return await new RunStore(folders).removeMoments(name)
    case 'leftover':
      if (path.dirname(place) === folders.vms) return await freeVm(folders.vms, place)
      if (path.dirname(place) === folders.runs) return await freeStage(folders, place)
      if (place.endsWith('.lock')) return await freeLock(folders, place)
      return await rm(place, { recursive: true, force: true })
    case 'download':
    case 'probe':
      return await rm(place, { force: true })
    case 'unknown':
      throw new Error('only a person can know whether it is needed')
  }
}

/** Under its builder's lock; renames first, so that no lookup finds it, whatever happens to this process. */
async function freeFolder(cache: string, place: string): Promise<void> {
  await using _lock = await takeLock(`${place}.lock`).catch((error: unknown) => {
    throw error instanceof LockHeldError ? new Error(`${error.holder} is at work on it`) : error
  })
  const aside = await mkdtemp(path.join(cache, 'build-'))
  await rename(place, path.join(aside, path.basename(place)))
  await rm(aside, { recursive: true, force: true })
}

/** A process that took the lock meanwhile keeps it. */
async function freeLock(folders: Folders, place: string): Promise<void> {
  const run = RunId.safeParse(path.basename(place, '.lock'))
  if (path.dirname(place) === folders.locks && run.success)
    return await new RunStore(folders).removeLeftLock(run.data)
  await removeLeftLock(place)
}

async function freeStage(folders: Folders, place: string): Promise<void> {
  if (!(await removeLeftStage(folders, place))) throw new Error('a process works on it by now')
}

async function freeVm(vms: string, place: string): Promise<void> {
  // The sweep checks again, and ends what the dead host left running.
  await sweepDeadVms(vms)
  if (await isThere(place)) throw new Error('a process works on it by now')
}

async function isThere(place: string): Promise<boolean> {
  return await lstat(place).then(
    () => true,
    () => false,
  )
}
