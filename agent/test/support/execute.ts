/** Plans carried out by steps that are plain functions, without a model. */
import { Plan, type Step } from '#specs/protocol/plan.ts'
import { executePlan } from '../../plan/executor.ts'
import { PlanState } from '../../plan/plan-state.ts'
import type { Planner } from '../../plan/planner.ts'
import type { AgentRun } from '../../run/run.ts'
import type { StepResult } from '../../step/step.ts'
import { makeRun, type TestRunOptions } from './run.ts'

export const noModel = (): never => {
  throw new Error('no model is asked here')
}
/** A plan whose steps write nothing unless they say so. */
export function planOf(...steps: [id: string, fields?: object][]): Plan {
  return Plan.parse({
    goal: 'g',
    steps: steps.map(([id, fields]) => ({ id, title: id, instructions: `do ${id}`, writes: [], ...fields })),
  })
}

export const done = (text: string): StepResult => ({
  state: 'completed',
  reason: 'completed',
  text,
  history: [],
})
export const failed = (text: string, reason: StepResult['reason'] = 'step_failed'): StepResult => ({
  state: 'failed',
  reason,
  text,
  history: [],
})

/** `attempt` counts from 1. */
export type Perform = (step: Step, run: AgentRun, attempt: number) => StepResult | Promise<StepResult>

/** Executes `plan` with steps that are plain functions; what they get, and what the host heard. */
export async function execute(
  plan: Plan,
  perform: Perform = ({ id }) => done(`answer of ${id}`),
  options: { planner?: Planner; agents?: AgentRun['agents'] } & Omit<TestRunOptions, 'model'> = {},
) {
  const { planner, agents, ...rest } = options
  const test = makeRun({ model: noModel, ...rest })
  const run: AgentRun = agents === undefined ? test.run : { ...test.run, agents }
  const told: Record<string, string[]> = {}
  const ending = await executePlan(new PlanState(plan), run, {
    performStep: async (step, opening, stepRun, signal) => {
      const messages = typeof opening === 'function' ? opening() : opening
      told[step.id] = [...(told[step.id] ?? []), messages.at(-1)?.content ?? '']
      await new Promise((resolve) => setTimeout(resolve, 1))
      if (signal.aborted) return { state: 'cancelled', reason: 'cancelled', text: 'interrupted', history: [] }
      return perform(step, stepRun, told[step.id]?.length ?? 1)
    },
    planner: planner ?? noModel,
  })
  test.run.budget.stop()
  const states = Object.fromEntries(
    test.events.flatMap((event) => (event.type === 'step-end' ? [[event.stepId, event.state]] : [])),
  )
  const updates = test.events.filter((event) => event.type === 'plan-update')
  return { ending, states, told, updates, ...test }
}
