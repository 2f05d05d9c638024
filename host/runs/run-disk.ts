/** The scratch disk of a run, in the run's folder: it outlives the VMs that use it, and goes with the run. */
import { rm } from 'node:fs/promises'
import type { RunState } from '#specs/protocol/run-state.ts'
import { CheckpointDisk } from '../vm/checkpoints/checkpoint-disk.ts'

export class RunDisk implements AsyncDisposable {
  readonly #directory: string

  constructor(directory: string) {
    this.#directory = directory
  }

  /** As it was at the checkpoint; without one it is new. @throws {CaissonError} `state_corrupted` when it is damaged */
  async open(checkpoint: RunState['checkpoint']): Promise<CheckpointDisk> {
    if (checkpoint !== null) return await CheckpointDisk.open(this.#directory, checkpoint.checkpointId)
    await this.#remove()
    return await CheckpointDisk.create(this.#directory)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#remove()
  }

  async #remove(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true })
  }
}
