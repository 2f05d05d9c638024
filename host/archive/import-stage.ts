/**
 * The folder in which an archive is unpacked, beside the runs. It becomes a run by one rename. What a killed import left
 * is removed with the next one, the next run and `caisson clean`: its lock is no longer held.
 */
import { randomBytes } from 'node:crypto'
import { mkdir, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { syncDirectory } from '../files/durable.ts'
import { lockOfStage } from '../journal/import-stages.ts'
import { type FileLock, takeLock } from '../locks/file-lock.ts'
import type { Folders } from '../state/folders.ts'

export class ImportStage implements AsyncDisposable {
  readonly directory: string
  readonly #lock: FileLock

  private constructor(directory: string, lock: FileLock) {
    this.directory = directory
    this.#lock = lock
  }

  static async open({ runs, locks }: Pick<Folders, 'runs' | 'locks'>): Promise<ImportStage> {
    const name = `.import-${randomBytes(8).toString('hex')}`
    await mkdir(locks, { recursive: true, mode: 0o700 })
    const lock = await takeLock(lockOfStage(locks, name))
    const stage = new ImportStage(path.join(runs, name), lock)
    await mkdir(stage.directory, { recursive: true, mode: 0o700 })
    return stage
  }

  /** Gives the folder its name as a run. */
  async become(directory: string): Promise<void> {
    await rename(this.directory, directory)
    await syncDirectory(path.dirname(directory))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.directory, { recursive: true, force: true })
    await this.#lock[Symbol.asyncDispose]()
  }
}
