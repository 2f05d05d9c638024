/** Makes changes of directories survive a power failure: a rename or a new file is durable only once its directory is synced. */
import { open, rename } from 'node:fs/promises'
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
