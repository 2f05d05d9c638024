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
