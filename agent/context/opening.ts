/**
 * Builds the first messages of a request: rules in the system message, everything else in the user message, within
 * the model's window.
 */
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { ShownSection } from '#specs/protocol/context-section.ts'
import type { AgentRun } from '../run/run.ts'
import { agentSystemPrompt, beginSystemPrompt, plannerSystemPrompt } from './prompts.ts'
import { type BuiltContext, type ContextInput, composeContext, type StepWork } from './sections.ts'
import { type ContextWindow, type WindowOptions, windowOf } from './window.ts'

/** Builds the opening of a step's requests; called again when the plan changes. */
export type Opening = readonly ChatMessage[] | (() => readonly ChatMessage[])

/** The run whose model window limits the requests. */
export function windowOptionsOf(run: Pick<AgentRun, 'task' | 'model'>): WindowOptions {
  return { id: run.task.model, model: run.model, contextTokens: run.task.contextTokens }
}

/** The opening of a plan step. */
export function stepOpening(run: AgentRun, work: StepWork): readonly ChatMessage[] {
  return open(run, agentSystemPrompt(), { work, messages: run.steering.seen })
}

/** The opening of a planning request. */
export function plannerOpening(run: AgentRun): readonly ChatMessage[] {
  return open(run, plannerSystemPrompt(run.registry.specs, run.task.stepModels), {
    messages: run.steering.seen,
  })
}

/** The opening of a run's first request, which may begin the work. */
export function beginOpening(run: AgentRun): readonly ChatMessage[] {
  return open(run, beginSystemPrompt(run.task.stepModels), { messages: run.steering.seen })
}

function open(run: AgentRun, rules: string, more: Pick<ContextInput, 'work' | 'messages'>): ChatMessage[] {
  const { images = [] } = run
  const urls = images.flatMap((image) => ('url' in image ? [image.url] : []))
  return [
    { role: 'system', content: rules },
    {
      role: 'user',
      content: contextOf(run, more).text,
      ...(urls.length === 0 ? {} : { images: urls }),
    },
  ]
}

function contextOf(run: AgentRun, more: Pick<ContextInput, 'work' | 'messages'>): BuiltContext {
  const { task, images = [], workspaceListing, guidance, skills } = run
  return composeContext(
    { task, images, workspaceListing, guidance, skills: skills?.list, ...more },
    roomFor(windowOf(windowOptionsOf(run))),
  )
}

/** Sections of the application that all openings of a run have, as they are shown. */
export function sectionsShown(run: AgentRun): readonly ShownSection[] {
  return run.task.sections === undefined ? [] : contextOf(run, {}).shown
}

/** Input characters, estimated conservatively: some texts have few characters per token. */
function roomFor({ inputTokens }: ContextWindow): number {
  return inputTokens * 3
}
