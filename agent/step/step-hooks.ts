/** The host's hooks around a plan step and around a sub-agent's whole run. */

import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { askSafely, hookTextMaxBytes, isHooked } from '../run/hooks.ts'
import type { AgentRun } from '../run/run.ts'
import { truncate, truncateJson } from '../text/truncate.ts'
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
  return denied(`a hook refused the result of the step: ${after.reason ?? 'no reason given'}`, result.history)
}

function denied(text: string, history: StepResult['history']): StepResult {
  return { state: 'failed', reason: 'denied', text: truncate(text, limits.documentMaxChars), history }
}
