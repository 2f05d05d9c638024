/** The plan: a graph of steps. What the model plans is validated here before anything runs. */
import * as z from 'zod'
import { limits } from './limits.ts'
import { Document, Line } from './text.ts'

/** Chosen by the model: short, readable, unique in the plan. */
export const StepId = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,31}$/, 'expected 1 to 32 of a-z 0-9 _ -')

export const Step = z.strictObject({
  id: StepId,
  /** One line for people. */
  title: Line.min(1),
  /** What to do, for the agent. */
  instructions: Document.min(1),
  /** Steps that must have ended well before this one starts. */
  needs: z.array(StepId).max(limits.stepMaxNeeds).default([]),
  /** Paths that the step means to write, `*` for any; two steps that share one never run at once. */
  writes: z.array(Line.min(1)).max(limits.stepMaxWrites).default(['*']),
  /**
   * What a failure means for the run: end it, or go on without this step's dependents. After a denial the other steps
   * go on in either case; with `abort` the run fails at its end.
   */
  onFailure: z.enum(['abort', 'continue']).default('abort'),
})
export type Step = z.infer<typeof Step>

export const Plan = z
  .strictObject({
    /** What will be true when the plan has been carried out. */
    goal: Line.min(1),
    steps: z.array(Step).min(1).max(limits.planMaxSteps),
  })
  .superRefine((plan, context) => {
    for (const problem of findGraphProblems(plan.steps)) {
      context.addIssue({
        code: 'custom',
        path: ['steps', problem.index, problem.field],
        message: problem.message,
      })
    }
  })
export type Plan = z.infer<typeof Plan>

export const StepState = z.enum(['pending', 'running', 'completed', 'failed', 'skipped', 'cancelled'])
export type StepState = z.infer<typeof StepState>

type GraphProblem = { index: number; field: 'id' | 'needs'; message: string }

/** Doubled ids, needs that name no step, and cycles. */
function findGraphProblems(steps: readonly Step[]): GraphProblem[] {
  const problems: GraphProblem[] = []
  const indexOf = new Map<string, number>()
  steps.forEach((step, index) => {
    if (indexOf.has(step.id))
      problems.push({ index, field: 'id', message: `step id "${step.id}" is used twice` })
    else indexOf.set(step.id, index)
  })
  steps.forEach((step, index) => {
    for (const need of step.needs) {
      if (!indexOf.has(need))
        problems.push({ index, field: 'needs', message: `no step has the id "${need}"` })
    }
  })
  if (problems.length > 0) return problems
  const done = new Set<string>()
  for (;;) {
    const ready = steps.filter((step) => !done.has(step.id) && step.needs.every((need) => done.has(need)))
    if (ready.length === 0) break
    for (const step of ready) done.add(step.id)
  }
  steps.forEach((step, index) => {
    if (!done.has(step.id))
      problems.push({ index, field: 'needs', message: `step "${step.id}" waits for itself` })
  })
  return problems
}
