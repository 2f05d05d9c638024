/** How much the model reasons in a part of a run. */
import type { Model } from '#runtime/llm/model.ts'
import type { Effort } from '#specs/protocol/plan.ts'
import type { AgentRun } from './run.ts'

/** One for each model and effort: what is learned of a model is kept by its identity. */
const known = new WeakMap<Model, Map<Effort, Model>>()

/** The run with the effort in every request to its model that says none itself; unchanged without an effort. */
export function atEffort(run: AgentRun, effort: Effort | undefined): AgentRun {
  if (effort === undefined) return run
  const ofModel = known.get(run.model) ?? new Map<Effort, Model>()
  known.set(run.model, ofModel)
  const model = ofModel.get(effort) ?? ((request, hooks) => run.model({ effort, ...request }, hooks))
  ofModel.set(effort, model)
  return { ...run, task: { ...run.task, effort }, model }
}
