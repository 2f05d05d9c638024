/** The model that a part of a run uses in place of the run's own. */
import type { Agents } from '../tool-calls/sub-agent-types.ts'
import { atEffort } from './effort.ts'
import type { AgentRun } from './run.ts'

/** Names of the models that steps and sub-agents may have. */
export function modelNamesOf({ stepModels }: Pick<AgentRun, 'stepModels'>): string[] {
  return [...(stepModels?.keys() ?? [])]
}

/** The run with another of its models, in what it starts too; unchanged without a name. */
export function atModel(run: AgentRun, name: string | undefined): AgentRun {
  if (name === undefined) return run
  const chosen = run.stepModels?.get(name)
  if (chosen === undefined) throw new TypeError(`the run has no model ${JSON.stringify(name)}`)
  const { price: _, contextTokens: __, ...task } = run.task
  const { id, model, price, contextTokens } = chosen
  const changed: AgentRun = {
    ...run,
    task: {
      ...task,
      model: id,
      ...(price === undefined ? {} : { price }),
      ...(contextTokens === undefined ? {} : { contextTokens }),
    },
    model,
    modelName: name,
    ...(run.agents === undefined ? {} : { agents: agentsAt(run.agents, name) }),
  }
  return atEffort(changed, task.effort)
}

/** The same sub-agents, with this model where a request names none. */
function agentsAt(agents: Agents, model: string): Agents {
  return {
    get begun() {
      return agents.begun
    },
    spawn: (request, stepId, signal) => agents.spawn({ model, ...request }, stepId, signal),
    findView: (agent) => agents.findView(agent),
    takeFile: (agent, path) => agents.takeFile(agent, path),
  }
}
