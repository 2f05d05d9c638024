/**
 * Whose a saved VM is: nobody's, so that it can be found; a process's that wakes it and holds its lock; or its guest's,
 * which has run again. A process that died before the guest ran gives it back. Does not read the record.
 */
import { access, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { renameDurably } from '../../files/durable.ts'
import { type FileLock, LockHeldError, takeLock } from '../../locks/file-lock.ts'

/** Where the record is found. */
export const SAVED_RECORD = 'saved.json'
/** The record while a process wakes the VM, or since that process died. */
const TAKEN = 'taken.json'
/** The record since the guest has run again, as far as anybody can know: its disk has moved on. */
const RAN = 'ran.json'
/** Held by the process that wakes the VM: only its holder renames the record. */
const LOCK = 'wake.lock'

/** The right to wake a saved VM, until one of these is called; a later call changes nothing. */
export interface SavedClaim {
  /** The guest has not run: the VM can be found again. */
  giveBack(): Promise<void>
  /** The guest is about to run: the VM is good for no other wake, whatever becomes of this process. */
  consumeSavedVm(): Promise<void>
}

/** From here nobody else finds it. @throws {LockHeldError} while another process wakes it; ENOENT when there is none to take */
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

/** Gives it back where the process that took it died before the guest ran. @throws {CaissonError} `state_unavailable` when nobody can tell */
export async function giveBackOfDead(directory: string): Promise<void> {
  if (!(await isThere(join(directory, TAKEN)))) return
  try {
    await using _ = await takeLock(join(directory, LOCK))
    // Its holder may have let go of it only now: then the record has another name.
    if (await isThere(join(directory, TAKEN))) await moveBack(directory)
  } catch (error) {
    if (!(error instanceof LockHeldError)) throw error
  }
}

/** Removes what was saved, unless another process wakes it right now. @throws the system's errors */
export async function removeSaved(directory: string): Promise<void> {
  if (!(await isThere(directory))) return
  try {
    await using _ = await takeLock(join(directory, LOCK))
    await rm(directory, { recursive: true, force: true })
  } catch (error) {
    if (!(error instanceof LockHeldError)) throw error
  }
}

/** The first of its two ends holds: a giving back that comes while the VM is marked as run changes nothing. */
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
      // After a power failure its disk may have moved on: it must not be found as saved again.
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
