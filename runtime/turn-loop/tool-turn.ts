/** Handles a turn with tool calls: guards first, then the application executes the calls. */
import type { LLMResponse } from '../contract/contract.ts'
import { DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION } from './classify.ts'
import { interrupted } from './interruption.ts'
import type { End, Progress } from './progress.ts'
import type { TurnLoopResponseParams } from './types.ts'

export async function takeToolCalls<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  params: TurnLoopResponseParams<TState, TMessage, TResponse>,
  source: 'model' | 'normalized_text_intent',
): Promise<End<TState, TResponse>> {
  const { counters, rounds, limits } = progress
  counters.emptyTextRetryCount = 0
  counters.rejectedTextRetryCount = 0
  counters.consecutiveToolTurns++
  const round = rounds.open(params.response.tool_calls ?? [], params.iteration, source)
  progress.trace.toolCalls.push(...round.summaries)
  if (round.repeated !== null) {
    progress.addStep('repeated_tool_call_stop')
    return progress.end('repeated_tool_call_stopped', round.repeated)
  }
  if (counters.consecutiveToolTurns > limits.maxConsecutiveToolTurns) {
    progress.addStep('max_tool_rounds_stop')
    return progress.end('max_tool_rounds_exceeded')
  }

  const taken = await progress.take(progress.options.onToolCallsResponse(params))
  // Late results are in the state, but no further request is made.
  if (taken === interrupted || progress.isInterrupted) return progress.endInterrupted()
  const next = taken?.next
  if (next?.control !== 'continue') {
    progress.addStep('tool_calls_stop')
    return progress.end('tool_calls_response')
  }
  const isStuck = rounds.close(round, taken?.toolResults)
  return progress.goOn('tool_calls_continue', withNudge(next.transientInstruction, isStuck))
}

function withNudge(instruction: string | undefined, isStuck: boolean): string | undefined {
  if (!isStuck) return instruction
  const nudge = DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION
  return instruction === undefined ? nudge : `${instruction}\n\n${nudge}`
}
