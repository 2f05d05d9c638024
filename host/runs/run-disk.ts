/** What is in a run's folder for as long as the run can be continued: its disk, and what it was started with. */
import { rm } from 'node:fs/promises'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { CheckpointDisk } from '../vm/checkpoints/checkpoint-disk.ts'

/** The scratch disk: it outlives the VMs that use it. */
export class RunDisk implements AsyncDisposable {
  readonly #paths: Pick<RunPaths, 'scratch' | 'options' | 'diskFiles'>

  constructor(paths: Pick<RunPaths, 'scratch' | 'options' | 'diskFiles'>) {
    this.#paths = paths
  }

  /** As it was at the checkpoint; without one it is new. @throws {CaissonError} `state_corrupted` when it is damaged */
  async open(checkpoint: RunState['checkpoint']): Promise<CheckpointDisk> {
    const { scratch } = this.#paths
    if (checkpoint !== null) return await CheckpointDisk.open(scratch, checkpoint.checkpointId)
    await rm(scratch, { recursive: true, force: true })
    return await CheckpointDisk.create(scratch)
  }

  /** Removes all of it: the run has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    const { scratch, options, diskFiles } = this.#paths
    for (const file of [options, diskFiles, scratch]) await rm(file, { recursive: true, force: true })
  }
}
