import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

/** The folders of state files, empty. */
export async function stateFolders(name: string): Promise<{ readonly home: string; readonly locks: string }> {
  const home = await temporaryFolder(name)
  const locks = path.join(home, 'locks')
  await mkdir(locks)
  return { home, locks }
}
