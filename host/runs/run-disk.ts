/** What is in a run's folder for as long as the run can be continued or forked: its disk, and what it was started with. */
import { rm } from 'node:fs/promises'
import type { RunState } from '#specs/protocol/run-state.ts'
import { keepMoments } from '../journal/kept-moments.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { CheckpointDisk } from '../vm/checkpoints/checkpoint-disk.ts'

type DiskPaths = Pick<
  RunPaths,
  'scratch' | 'disk' | 'options' | 'diskFiles' | 'moments' | 'hibernated' | 'agents'
>

/** The scratch disk: it outlives the VMs that use it. */
export class RunDisk implements AsyncDisposable {
  readonly #paths: DiskPaths
  #isKept = false

  constructor(paths: DiskPaths) {
    this.#paths = paths
  }

  /** As it was at the checkpoint; without one it is new. @throws {CaissonError} `state_corrupted` when it is damaged */
  async open(checkpoint: RunState['checkpoint']): Promise<CheckpointDisk> {
    const { scratch } = this.#paths
    await this.#removeSaved()
    if (checkpoint !== null) return await CheckpointDisk.open(scratch, checkpoint.checkpointId)
    await rm(scratch, { recursive: true, force: true })
    return await CheckpointDisk.create(scratch)
  }

  /** For another process, which can continue the run. */
  keep(): void {
    this.#isKept = true
  }

  /** Of a run that has ended only its moments stay. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isKept) return
    await this.#removeSaved()
    await keepMoments(this.#paths)
  }

  /** What a killed host process had of VMs: another one continues, from a checkpoint. */
  async #removeSaved(): Promise<void> {
    const { hibernated, agents } = this.#paths
    for (const place of [agents, hibernated, `${hibernated}.draft`])
      await rm(place, { recursive: true, force: true })
  }
}
