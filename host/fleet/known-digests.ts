/**
 * Digests of files that have not changed since they were read: the layers of a disk and the base of a workspace are hashed once,
 * not at each checkpoint. By device, inode, size and the times of the file, as git's index knows its files.
 */
import { stat } from 'node:fs/promises'
import type { Blob } from './blob-store.ts'

/** A file that changed less than this before it was read may change again without another time. */
const settledMs = 2_000

export class KnownDigests {
  readonly #known = new Map<string, { readonly stamp: string; readonly blob: Blob }>()

  /**
   * What `describe` gave for the file as it is now.
   * @param describe reads the file; gets what it gave before where the file is the same
   */
  async of(file: string, describe: (known: Blob | undefined) => Promise<Blob>): Promise<Blob> {
    const before = await stampOf(file)
    const found = this.#known.get(file)
    const blob = await describe(found !== undefined && found.stamp === before?.stamp ? found.blob : undefined)
    const after = await stampOf(file)
    if (before?.isSettled === true && before.stamp === after?.stamp)
      this.#known.set(file, { stamp: before.stamp, blob })
    else this.#known.delete(file)
    return blob
  }
}

async function stampOf(file: string): Promise<{ stamp: string; isSettled: boolean } | undefined> {
  const found = await stat(file, { bigint: true }).catch(() => undefined)
  if (found === undefined) return undefined
  const { dev, ino, size, mtimeNs, ctimeNs, ctimeMs } = found
  const isSettled = Date.now() - Number(ctimeMs) > settledMs
  return { stamp: [dev, ino, size, mtimeNs, ctimeNs].join(' '), isSettled }
}
