/** Models that a run may use besides its own: where that cannot answer, and for steps and sub-agents. */
import * as z from 'zod'
import { Line } from './text.ts'

/** As a provider knows the model. */
export const ModelId = z.string().regex(/^[\x21-\x7e]{1,200}$/, 'expected a model id')

/** Models that are asked in this order where another one of the run cannot answer. */
export const FallbackModels = z.array(ModelId).max(8)

/** By which a plan names a model; an id of a model is one. */
export const ModelName = z
  .string()
  .regex(/^[A-Za-z0-9@][\x21-\x7e]{0,199}$/, 'expected a name of letters, digits and signs, without spaces')

const stepModelsMax = 8

/** What steps and sub-agents may use: ids, or names with their ids. */
export const StepModels = z.union(
  [
    z.array(ModelName).max(stepModelsMax),
    z
      .record(ModelName, ModelId)
      .refine((models) => Object.keys(models).length <= stepModelsMax, `expected at most ${stepModelsMax}`),
  ],
  {
    error: `expected a list of at most ${stepModelsMax} model ids, or a map from names to ids; a name has no spaces and begins with a letter or digit`,
  },
)
export type StepModels = readonly string[] | Readonly<Record<string, string>>

/** Ids by name. */
export function namedModels(models: StepModels): ReadonlyMap<string, string> {
  const isList = (given: StepModels): given is readonly string[] => Array.isArray(given)
  return new Map(isList(models) ? models.map((id) => [id, id]) : Object.entries(models))
}

/** US dollars per million tokens. */
export const ModelPrice = z.strictObject({ input: z.number().min(0), output: z.number().min(0) })
export type ModelPrice = z.infer<typeof ModelPrice>

/** A model that steps and sub-agents may use, as the agent knows it. */
export const StepModel = z.strictObject({
  name: ModelName,
  /** As its provider knows it. */
  id: Line.min(1),
  /** Absent: not known. */
  price: ModelPrice.optional(),
  /** Size of its context window in tokens. Absent: not configured. */
  contextTokens: z.int().min(1_024).optional(),
})
export type StepModel = z.infer<typeof StepModel>

/** As a task has them. */
export const TaskStepModels = z.array(StepModel).min(1).max(stepModelsMax)

/** Why no part of the run may use this model, as text for whoever named it; null: it may. */
export function findModelProblem(name: string | undefined, allowed: readonly string[]): string | null {
  if (name === undefined || allowed.includes(name)) return null
  const shown = JSON.stringify(name.slice(0, 100))
  if (allowed.length === 0) return `the run has no model ${shown} and no other but its own: leave it out`
  return `the run has no model ${shown}: use ${allowed.join(', ')}, or leave it out for the model of the run`
}

/** The same for each step of a plan. */
export function findStepModelProblems(
  { steps }: { readonly steps: readonly { readonly model?: string | undefined }[] },
  allowed: readonly string[],
): string[] {
  return steps.flatMap(({ model }, index) => {
    const problem = findModelProblem(model, allowed)
    return problem === null ? [] : [`steps.${index}.model: ${problem}`]
  })
}
