/** A step of a workflow that talks with the model: its messages, what it may call, and the conversation it continues. */
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { WorkflowStep } from '#specs/protocol/workflow.ts'
import { workflowSystemPrompt } from '../context/prompts.ts'
import type { AgentRun } from '../run/run.ts'
import { describeOutput } from '../step/step-output.ts'
import { isAmong } from '../tool-calls/registry.ts'
import type { Agents } from '../tool-calls/sub-agent-types.ts'
import { addStepsName, createAddStepsTool } from '../tools/add-steps.ts'
import { revisePlanName } from '../tools/revise-plan.ts'
import type { Round, WorkflowValues } from './values.ts'

/** Said where the step's messages end without a request. */
const beginning = 'Begin.'

/** The run as the step has it: with its functions and tools alone, and its bound of turns. */
export function runOfStep(step: WorkflowStep, run: AgentRun): Result<AgentRun, string> {
  const { functions = [], tools = [], maxTurns, mayAdd } = step
  const chosen = tools.length === 0 ? { ok: true as const, value: [] } : run.registry.choose(tools)
  if (!chosen.ok) return { ok: false, error: `tools: ${chosen.error.message}` }
  // A workflow is changed by what its file allows, not by its model.
  const names = new Set([...functions, ...chosen.value].filter((name) => name !== revisePlanName))
  const registry = run.registry.select([...names])
  if (!registry.ok) return { ok: false, error: `function: ${registry.error.message}` }
  const { addedFunctions = [] } = run
  const shared = registry.value.names.filter((name) => !addedFunctions.includes(name))
  const asksToAdd = mayAdd !== undefined && isAmong(addStepsName, run.askPatterns ?? [])
  const { limits, askTools } = run.task
  const maxTurnsPerStep = Math.min(maxTurns ?? limits.maxTurnsPerStep, limits.maxTurnsPerStep)
  return {
    ok: true,
    value: {
      ...run,
      task: {
        ...run.task,
        limits: { ...limits, maxTurnsPerStep },
        askTools: asksToAdd ? [...askTools, addStepsName] : askTools,
      },
      registry: mayAdd === undefined ? registry.value : registry.value.with([createAddStepsTool(mayAdd)]),
      functions: { names: functions, atOnce: step.callsAtOnce === true },
      ...(run.agents === undefined ? {} : { agents: agentsWithin(run.agents, shared) }),
    },
  }
}

/** The same sub-agents, with no tool that the step does not have. */
function agentsWithin(agents: Agents, names: readonly string[]): Agents {
  return {
    get begun() {
      return agents.begun
    },
    spawn: (request, stepId, signal) =>
      agents.spawn(
        { ...request, tools: names.filter((name) => request.tools?.includes(name) ?? true) },
        stepId,
        signal,
      ),
    findView: (agent) => agents.findView(agent),
    takeFile: (agent, path) => agents.takeFile(agent, path),
  }
}

/** The messages that begin the step: a system and a user message, then turns. @param earlier the conversation it continues */
export function openChat(
  step: WorkflowStep,
  values: WorkflowValues,
  round: Round,
  earlier: readonly ChatMessage[] | undefined,
): Result<readonly ChatMessage[], string> {
  const said: ChatMessage[] = []
  const rules: string[] = []
  for (const [index, { role, text }] of (step.chat ?? []).entries()) {
    const rendered = values.prompt(text, `chat.${index}.content`, round)
    if (!rendered.ok) return rendered
    const content = rendered.value.toWellFormed()
    // Servers take a system message at the beginning alone.
    if (role === 'system' && said.length === 0 && earlier === undefined) rules.push(content)
    else if (role === 'assistant') said.push({ role, content, toolCalls: [] })
    else said.push({ role: 'user', content })
  }
  if (step.output !== undefined) said.push({ role: 'user', content: describeOutput(step.output) })
  if (said.at(-1)?.role !== 'user') said.push({ role: 'user', content: beginning })
  if (earlier !== undefined) return { ok: true, value: [...earlier, ...joinUsers(said)] }
  const hasCalls = (step.functions ?? []).length + (step.tools ?? []).length > 0 || step.mayAdd !== undefined
  const system: ChatMessage = {
    role: 'system',
    content: [workflowSystemPrompt(hasCalls), ...rules].join('\n\n'),
  }
  const first: readonly ChatMessage[] =
    said[0]?.role === 'user' ? said : [{ role: 'user', content: beginning }, ...said]
  return { ok: true, value: [system, ...joinUsers(first)] }
}

/** Servers take user messages and answers in turn alone. */
function joinUsers(messages: readonly ChatMessage[]): ChatMessage[] {
  const joined: ChatMessage[] = []
  for (const message of messages) {
    const last = joined.at(-1)
    if (last?.role === 'user' && message.role === 'user')
      joined.splice(-1, 1, { role: 'user', content: `${last.content}\n\n${message.content}` })
    else joined.push(message)
  }
  return joined
}
