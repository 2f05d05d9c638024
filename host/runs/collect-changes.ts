/** Brings a run's changes from its VM to its folder. */

import type { RunRecord } from '../journal/run-record.ts'
import { type Ending, runEnding } from './ending.ts'
import { keepChanges } from './guest/change-stream.ts'
import type { Guest } from './guest/guest.ts'
import { type PreparedWorkspace, tellChanges } from './prepare.ts'
import { untilAborted } from './until-aborted.ts'

interface CollectParts {
  readonly record: RunRecord
  /** Ends the collection with its reason. */
  readonly signal: AbortSignal
}

/**
 * Collects the change set after a failure too, if the VM still answers.
 * @returns the ending; of a run that failed anyway it says why nothing was collected
 * @throws why the changes of a completed run were not collected
 */
export async function collectChanges(
  guest: Guest,
  workspace: PreparedWorkspace,
  ending: Ending,
  { record, signal }: CollectParts,
): Promise<Ending> {
  try {
    const received = await untilAborted(guest.collect(workspace, tellChanges(record)), signal)
    const { manifest, readBefore } = workspace
    const runDirectory = record.paths.directory
    await record.host(
      await untilAborted(keepChanges(received, { manifest, readBefore, runDirectory }), signal),
    )
    return ending
  } catch (error) {
    if (ending.outcome === 'completed') throw error
    const { message } = runEnding(error)
    return {
      ...ending,
      message: `${ending.message}\nits changes were not collected: ${message}`.slice(0, 8_000),
    }
  }
}
