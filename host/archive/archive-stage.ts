/**
 * The folder in which an archive is unpacked, or in which a part of one is made, beside the runs. An import becomes a run
 * by one rename. What a killed process left is removed with the next import, the next run and `caisson clean`: its lock is
 * no longer held.
 */
import { randomBytes } from 'node:crypto'
import { mkdir, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { syncDirectory } from '../files/durable.ts'
import { lockOfStage, type StageUse } from '../journal/archive-stages.ts'
import { type FileLock, takeLock } from '../locks/file-lock.ts'
import type { Folders } from '../state/folders.ts'

export class ArchiveStage implements AsyncDisposable {
  readonly directory: string
  readonly #lock: FileLock

  private constructor(directory: string, lock: FileLock) {
    this.directory = directory
    this.#lock = lock
  }

  static async open({ runs, locks }: Pick<Folders, 'runs' | 'locks'>, use: StageUse): Promise<ArchiveStage> {
    const name = `.${use}-${randomBytes(8).toString('hex')}`
    await mkdir(locks, { recursive: true, mode: 0o700 })
    const lock = await takeLock(lockOfStage(locks, name))
    const stage = new ArchiveStage(path.join(runs, name), lock)
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
