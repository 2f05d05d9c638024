/**
 * The agent's side of the host's hooks, around calls, steps and sub-agents: stops at the points that the task names,
 * asks the host, and obeys the answer. Does not know whom the host asks. A hook that cannot be asked counts as a denial.
 */
import type { Logger } from 'pino'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { RunReason, ToolError } from '#specs/protocol/error.ts'
import {
  type AgentHook,
  type AgentHookPoint,
  type HookDecision,
  type HookRequest,
  isAskedAt,
} from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { truncate, truncateJson, truncateMiddle } from '../text/truncate.ts'
import { type CallHooks, defaultsMaxCount } from '../tool-calls/call.ts'
import type { Steering } from './steering.ts'

type AskHooks = (request: Omit<HookRequest, 'runId'>, signal: AbortSignal) => Promise<HookDecision>

export interface AgentHooks {
  readonly hooks: readonly AgentHook[]
  readonly ask: AskHooks
  /** The next id of a question; unique within a run. */
  nextId(): string
}

/** What of a run its hooks need. */
interface HookedRun {
  readonly agentPath: string
  readonly hooks?: AgentHooks
  readonly steering: Steering
  readonly logger: Logger
}

/** How a step or a sub-agent ended. */
interface StepEnding {
  readonly state: 'completed' | 'failed' | 'cancelled'
  readonly text: string
  readonly reason: RunReason
  readonly history: readonly ChatMessage[]
}

/** The hooks of a run; undefined when the task names none. */
export function openHooks(hooks: readonly AgentHook[] | undefined, ask: AskHooks): AgentHooks | undefined {
  if (hooks === undefined || hooks.length === 0) return undefined
  let count = 0
  return { hooks, ask, nextId: () => `hook-${++count}` }
}

/** Maximum JSON bytes of one text in a question. */
const hookTextMaxBytes = limits.frameMaxBytes / 4

/** Whether any hook applies there; points of steps have no tool. */
function isHooked(hooks: readonly AgentHook[], point: AgentHookPoint, tool?: string): boolean {
  return hooks.some((hook) => isAskedAt(hook, point, tool))
}

/** A failure counts as a denial. */
async function askSafely(
  { ask, nextId }: AgentHooks,
  request: Omit<HookRequest, 'runId' | 'hookId'>,
  signal: AbortSignal,
  logger: Logger,
): Promise<HookDecision> {
  try {
    return await ask({ hookId: nextId(), ...request }, signal)
  } catch (error) {
    if (signal.aborted) return { decision: 'deny', reason: 'the run ended' }
    logger.error({ err: error }, 'the hooks could not be asked')
    return { decision: 'deny', reason: 'the host’s hooks could not be asked' }
  }
}

/** The hooks around one call; undefined when no hook concerns tools. */
export function callHooks(
  run: HookedRun,
  {
    stepId,
    callId,
    signal,
  }: { readonly stepId: string; readonly callId: string; readonly signal: AbortSignal },
): CallHooks | undefined {
  const { hooks } = run
  if (hooks === undefined || !hooks.hooks.some(({ point }) => point.endsWith('-tool'))) return undefined
  const ask = async (subject: HookRequest['subject'], tool: string): Promise<HookDecision | undefined> => {
    if (!isHooked(hooks.hooks, subject.point, tool)) return undefined
    const decision = await askSafely(hooks, { agentPath: run.agentPath, stepId, subject }, signal, run.logger)
    // Approval during a pause does not end the pause.
    await run.steering.ready(signal)
    return decision
  }
  return {
    looksAfter: (tool) => isHooked(hooks.hooks, 'after-tool', tool),
    before: (tool, given, defaults) =>
      ask(
        {
          point: 'before-tool',
          callId,
          tool,
          arguments: given,
          ...(defaults.length === 0 ? {} : { defaults: defaults.slice(0, defaultsMaxCount) }),
        },
        tool,
      ),
    after: (tool, given, output, error?: ToolError) =>
      ask(
        {
          point: 'after-tool',
          callId,
          tool,
          arguments: given,
          output: truncateJson(
            truncateMiddle(output, limits.textMaxChars),
            limits.textMaxChars,
            hookTextMaxBytes,
          ),
          ...(error === undefined ? {} : { error }),
        },
        tool,
      ),
  }
}

/** Whether a hook is asked before requests of the model. */
export function isHookedBeforeTurns({ hooks }: HookedRun): boolean {
  return hooks !== undefined && isHooked(hooks.hooks, 'before-turn')
}

/** What the hooks say before a request of the model. */
export async function askBeforeTurn(
  stepId: string,
  run: HookedRun,
  signal: AbortSignal,
): Promise<HookDecision> {
  const { hooks } = run
  if (hooks === undefined) return { decision: 'allow' }
  const request = { agentPath: run.agentPath, stepId, subject: { point: 'before-turn' as const } }
  return await askSafely(hooks, request, signal, run.logger)
}

/**
 * Runs a step or sub-agent between its hooks. A denied `before` hook skips it; a denied `after` hook marks it failed.
 */
export async function aroundStep<R extends StepEnding>(
  { id, title, instructions }: Pick<Step, 'id' | 'title' | 'instructions'>,
  run: HookedRun,
  signal: AbortSignal,
  work: () => Promise<R>,
): Promise<R | StepEnding> {
  const { hooks } = run
  if (hooks === undefined) return await work()
  const about = {
    title: truncate(title, limits.lineMaxChars),
    instructions: truncateJson(instructions, limits.documentMaxChars, hookTextMaxBytes),
  }
  const ask = async (subject: HookRequest['subject']): Promise<HookDecision | undefined> =>
    isHooked(hooks.hooks, subject.point)
      ? await askSafely(hooks, { agentPath: run.agentPath, stepId: id, subject }, signal, run.logger)
      : undefined
  const before = await ask({ point: 'before-step', ...about })
  if (signal.aborted)
    return { state: 'cancelled', reason: 'cancelled', text: 'interrupted at a hook', history: [] }
  if (before?.decision === 'deny')
    return denied(`a hook refused the step: ${before.reason ?? 'no reason given'}`, [])
  const result = await work()
  if (signal.aborted) {
    // Cancelled: the after-hook can no longer run, so the step does not count as completed.
    const isSeen = result.state !== 'completed' || !isHooked(hooks.hooks, 'after-step')
    return isSeen ? result : { ...result, state: 'cancelled', reason: 'cancelled' }
  }
  const text = truncateJson(result.text, limits.documentMaxChars, hookTextMaxBytes)
  const after = await ask({ point: 'after-step', ...about, state: result.state, text })
  if (signal.aborted || after?.decision !== 'deny') return result
  return denied(`a hook refused the result of the step: ${after.reason ?? 'no reason given'}`, result.history)
}

function denied(text: string, history: StepEnding['history']): StepEnding {
  return { state: 'failed', reason: 'denied', text: truncate(text, limits.documentMaxChars), history }
}
