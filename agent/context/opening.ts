/**
 * The messages with which requests begin: the rules in the system's message, everything else in the user's, within what the
 * model's window leaves room for.
 */
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { AgentRun } from '../run/run.ts'
import { agentSystemPrompt, plannerSystemPrompt } from './prompts.ts'
import { buildContext, type ContextInput, type StepWork } from './sections.ts'
import { type ContextWindow, type WindowOptions, windowOf } from './window.ts'

/** What every request of a step begins with; a function says it anew, by what the plan has become. */
export type Opening = readonly ChatMessage[] | (() => readonly ChatMessage[])

/** Whose window a run's requests have to fit. */
export function windowOptionsOf(run: Pick<AgentRun, 'task' | 'model'>): WindowOptions {
  return { id: run.task.model, model: run.model, contextTokens: run.task.contextTokens }
}

/** The opening of a step of the plan. */
export function stepOpening(run: AgentRun, work: StepWork): readonly ChatMessage[] {
  return open(run, agentSystemPrompt(), { work, messages: run.steering.seen })
}

/** The opening of a planning request. */
export function plannerOpening(run: AgentRun): readonly ChatMessage[] {
  return open(run, plannerSystemPrompt(run.registry.specs), { messages: run.steering.seen })
}

function open(run: AgentRun, rules: string, more: Pick<ContextInput, 'work' | 'messages'>): ChatMessage[] {
  const { task, workspaceListing, guidance, skills } = run
  return [
    { role: 'system', content: rules },
    {
      role: 'user',
      content: buildContext(
        { task, workspaceListing, guidance, skills: skills?.list, ...more },
        roomFor(windowOf(windowOptionsOf(run))),
      ),
    },
  ]
}

/** Characters of the input, counted carefully: some texts have few to a token. */
function roomFor({ inputTokens }: ContextWindow): number {
  return inputTokens * 3
}
