/** A goal as a task, in the worker itself: no HTTP service, no VM. */
import { AbortTaskRunError, task } from '@trigger.dev/sdk'
import { Agent, OptionsError } from 'caisson/agent'

interface GoalPayload {
  readonly goal: string
  readonly context?: string
}

export const carryOutGoal = task({
  id: 'carry-out-goal',
  retry: { maxAttempts: 3 },
  run: async ({ goal, context }: GoalPayload, { signal }) => {
    try {
      return await Agent.run(goal, {
        vm: false,
        tools: ['math', 'web_search', 'governance_note'],
        signal,
        ...(context === undefined ? {} : { context }),
      })
    } catch (error) {
      // The payload does not fit: another attempt cannot help.
      if (error instanceof OptionsError) throw new AbortTaskRunError(error.message)
      throw error
    }
  },
})
