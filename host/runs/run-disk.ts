/** What is in a run's folder for as long as the run can be continued: its disk, and what it was started with. */
import { rm } from 'node:fs/promises'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { CheckpointDisk } from '../vm/checkpoints/checkpoint-disk.ts'

/** The scratch disk: it outlives the VMs that use it. */
export class RunDisk implements AsyncDisposable {
  readonly #paths: Pick<RunPaths, 'scratch' | 'disk' | 'options' | 'diskFiles'>
  #isKept = false

  constructor(paths: Pick<RunPaths, 'scratch' | 'disk' | 'options' | 'diskFiles'>) {
    this.#paths = paths
  }

  /** As it was at the checkpoint; without one it is new. @throws {CaissonError} `state_corrupted` when it is damaged */
  async open(checkpoint: RunState['checkpoint']): Promise<CheckpointDisk> {
    const { scratch } = this.#paths
    if (checkpoint !== null) return await CheckpointDisk.open(scratch, checkpoint.checkpointId)
    await rm(scratch, { recursive: true, force: true })
    return await CheckpointDisk.create(scratch)
  }

  /** For another process, which can continue the run. */
  keep(): void {
    this.#isKept = true
  }

  /** Removes all of it, as the run has ended, unless it is kept. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isKept) return
    const { scratch, disk, options, diskFiles } = this.#paths
    for (const file of [options, diskFiles, scratch, disk]) await rm(file, { recursive: true, force: true })
  }
}
