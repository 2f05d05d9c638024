/**
 * A plan out of what somebody handed in: as it stands, else with its certain slips put right; and what of it cannot be carried
 * out here, in words. Of a plan that takes another one's place, what has begun is put back where it was left out.
 */

import { describeIssues, openSchema } from '#runtime/arguments/json-schema.ts'
import { isRecord } from '#runtime/llm/json-schema.ts'
import type { Result } from '#specs/protocol/error.ts'
import { Plan, type StepState } from '#specs/protocol/plan.ts'
import { type AgentRoom, findAgentProblems } from '#specs/protocol/plan-agents.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import type { AgentRun } from '../run/run.ts'
import { repairPlan } from './repair.ts'

export interface PlannedWork {
  readonly plan: Plan
  /** What was put right in the model's answer, in words. */
  readonly corrections: readonly string[]
}

/** The plan in force, whose place another one is to take. */
export interface FormerPlan {
  readonly plan: Plan
  /** Where its steps stand, with what they gave; a step that is not named has not begun. */
  readonly states: Readonly<Record<string, { readonly state: StepState; readonly text: string }>>
}

/** A plan that does not do, and why. */
export interface Replanning extends FormerPlan {
  /** The step that failed; or what a person said who did not allow the plan. */
  readonly why: { readonly failedStep: string } | { readonly hint: string }
}

/** What a plan is measured by, beside its schema. */
export interface PlanBounds {
  /** Names of the tools that steps of the kind `agent` may name. */
  readonly tools: readonly string[]
  readonly agents: AgentRoom
  readonly former?: FormerPlan
}

/** By what a plan of this run is measured at this moment. */
export function boundsOf(run: AgentRun, former?: FormerPlan): PlanBounds {
  const { maxAgents } = run.task.limits
  return {
    tools: run.registry.names,
    agents: { maxAgents, begun: run.agents?.begun ?? 0 },
    ...(former === undefined ? {} : { former }),
  }
}

/** The plan in `value`; the error says what is wrong with it, for the model. */
export async function readPlan(value: unknown, bounds: PlanBounds): Promise<Result<PlannedWork, string>> {
  const strict = await readWhole(value, [], bounds)
  if (strict.ok) return strict
  const repaired = repairPlan(value)
  // The problems of the repaired plan are those that are left for the model.
  return readWhole(repaired.value, repaired.corrections, bounds)
}

async function readWhole(
  value: unknown,
  corrections: readonly string[],
  bounds: PlanBounds,
): Promise<Result<PlannedWork, string>> {
  const restored = bounds.former === undefined ? { value, ids: [] } : restoreBegun(value, bounds.former)
  const parsed = Plan.safeParse(restored.value)
  if (!parsed.success) return { ok: false, error: describeIssues(parsed.error, 'plan') }
  const problems = await findPlanProblems(parsed.data, bounds)
  if (problems.length > 0) return { ok: false, error: problems.slice(0, 12).join('; ') }
  const more = restored.ids.length === 0 ? [] : [`put back: ${restored.ids.join(', ')}, which have begun`]
  return { ok: true, value: { plan: parsed.data, corrections: [...corrections, ...more] } }
}

/** What of a plan that fits its schema cannot be carried out, in words. */
export async function findPlanProblems(plan: Plan, bounds: PlanBounds): Promise<string[]> {
  const { former } = bounds
  const problems = [
    ...(former === undefined ? [] : findRevisionProblems(former.plan, plan, former.states)),
    ...findAgentProblems(plan, bounds.agents, former?.states ?? {}),
  ]
  for (const [index, { output, tools = [] }] of plan.steps.entries()) {
    const unknown = tools.filter((name) => !bounds.tools.includes(name))
    if (unknown.length > 0) problems.push(`steps.${index}.tools: there is no tool ${unknown.join(', ')}`)
    if (output === undefined) continue
    const schema = await openSchema(output)
    if (!schema.ok) problems.push(`steps.${index}.output: ${schema.error}`)
    else if (output.type !== 'object') problems.push(`steps.${index}.output: expected the type "object"`)
  }
  return problems
}

/** What has begun cannot be left out: models often hand in only what is still to be done. */
function restoreBegun(value: unknown, former: FormerPlan): { value: unknown; ids: string[] } {
  if (!isRecord(value) || !Array.isArray(value.steps)) return { value, ids: [] }
  const given = new Set(value.steps.map((step: unknown) => (isRecord(step) ? step.id : undefined)))
  const missing = former.plan.steps.filter(
    ({ id }) => Object.hasOwn(former.states, id) && former.states[id]?.state !== 'pending' && !given.has(id),
  )
  return {
    value: missing.length === 0 ? value : { ...value, steps: [...missing, ...value.steps] },
    ids: missing.map(({ id }) => id),
  }
}
