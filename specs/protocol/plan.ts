/** The plan: a graph of steps, validated here before anything runs. */
import * as z from 'zod'
import { isWithinDepth } from './json-depth.ts'
import { limits } from './limits.ts'
import { findReferences } from './plan-references.ts'
import { ModelName } from './run-models.ts'
import { Document, Line } from './text.ts'

/** Chosen by the model: short, readable, unique in the plan. */
export const StepId = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,31}$/, 'expected 1 to 32 of a-z 0-9 _ -')

/** A value within an output: names and indices joined by dots, such as `files.0.path`. */
export const OutputPath = Line.regex(/^[^.{}\s]+(\.[^.{}\s]+)*$/, 'expected names joined by dots')

/** When a step runs. All given conditions must hold; otherwise the step is skipped, which is not a failure. */
export const Condition = z.strictObject({
  /** The step to wait for, whatever its outcome. */
  step: StepId,
  /** Required outcome. Absent: `completed`. */
  state: z.enum(['completed', 'failed', 'skipped']).optional(),
  /** Path in its output for `equals` and `contains`; absent: the whole. */
  path: OutputPath.optional(),
  /** The expected value; text is compared after trimming. */
  equals: z.union([Line, z.number(), z.boolean(), z.null()]).optional(),
  /** Substring of the text, or member of the list. */
  contains: Line.min(1).optional(),
})
export type Condition = z.infer<typeof Condition>

/** Keeps a plan within a message's nesting limit. */
const outputSchemaMaxDepth = 12

/** A JSON schema of an object; only the agent checks more than types, required names and enums. */
export const OutputSchema = z
  .record(z.string(), z.unknown())
  .refine(
    (schema) => isWithinDepth(schema, outputSchemaMaxDepth),
    `expected at most ${outputSchemaMaxDepth} levels of nesting`,
  )
export type OutputSchema = z.infer<typeof OutputSchema>

/** Limits of one sub-agent, within what the run has left; absent: the run's turns, and a fair share of the rest. */
export const AgentLimits = z.strictObject({
  /** Model turns. */
  maxTurns: z.int().min(1).max(1_000).optional(),
  maxToolCalls: z.int().min(1).max(100_000).optional(),
  /** Tokens in and out. */
  maxTokens: z.int().min(1).optional(),
  maxWallMs: z.int().min(1_000).optional(),
  /** Model requests, with those of its own sub-agents. */
  maxRequests: z.int().min(1).optional(),
  /** US dollars by the user's prices; without a price it limits nothing. */
  maxCostUsd: z.number().positive().optional(),
  /** Sub-agents below it; absent: what the run has left. */
  maxAgents: z.int().min(0).max(256).optional(),
})
export type AgentLimits = z.infer<typeof AgentLimits>

/** How much a model reasons before it answers; each model gets it in its own form, or not at all where it has none. */
export const Effort = z.enum(['none', 'low', 'medium', 'high'])
export type Effort = z.infer<typeof Effort>

/** Where a sub-agent works: beside its parent, or in a VM of its own over a copy of its parent's disk. */
export const AgentIsolation = z.enum(['view', 'vm'])
export type AgentIsolation = z.infer<typeof AgentIsolation>

/** What the host refuses a sub-agent in a VM of its own, although the run may do it. */
export const AgentBounds = z.strictObject({
  /**
   * The only hosts that it may reach, each as in an egress rule; the rules of the run apply to them. Empty: none. Absent:
   * what the run may reach.
   */
  hosts: z.array(Line.min(1)).max(64).optional(),
  /** `deny`: what needs a person's permission is denied without a question. Absent: `ask`. */
  approvals: z.enum(['ask', 'deny']).optional(),
})
export type AgentBounds = z.infer<typeof AgentBounds>

export const Step = z.strictObject({
  id: StepId,
  /**
   * `agent`: executed by a sub-agent with its own context, budget and workspace view, merged when it ends. Absent:
   * `task`.
   */
  kind: z.enum(['task', 'agent']).optional(),
  /** One line for people. */
  title: Line.min(1),
  /**
   * Instructions for the agent. `{{steps.ID}}` and `{{steps.ID.PATH}}` are replaced by the output, or a part of it,
   * of a step in `needs` or in the condition.
   */
  instructions: Document.min(1),
  /** Steps that must have completed, or been skipped by their own condition, before this one starts. */
  needs: z.array(StepId).max(limits.stepMaxNeeds).default([]),
  /** Absent: runs whenever its needs are met. */
  when: Condition.optional(),
  /** Paths that the step will write, `*` for any; two steps that share one never run at once. */
  writes: z.array(Line.min(1)).max(limits.stepMaxWrites).default(['*']),
  /** Maximum retries after a failure, before `onFailure` applies; a denial is final at once. Absent: 0. */
  retries: z.int().min(0).max(limits.stepMaxRetries).optional(),
  /**
   * Effect of a failure on the run: end it, continue without this step's dependents, or replan the steps that have
   * not started. After a denial the other steps always continue; with `abort` the run fails at its end.
   */
  onFailure: z.enum(['abort', 'continue', 'replan']).default('abort'),
  /** Schema of its answer; absent: text. */
  output: OutputSchema.optional(),
  /** Absent: the run's. */
  effort: Effort.optional(),
  /** Name of a model that the run allows for steps. Absent: the run's. */
  model: ModelName.optional(),
  /** For the kind `agent`: its tools; absent: all of the run's. */
  tools: z.array(Line.min(1)).max(256).optional(),
  /** For the kind `agent`. */
  limits: AgentLimits.optional(),
  /** For the kind `agent`. Absent: `view`. */
  isolation: AgentIsolation.optional(),
  /** For the isolation `vm`. */
  ...AgentBounds.shape,
})
export type Step = z.infer<typeof Step>

export const Plan = z
  .strictObject({
    /** What will be true after the plan's execution. */
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
/** The same before defaults: the form that people and programs write. */
export type PlanInput = z.input<typeof Plan>

export const StepState = z.enum(['pending', 'running', 'completed', 'failed', 'skipped', 'cancelled'])
export type StepState = z.infer<typeof StepState>
/** How a step has ended. */
export const StepEndState = StepState.exclude(['pending', 'running'])

interface GraphProblem {
  readonly index: number
  readonly field:
    | 'id'
    | 'needs'
    | 'when'
    | 'instructions'
    | 'tools'
    | 'limits'
    | 'isolation'
    | keyof AgentBounds
  readonly message: string
}

/** Inconsistencies of a plan; cycles are detected only if every referenced step exists. */
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
  for (const field of ['tools', 'limits', 'isolation'] as const) {
    if (step[field] !== undefined && step.kind !== 'agent')
      problems.push({ field, message: 'only a step of the kind "agent" has these' })
  }
  for (const field of ['hosts', 'approvals'] as const) {
    if (step[field] !== undefined && step.isolation !== 'vm')
      problems.push({ field, message: 'only a step with the isolation "vm" has these' })
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

/** The steps that must end before this one can start. */
export function waitsOf(step: Pick<Step, 'needs' | 'when'>): string[] {
  return step.when === undefined ? step.needs : [...step.needs, step.when.step]
}
