// Whose a saved VM is: nobody's, so that it is found; a process's that wakes it; or its guest's, which has run again.
// A process that died before the guest ran gives it back. Knows nothing of what the record says.

import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { renameDurably } from '../state/durable.ts'
import { parseJson } from '../state/json.ts'
import { judgeProcess, ownIdentity, ProcessIdentity } from '../state/process-identity.ts'

/** Where the record is found. */
export const SAVED_RECORD = 'saved.json'
/** The record while a process wakes the VM. */
const TAKEN = 'taken.json'
/** Which process that is; written before it takes the record. */
const TAKER = 'taker.json'
/** The record since the guest has run again, as far as anybody can know: its disk has moved on. */
const RAN = 'ran.json'

/** From here nobody else finds it. @throws when it is not there to be taken */
export async function takeSaved(directory: string): Promise<void> {
  await writeFile(join(directory, TAKER), JSON.stringify(await ownIdentity()), { mode: 0o600, flush: true })
  await rename(join(directory, SAVED_RECORD), join(directory, TAKEN))
}

/** It has not run and can be found again. */
export async function giveBackSaved(directory: string): Promise<void> {
  await rename(join(directory, TAKEN), join(directory, SAVED_RECORD))
}

/** The guest is about to run: it is good for no other wake, whatever becomes of this process. */
export async function markRan(directory: string): Promise<void> {
  // After a power failure its disk may have moved on: it must not be found as saved again.
  await renameDurably(join(directory, TAKEN), join(directory, RAN))
}

/** Gives it back where the process that took it died before the guest ran. */
export async function giveBackOfDead(directory: string): Promise<void> {
  const text = await readFile(join(directory, TAKER), 'utf8').catch(() => '')
  const taker = ProcessIdentity.safeParse(parseJson(text))
  if (!taker.success || (await judgeProcess(taker.data)) !== 'dead') return
  // It may not have taken it, or somebody else was quicker.
  await giveBackSaved(directory).catch(() => undefined)
}
