/** A goal as a task, by a service that `caisson serve` started elsewhere. Its run is in a VM. */
import { AbortTaskRunError, task } from '@trigger.dev/sdk'
import { ServiceClient, ServiceError } from 'caisson/client'

interface GoalPayload {
  readonly goal: string
  readonly context?: string
}

export const carryOutGoalOverHttp = task({
  id: 'carry-out-goal-over-http',
  retry: { maxAttempts: 5 },
  run: async ({ goal, context }: GoalPayload, { ctx, signal }) => {
    const { CAISSON_URL: baseUrl = 'http://127.0.0.1:3789', CAISSON_TOKEN: token = '' } = process.env
    const client = new ServiceClient({ baseUrl, token })
    try {
      return await client.call('runTask', {
        body: { goal, ...(context === undefined ? {} : { context }) },
        // Another attempt finds the same run.
        idempotencyKey: ctx.run.id,
        signal,
      })
    } catch (error) {
      const isRefused = error instanceof ServiceError && [400, 401, 403].includes(error.status)
      if (isRefused) throw new AbortTaskRunError(error.message)
      throw error
    }
  },
})
