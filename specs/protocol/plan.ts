/** The plan: a graph of steps. What the model plans is validated here before anything runs. */
import * as z from 'zod'
import { limits } from './limits.ts'
import { Document, Line } from './text.ts'

/** Chosen by the model: short, readable, unique in the plan. */
export const StepId = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,31}$/, 'expected 1 to 32 of a-z 0-9 _ -')

/** A value within an output: names and indices joined by dots, such as `files.0.path`. */
export const OutputPath = Line.regex(/^[^.{}\s]+(\.[^.{}\s]+)*$/, 'expected names joined by dots')

/** When a step is taken. All that is given must hold; a step whose condition does not hold is skipped, which fails nothing. */
export const Condition = z.strictObject({
  /** Waited for until it has ended, however it ends. */
  step: StepId,
  /** How it ended. Absent: `completed`. */
  state: z.enum(['completed', 'failed', 'skipped']).optional(),
  /** Where in its output `equals` and `contains` look; absent: at the whole of it. */
  path: OutputPath.optional(),
  /** The value itself; a text is compared without spaces around it. */
  equals: z.union([Line, z.number(), z.boolean(), z.null()]).optional(),
  /** Part of the text, or a member of the list. */
  contains: Line.min(1).optional(),
})
export type Condition = z.infer<typeof Condition>

/** A JSON schema of an object; what it asks for beyond types, required names and enums is checked by the agent alone. */
export const OutputSchema = z.record(z.string(), z.unknown())
export type OutputSchema = z.infer<typeof OutputSchema>

/** Bounds of one sub-agent; absent ones are the run's. */
export const AgentLimits = z.strictObject({
  /** Turns of the model. */
  maxTurns: z.int().min(1).max(1_000).optional(),
  maxToolCalls: z.int().min(1).max(100_000).optional(),
  /** Tokens in and out. */
  maxTokens: z.int().min(1).optional(),
  maxWallMs: z.int().min(1_000).optional(),
})
export type AgentLimits = z.infer<typeof AgentLimits>

export const Step = z.strictObject({
  id: StepId,
  /**
   * `agent`: carried out by a sub-agent with a context, a budget and a view of the workspace of its own, merged when it ends.
   * Absent: `task`.
   */
  kind: z.enum(['task', 'agent']).optional(),
  /** One line for people. */
  title: Line.min(1),
  /** What to do, for the agent. `{{steps.ID}}` and `{{steps.ID.PATH}}` stand for the output of a step that it needs, or a value in it. */
  instructions: Document.min(1),
  /** Steps that must have completed, or been left aside by their own condition, before this one starts. */
  needs: z.array(StepId).max(limits.stepMaxNeeds).default([]),
  /** Absent: taken whenever its needs are met. */
  when: Condition.optional(),
  /** Paths that the step means to write, `*` for any; two steps that share one never run at once. */
  writes: z.array(Line.min(1)).max(limits.stepMaxWrites).default(['*']),
  /** Times that it is begun anew after a failure, before `onFailure` counts; a denial is final at once. Absent: 0. */
  retries: z.int().min(0).max(limits.stepMaxRetries).optional(),
  /**
   * What a failure means for the run: end it, go on without this step's dependents, or have the steps that have not begun
   * planned anew. After a denial the other steps go on in any case; with `abort` the run fails at its end.
   */
  onFailure: z.enum(['abort', 'continue', 'replan']).default('abort'),
  /** What its answer must be; absent: text. */
  output: OutputSchema.optional(),
  /** For the kind `agent`: what it may use; absent: all that the run may. */
  tools: z.array(Line.min(1)).max(256).optional(),
  /** For the kind `agent`. */
  limits: AgentLimits.optional(),
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
