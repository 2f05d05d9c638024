/** Temporal: a workflow whose activity is a run of Caisson. Temporal starts the activity again where its worker is gone. */
import { proxyActivities } from '@temporalio/workflow'
import type * as activities from './temporal-activities.ts'
import type { Task } from './temporal-activities.ts'

const { carryOut, takePatch } = proxyActivities<typeof activities>({
  // A person may take days to answer.
  startToCloseTimeout: '30 days',
  heartbeatTimeout: '1 minute',
})

export async function carryOutTask(task: Task): Promise<{ runId: string; patch: string }> {
  const runId = await carryOut(task)
  return { runId, patch: await takePatch(runId) }
}
