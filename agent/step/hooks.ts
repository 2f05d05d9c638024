/** The host's hooks around a tool call, a plan step and a sub-agent's whole run. */

import type { ToolError } from '#specs/protocol/error.ts'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { askSafely, hookTextMaxBytes, isHooked } from '../run/hooks.ts'
import type { AgentRun } from '../run/run.ts'
import { truncate, truncateJson, truncateMiddle } from '../text/truncate.ts'
import type { CallHooks } from '../tool-calls/around-call.ts'
import { defaultsMaxCount } from '../tool-calls/call.ts'
import type { StepResult } from './step.ts'

/**
 * Runs a step or sub-agent between its hooks. A denied `before` hook skips it; a denied `after` hook marks it failed.
 */
export async function aroundStep<R extends StepResult>(
  { id, title, instructions }: Pick<Step, 'id' | 'title' | 'instructions'>,
  run: AgentRun,
  signal: AbortSignal,
  work: () => Promise<R>,
): Promise<R | StepResult> {
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
  return denied(`a hook refused what the step gave: ${after.reason ?? 'no reason given'}`, result.history)
}

function denied(text: string, history: StepResult['history']): StepResult {
  return { state: 'failed', reason: 'denied', text: truncate(text, limits.documentMaxChars), history }
}

/** The hooks around one call; undefined when no hook concerns tools. */
export function callHooks(
  run: AgentRun,
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
