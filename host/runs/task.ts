/** Builds the task for the agent from the settings of a run; excludes what the agent must not know. */
import type { Task } from '#specs/protocol/task.ts'
import { toolsNamedByRules } from '../approvals/rules.ts'
import type { RunHooks } from '../hooks/run-hooks.ts'
import { secretsContext } from '../secrets/context.ts'
import type { ResolvedRun } from './resolved-run.ts'
import { knowledgeOf } from './task-context.ts'

/** @param approvesPlan whether a person must approve every plan */
export function taskOf(plan: ResolvedRun, hooks: RunHooks, approvesPlan: boolean): Task {
  const { runId, prompt, provider, limits, tools, approvals, continues, secrets } = plan
  const { mode, given, contextTokens, embeddings, mcp } = plan
  const context = { ...secretsContext(secrets), ...continues?.context, ...plan.context }
  const hostTools = [...(plan.hostTools?.values() ?? [])].map(({ offer }) => offer)
  const ofAgent = hooks.ofAgent
  return {
    runId,
    prompt,
    model: provider.model,
    askTools: toolsNamedByRules(approvals.rules, ['*']),
    limits,
    ...(mode === 'work' ? {} : { mode }),
    ...(approvesPlan ? { approvePlan: true } : {}),
    ...(given === undefined ? {} : { plan: given.plan }),
    ...(contextTokens === undefined ? {} : { contextTokens }),
    ...(Object.keys(context).length === 0 ? {} : { context }),
    ...(tools === undefined ? {} : { tools: [...tools] }),
    ...(embeddings === undefined ? {} : { embeddingModel: embeddings.model }),
    ...(hostTools.length === 0 ? {} : { hostTools }),
    ...(mcp === undefined ? {} : { mcpServers: { ...mcp.servers } }),
    ...(ofAgent.length === 0 ? {} : { hooks: [...ofAgent] }),
    ...knowledgeOf(plan),
  }
}
