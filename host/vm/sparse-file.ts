// Files that a machine's memory and disks live in.

import { open } from 'node:fs/promises'

/** Makes a file of that size that takes no room until it is written. Fails where one is. */
export async function makeSparseFile(file: string, bytes: number, mode = 0o600): Promise<void> {
  const handle = await open(file, 'wx', 0o600)
  try {
    if (mode !== 0o600) await handle.chmod(mode)
    await handle.truncate(bytes)
  } finally {
    await handle.close()
  }
}

/** Resolves once what was written to it is on the disk. */
export async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
