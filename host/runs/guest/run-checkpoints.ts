/**
 * Checkpoints of a run: the scratch disk with the agent's log and the journal until here, from which another agent can
 * continue. Keeps the newest, and those before the steps; the layers of others are merged while the run works.
 */
import { errorMessage } from '#specs/errors.ts'
import type { BoundedLog } from '../../journal/bounded-log.ts'
import type { Recorder } from '../../recording/recorder.ts'
import type { Checkpoints } from '../../vm/checkpoints/checkpoints.ts'
import type { Vm } from '../../vm/vm.ts'
import type { GuestRecord } from './guest-parts.ts'

/** Layers of a VM at which checkpoints that are not kept are given up: a merge costs more than a checkpoint. */
const maxCount = 20
/** The newest. */
const keptCount = 2

interface RunCheckpointsParts {
  readonly record: Pick<GuestRecord, 'host' | 'state'>
  readonly recorder: Recorder
  readonly log: BoundedLog
  /** Time of the run that counts toward its limit. */
  readonly elapsedMs: () => number
}

export class RunCheckpoints {
  readonly #vm: () => Vm
  readonly #parts: RunCheckpointsParts

  constructor(vm: () => Vm, parts: RunCheckpointsParts) {
    this.#vm = vm
    this.#parts = parts
  }

  /** Whether there is a checkpoint now, in the journal too. Without one the run continues. */
  async make(checkpointId: string): Promise<boolean> {
    const { checkpoints } = this.#vm()
    const { record, recorder, elapsedMs } = this.#parts
    if (checkpoints === undefined) return false
    const startedAt = performance.now()
    // What is asked from here on belongs to the agent that continues.
    const exchanges = recorder.count
    try {
      await checkpoints.make(checkpointId)
      // Behind the checkpoint the file is counted from there.
      await recorder.flush()
      const durationMs = Math.round(performance.now() - startedAt)
      await record.host({ type: 'checkpoint', checkpointId, durationMs, elapsedMs: elapsedMs(), exchanges })
    } catch (error) {
      this.#warn('no checkpoint was made', error)
      return false
    }
    await this.#bound(checkpoints).catch((error: unknown) => this.#warn('the layers were not merged', error))
    return true
  }

  /**
   * Whatever the guest writes, and however often it asks, its layers stay below three sizes of its disk. The moments of
   * steps are given up for that, the oldest first.
   */
  async #bound(checkpoints: Checkpoints): Promise<void> {
    const moments = [
      ...new Set(Object.values(this.#parts.record.state.moments).map(({ checkpointId }) => checkpointId)),
    ]
    const isLarge = await isTooLarge(checkpoints)
    if (checkpoints.ownCount < maxCount && !isLarge) return
    const dropped = dropOthers(checkpoints, moments)
    if (!isLarge)
      return void dropped.catch((error: unknown) => this.#warn('the layers were not merged', error))
    await dropped
    while (moments.length > 0 && (await isTooLarge(checkpoints))) {
      moments.splice(0, Math.ceil(moments.length / 2))
      await dropOthers(checkpoints, moments)
    }
  }

  #warn(message: string, error: unknown): void {
    const cause = errorMessage(error)
    this.#parts.log.write({ at: Date.now(), from: 'host', level: 'warn', message, cause })
  }
}

async function isTooLarge(checkpoints: Checkpoints): Promise<boolean> {
  const { diskBytes, layerBytes } = await checkpoints.measure()
  return layerBytes > diskBytes
}

function dropOthers(checkpoints: Checkpoints, moments: readonly string[]): Promise<void> {
  const kept = new Set(moments)
  return checkpoints.drop(new Set(checkpoints.list.slice(0, -keptCount).filter((id) => !kept.has(id))))
}
