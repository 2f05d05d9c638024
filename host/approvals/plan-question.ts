/** Recognizes questions about a plan, and reads a plan from a question, a person or a program. */

import { errorMessage } from '#specs/errors.ts'
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { parseJson } from '../files/json.ts'

/** Tool name of the agent's plan question; no call with this name ever runs. */
export const planTool = 'submit_plan'

/** The plan of the question; undefined for other questions, or without a valid plan. A sub-agent has no plan. */
export function planOf(request: Pick<ApprovalRequest, 'agentPath' | 'tool' | 'arguments'>): Plan | undefined {
  if (request.tool !== planTool || request.agentPath !== 'root') return undefined
  const parsed = Plan.safeParse(parseJson(request.arguments))
  return parsed.success ? parsed.data : undefined
}

/** Whether rules require approval of every plan without `--approve-plan`. A rule for `*` covers only tools. */
export function asksAboutPlan(rules: readonly ApprovalRule[]): boolean {
  return rules.some(({ effect, tool }) => effect !== 'allow' && tool === planTool)
}

/** A valid plan from outside in canonical form, or its problems with their positions. */
export function parseOutsidePlan(value: unknown): Result<Plan, string> {
  try {
    const parsed = Plan.safeParse(value, plainMessages)
    if (parsed.success) return { ok: true, value: parsed.data }
    return { ok: false, error: describeIssues(parsed.error, { root: 'the plan', max: 5 }) }
  } catch (error) {
    // Objects of an application may be cyclic, nested without a limit, or throw when they are read.
    return { ok: false, error: `reading the plan failed: ${errorMessage(error)}` }
  }
}

/** Reads a plan from JSON text. */
export function readPlanText(text: string): Result<Plan, string> {
  try {
    return parseOutsidePlan(JSON.parse(text))
  } catch (error) {
    return { ok: false, error: `not JSON: ${errorMessage(error)}` }
  }
}
