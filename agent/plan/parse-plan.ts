/**
 * Parses a plan: accepts it as is, else repairs unambiguous mistakes, and lists what cannot run here. When the plan
 * replaces another, steps that already started are kept.
 */

import { describeSchemaIssues } from '#runtime/arguments/json-schema.ts'
import { isRecord } from '#runtime/llm/json-schema.ts'
import type { Turn } from '#runtime/llm/model.ts'
import { openSchema } from '#specs/node/json-schema.ts'
import type { Result } from '#specs/protocol/error.ts'
import { Plan, type StepState } from '#specs/protocol/plan.ts'
import { type AgentRoom, findAgentProblems } from '#specs/protocol/plan-agents.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import { findStepModelProblems } from '#specs/protocol/run-models.ts'
import type { AgentRun } from '../run/run.ts'
import { modelNamesOf } from '../run/step-model.ts'
import { repairPlan } from './repair.ts'

export interface PlannedWork {
  readonly plan: Plan
  /** Descriptions of the repairs in the model's answer. */
  readonly corrections: readonly string[]
  /** The first turn of its only step, when the model began the work instead of planning. */
  readonly begun?: Turn
}

/** The current plan, which another one replaces. */
export interface FormerPlan {
  readonly plan: Plan
  /** States of its steps with their results; a step without an entry has not started. */
  readonly states: Readonly<Record<string, { readonly state: StepState; readonly text: string }>>
}

/** A plan that was not accepted, and why. */
export interface Replanning extends FormerPlan {
  /** The failed step, or the feedback of a person who denied the plan. */
  readonly why: { readonly failedStep: string } | { readonly hint: string }
}

/** Limits on a plan besides its schema. */
export interface PlanBounds {
  /** Names of the tools that steps of the kind `agent` may use. */
  readonly tools: readonly string[]
  readonly agents: AgentRoom
  /** Names of the models that steps may have. Absent: none. */
  readonly models?: readonly string[]
  readonly former?: FormerPlan
}

/** The limits of this run at this moment. */
export function boundsOf(run: AgentRun, former?: FormerPlan): PlanBounds {
  const { maxAgents } = run.task.limits
  return {
    tools: run.registry.names,
    models: modelNamesOf(run),
    agents: { maxAgents, begun: run.agents?.begun ?? 0 },
    ...(former === undefined ? {} : { former }),
  }
}

/** Parses the plan in `value`; the error tells the model what is wrong. */
export async function parsePlan(value: unknown, bounds: PlanBounds): Promise<Result<PlannedWork, string>> {
  const strict = await readWhole(value, [], bounds)
  if (strict.ok) return strict
  const repaired = repairPlan(value, bounds.models)
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
  if (!parsed.success) return { ok: false, error: describeSchemaIssues(parsed.error, 'plan') }
  const problems = await findPlanProblems(parsed.data, bounds)
  if (problems.length > 0) return { ok: false, error: problems.slice(0, 12).join('; ') }
  const more = restored.ids.length === 0 ? [] : [`put back: ${restored.ids.join(', ')}, which have begun`]
  return { ok: true, value: { plan: parsed.data, corrections: [...corrections, ...more] } }
}

/** Reasons why a plan that fits its schema cannot run. */
export async function findPlanProblems(plan: Plan, bounds: PlanBounds): Promise<string[]> {
  const { former } = bounds
  const problems = [
    ...(former === undefined ? [] : findRevisionProblems(former.plan, plan, former.states)),
    ...findAgentProblems(plan, bounds.agents, former?.states ?? {}),
    ...findStepModelProblems(plan, bounds.models ?? []),
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

/** Steps that started cannot be removed: models often submit only what is left to do. */
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
