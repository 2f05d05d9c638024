/** Temporal: the activities of `temporal-workflow.ts`, for a worker. Runs of Caisson are started by the ID of the workflow. */
import { ApplicationFailure, Context } from '@temporalio/activity'
import { runToEnd, ServiceClient, ServiceError } from 'caisson/client'

const { CAISSON_URL: baseUrl = 'http://127.0.0.1:3789', CAISSON_TOKEN: token = '' } = process.env
const client = new ServiceClient({ baseUrl, token })
const heartbeatMs = 10_000

export interface Task {
  readonly prompt: string
  /** On the machine of the service. Absent: an empty one. */
  readonly workspace?: string
}

/** One run, whichever worker carries the activity out, and however often. @returns its id */
export async function carryOut({ prompt, workspace }: Task): Promise<string> {
  const context = Context.current()
  const { workflowExecution, activityId } = context.info
  const key = `${workflowExecution?.workflowId}:${activityId}`.replaceAll(/[^A-Za-z0-9._:~-]/g, '_')
  // By it a worker hears that the activity is cancelled, and Temporal that the worker lives.
  const heartbeat = setInterval(() => context.heartbeat(), heartbeatMs)
  try {
    const { runId, outcome, message } = await runToEnd(client, {
      ...{ key, signal: context.cancellationSignal },
      // A worker that ends leaves the run to the next one.
      onAbort: () => (context.cancellationDetails?.cancelRequested === true ? 'cancel' : 'leave'),
      run: { prompt, ...(workspace === undefined ? {} : { workspace }) },
      onQuestion: ({ runId, approval }) =>
        context.log.info(`a person has to answer ${baseUrl}/#/runs/${runId}`, {
          question: approval.approvalId,
        }),
    })
    if (outcome === 'completed') return runId
    throw ApplicationFailure.nonRetryable(`${runId} ${outcome}: ${message}`)
  } catch (error) {
    if (error instanceof ServiceError && [400, 401, 403, 404, 409].includes(error.status))
      throw ApplicationFailure.nonRetryable(error.message, error.code)
    throw error
  } finally {
    clearInterval(heartbeat)
  }
}

/** What a run changed, as a patch. */
export async function takePatch(runId: string): Promise<string> {
  return await client.call('getPatch', { params: { run: runId } })
}
