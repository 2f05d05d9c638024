/** The plan: a graph of steps. What the model plans is validated here before anything runs. */
import * as z from 'zod'
import { isWithinDepth } from './json-depth.ts'
import { limits } from './limits.ts'
import { findReferences } from './plan-references.ts'
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

/** So that a plan fits into a message, whose depth has a bound too. */
const outputSchemaMaxDepth = 12

/** A JSON schema of an object; what it asks for beyond types, required names and enums is checked by the agent alone. */
export const OutputSchema = z
  .record(z.string(), z.unknown())
  .refine(
    (schema) => isWithinDepth(schema, outputSchemaMaxDepth),
    `expected at most ${outputSchemaMaxDepth} levels of nesting`,
  )
export type OutputSchema = z.infer<typeof OutputSchema>

/** Bounds of one sub-agent, within what the run has left; absent: of turns the run's, of the others a fair share. */
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
  /**
   * What to do, for the agent. `{{steps.ID}}` and `{{steps.ID.PATH}}` stand for the output of a step that it needs or has its
   * condition on, or a value in it.
   */
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
    for (const { index, field, message } of findGraphProblems(plan.steps)) {
      context.addIssue({ code: 'custom', path: ['steps', index, field], message })
    }
    const { length } = JSON.stringify(plan)
    if (length > limits.documentMaxChars) {
      const message = `${length} characters as JSON; at most ${limits.documentMaxChars} can be shown to a person`
      context.addIssue({ code: 'custom', path: [], message })
    }
  })
export type Plan = z.infer<typeof Plan>
/** The same before the defaults: what a person or a program writes. */
export type PlanInput = z.input<typeof Plan>

export const StepState = z.enum(['pending', 'running', 'completed', 'failed', 'skipped', 'cancelled'])
export type StepState = z.infer<typeof StepState>

interface GraphProblem {
  readonly index: number
  readonly field: 'id' | 'needs' | 'when' | 'instructions' | 'tools' | 'limits'
  readonly message: string
}

/** What of a plan does not hang together; cycles are looked for only where everything that is named is there. */
function findGraphProblems(steps: readonly Step[]): GraphProblem[] {
  const byId = new Map<string, Step>()
  const problems: GraphProblem[] = []
  steps.forEach((step, index) => {
    if (byId.has(step.id))
      problems.push({ index, field: 'id', message: `step id "${step.id}" is used twice` })
    else byId.set(step.id, step)
  })
  steps.forEach((step, index) => {
    problems.push(...findStepProblems(step, byId).map((problem) => ({ index, ...problem })))
  })
  return problems.length > 0 ? problems : findCycles(steps)
}

function findStepProblems(step: Step, byId: ReadonlyMap<string, Step>): Omit<GraphProblem, 'index'>[] {
  const problems: Omit<GraphProblem, 'index'>[] = []
  for (const need of step.needs) {
    if (!byId.has(need)) problems.push({ field: 'needs', message: `no step has the id "${need}"` })
  }
  const { when } = step
  if (when !== undefined && !byId.has(when.step))
    problems.push({ field: 'when', message: `no step has the id "${when.step}"` })
  if (when?.path !== undefined && byId.get(when.step)?.output === undefined)
    problems.push({ field: 'when', message: `step "${when.step}" gives text: a path needs its \`output\`` })
  for (const { text, stepId, path } of findReferences(step.instructions)) {
    const message = !byId.has(stepId)
      ? `${text}: no step has the id "${stepId}"`
      : !waitsOf(step).includes(stepId)
        ? `${text}: step "${stepId}" is not among the needs`
        : path.length > 0 && byId.get(stepId)?.output === undefined
          ? `${text}: step "${stepId}" gives text; a path needs its \`output\``
          : null
    if (message !== null) problems.push({ field: 'instructions', message })
  }
  for (const field of ['tools', 'limits'] as const) {
    if (step[field] !== undefined && step.kind !== 'agent')
      problems.push({ field, message: 'only a step of the kind "agent" has these' })
  }
  return problems
}

function findCycles(steps: readonly Step[]): GraphProblem[] {
  const done = new Set<string>()
  for (let waiting = steps; ; ) {
    const ready = waiting.filter((step) => waitsOf(step).every((id) => done.has(id)))
    if (ready.length === 0) break
    for (const { id } of ready) done.add(id)
    waiting = waiting.filter(({ id }) => !done.has(id))
  }
  return steps.flatMap((step, index) =>
    done.has(step.id)
      ? []
      : [{ index, field: 'needs' as const, message: `step "${step.id}" waits for itself` }],
  )
}

/** The steps that have to end before this one can begin. */
export function waitsOf(step: Pick<Step, 'needs' | 'when'>): string[] {
  return step.when === undefined ? step.needs : [...step.needs, step.when.step]
}
