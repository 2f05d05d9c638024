/**
 * Makes changes of files survive a crash or power failure. A rename or a new file is durable only once its directory is
 * synced; a state file is replaced atomically.
 */

import { randomBytes } from 'node:crypto'
import { type FileHandle, open, readdir, rename, rm } from 'node:fs/promises'
import path from 'node:path'

/** What file systems answer that have no sync for directories. */
const unsupported: ReadonlySet<unknown> = new Set(['EINVAL', 'ENOTSUP', 'EISDIR'])

/** Resolves once the entries of `directory` are on the disk, as far as its file system can promise that. */
export async function syncDirectory(directory: string): Promise<void> {
  await using handle = await open(directory, 'r')
  await handle.sync().catch((error: unknown) => {
    if (!(error instanceof Error && 'code' in error && unsupported.has(error.code))) throw error
  })
}

/** Renames within one directory, or from one below it. Sync the content before. */
export async function renameDurably(from: string, to: string): Promise<void> {
  await rename(from, to)
  await syncDirectory(path.dirname(to))
}

/**
 * Replaces a state file, readable for this user alone. The caller holds the file's lock, so other drafts are of killed
 * processes.
 * @throws what the file system does
 */
export async function replaceFile(file: string, content: string | Uint8Array): Promise<void> {
  const [folder, name] = [path.dirname(file), path.basename(file)]
  await removeDrafts(folder, name)
  const draft = path.join(folder, `${name}.${randomBytes(6).toString('hex')}.new`)
  try {
    await using handle = await open(draft, 'wx', 0o600)
    await handle.writeFile(content)
    await handle.sync()
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
  await renameDurably(draft, file)
}

/** All bytes: on a disk that is nearly full, one write of the system may take a part of them and report no error. */
export async function writeWhole(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; )
    done += (await file.write(bytes, done, bytes.length - done, position + done)).bytesWritten
}

async function removeDrafts(folder: string, name: string): Promise<void> {
  const isDraft = (other: string) =>
    other.startsWith(name) && /^\.(?:[0-9a-f]{12}\.)?new$/.test(other.slice(name.length))
  for (const draft of (await readdir(folder)).filter(isDraft))
    await rm(path.join(folder, draft), { force: true })
}
