/** Questions about a plan: which they are, what plan they are about, and a plan as a person or a program hands it in. */

import { errorMessage } from '#specs/errors.ts'
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { parseJson } from '../files/json.ts'

/** The tool name under which the agent asks whether its plan may be carried out; no call of that name is ever run. */
export const planTool = 'submit_plan'

/** The plan that the question is about; undefined for any other question, and where it holds none. A sub-agent has no plan. */
export function planOf(request: Pick<ApprovalRequest, 'agentPath' | 'tool' | 'arguments'>): Plan | undefined {
  if (request.tool !== planTool || request.agentPath !== 'root') return undefined
  const parsed = Plan.safeParse(parseJson(request.arguments))
  return parsed.success ? parsed.data : undefined
}

/** Whether rules want every plan put before the host, though nobody said `--approve-plan`. A rule for `*` is about tools. */
export function asksAboutPlan(rules: readonly ApprovalRule[]): boolean {
  return rules.some(({ effect, tool }) => effect !== 'allow' && tool === planTool)
}

/** A plan from outside, whole and in its one form; or what is wrong with it, with the places. */
export function readPlan(value: unknown): Result<Plan, string> {
  const parsed = Plan.safeParse(value, plainMessages)
  if (parsed.success) return { ok: true, value: parsed.data }
  return { ok: false, error: describeIssues(parsed.error, { root: 'the plan', max: 5 }) }
}

/** The same from JSON text. */
export function readPlanText(text: string): Result<Plan, string> {
  try {
    return readPlan(JSON.parse(text))
  } catch (error) {
    return { ok: false, error: `not JSON: ${errorMessage(error)}` }
  }
}
