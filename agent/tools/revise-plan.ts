/** `revise_plan`: submits a new plan to replace the current one. The executor decides what it may change. */
import * as z from 'zod'
import { Line } from '#specs/protocol/text.ts'
import { planForm } from '../tool-calls/plan-form.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'

export const revisePlanName = 'revise_plan'

/** @param models names that a step may have as its model; default none */
export function createRevisePlanTool(models: readonly string[] = []): Tool {
  const inputSchema = z.strictObject({
    reason: Line.min(1).describe('Why the plan has to change, in one line for people'),
    // Parsed by the executor, which also repairs mistakes.
    plan: z.unknown().meta(planForm(models)),
  })
  return defineTool({
    name: revisePlanName,
    description:
      'Changes the plan, when what you found shows that the steps to come would not reach its goal. Give the whole new plan: steps that have begun stay exactly as they are or are left out, the others may be changed, added or dropped. Then continue with this step.',
    inputSchema,
    outputSchema: z.strictObject({ text: z.string() }),
    requiresApproval: false,
    readOnly: false,
    inPrograms: false,
    destructive: false,
    execute: async ({ plan, reason }, { revisePlan, signal }) => {
      if (revisePlan === undefined)
        return toolFailure('unavailable', 'there is no plan here that could be changed')
      const revised = await revisePlan(plan, reason, signal)
      return revised.ok ? toolSuccess({ text: revised.value }) : revised
    },
    render: ({ text }) => text,
  })
}
