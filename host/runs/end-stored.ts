/** Ends a run that no process carries out: journals its end under the run's lock. Its changes are not collected. */
import { CaissonError } from '#specs/errors.ts'
import { RunRecord } from '../journal/run-record.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { RunDisk } from './run-disk.ts'

/** @throws {CaissonError} `run_busy` while a process carries the run out, `not_possible_now` when it has ended */
export async function cancelStored(paths: RunPaths, by: string): Promise<void> {
  await using record = await RunRecord.open(paths)
  const { end, usage, checkpoint } = record.state
  if (end !== null) throw new CaissonError('not_possible_now', `${paths.runId} has ended (${end.outcome})`)
  await using _ = new RunDisk(paths)
  await record.host({ type: 'cancel-request', by })
  await record.host({
    type: 'run-end',
    outcome: 'cancelled',
    reason: 'cancelled',
    message: `cancelled by ${by} while no process had the run; its changes were not collected`,
    summary: '',
    usage,
    durationMs: checkpoint?.elapsedMs ?? 0,
  })
}
