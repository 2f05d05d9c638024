/**
 * Tracks who owns a saved VM: no one, so that it can be found; the process that restores it and holds its lock; or its
 * guest, which has run again. If a process dies before the guest ran, the VM is released. Never reads the record's
 * content.
 */
import { access, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { renameDurably } from '../../files/durable.ts'
import { type FileLock, LockHeldError, takeLock } from '../../locks/file-lock.ts'

/** Name of the record of an available VM. */
export const SAVED_RECORD = 'saved.json'
/** Name of the record while a process restores the VM, or after that process died. */
const TAKEN = 'taken.json'
/** Name of the record once the guest may have run again: its disk has changed. */
const RAN = 'ran.json'
/** Held by the process that restores the VM; only its holder renames the record. */
const LOCK = 'wake.lock'

/** The right to restore a saved VM. Only the first call of a method has an effect. */
interface SavedClaim {
  /** The guest has not run: makes the VM available again. */
  giveBack(): Promise<void>
  /** The guest is about to run: the VM cannot be restored again, even if this process dies. */
  consumeSavedVm(): Promise<void>
}

/**
 * From now on no other process finds it. @throws {LockHeldError} while another process restores it; ENOENT when there
 * is none
 */
export async function claimSavedVm(directory: string): Promise<SavedClaim> {
  const lock = await takeLock(join(directory, LOCK))
  try {
    await rename(join(directory, SAVED_RECORD), join(directory, TAKEN))
  } catch (error) {
    await lock[Symbol.asyncDispose]()
    throw error
  }
  return claimOf(directory, lock)
}

/**
 * Releases a VM whose process died before the guest ran. @throws {CaissonError} `state_unavailable` when this cannot be
 * determined
 */
export async function giveBackOfDead(directory: string): Promise<void> {
  if (!(await isThere(join(directory, TAKEN)))) return
  try {
    await using _ = await takeLock(join(directory, LOCK))
    // Its holder may have just released it: then the record has another name.
    if (await isThere(join(directory, TAKEN))) await moveBack(directory)
  } catch (error) {
    if (!(error instanceof LockHeldError)) throw error
  }
}

/** Removes a saved VM, unless another process restores it now. @throws the system's errors */
export async function removeSaved(directory: string): Promise<void> {
  if (!(await isThere(directory))) return
  try {
    await using _ = await takeLock(join(directory, LOCK))
    await rm(directory, { recursive: true, force: true })
  } catch (error) {
    if (!(error instanceof LockHeldError)) throw error
  }
}

/** The first call wins: a release during consumption has no effect. */
function claimOf(directory: string, lock: FileLock): SavedClaim {
  let ended: Promise<void> | undefined
  const end = async (rename: () => Promise<void>): Promise<void> => {
    await using _ = lock
    await rename()
  }
  return {
    async giveBack() {
      ended ??= end(() => moveBack(directory))
      await ended
    },
    async consumeSavedVm() {
      // Durable: after a power failure, a VM whose disk changed must not be found again.
      ended ??= end(() => renameDurably(join(directory, TAKEN), join(directory, RAN)))
      await ended
    },
  }
}

async function moveBack(directory: string): Promise<void> {
  await rename(join(directory, TAKEN), join(directory, SAVED_RECORD))
}

async function isThere(file: string): Promise<boolean> {
  return await access(file).then(
    () => true,
    () => false,
  )
}
