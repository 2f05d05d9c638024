/**
 * One step of a plan: the model speaks, tools answer, until the model answers in text. Keeps the history valid at every
 * moment (each call has its result, also after a cancel) and ends for every reason with a value.
 */

import type { Turn } from '#runtime/llm/client.ts'
import { reasonOf } from '#runtime/llm/errors.ts'
import type { ChatMessage, ToolCallRequest } from '#runtime/llm/messages.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Step } from '#specs/protocol/plan.ts'
import type { Opening } from './context/opening.ts'
import { stepFailedMark } from './context/prompts.ts'
import { LoopGuard } from './loop-guard.ts'
import { boundText, listenTo, type Run } from './run.ts'
import { runCalls } from './step-calls.ts'

export interface StepResult {
  readonly state: 'completed' | 'failed' | 'cancelled'
  /** The step's answer, or why it did not complete. */
  readonly text: string
  /** `completed` when it did. */
  readonly reason: RunReason
  /** The whole conversation; every tool call in it has its result. */
  readonly history: readonly ChatMessage[]
}

/** Replies without text and calls, or cut off, before the step fails. */
const wastedTurnsMax = 2

/** Runs the step to its end. `opening` is the system and the user message; `signal` ends it early as cancelled. */
export async function runStep(
  step: Step,
  opening: Opening,
  run: Run,
  signal: AbortSignal,
): Promise<StepResult> {
  const history: ChatMessage[] = [...(typeof opening === 'function' ? opening() : opening)]
  const guard = new LoopGuard()
  let wasted = 0
  let denied = false
  const end = (state: StepResult['state'], reason: RunReason, text: string): StepResult => ({
    state,
    reason,
    text: boundText(text, limits.documentMaxChars),
    history,
  })

  for (let number = 1; number <= run.task.limits.maxTurnsPerStep; number++) {
    const request = { messages: history, tools: run.registry.specs }
    const answer = await run.model(request, listenTo(step.id, run, signal))
    if (signal.aborted) return end('cancelled', 'cancelled', 'interrupted while the model was speaking')
    if (!answer.ok) return end('failed', reasonOf(answer.error), `the model failed: ${answer.error.message}`)
    const turn = withOwnIds(answer.value, run)
    await reportTurn(step.id, number, turn, run)
    if (turn.finishReason === 'content_filter') {
      return end('failed', 'model_refused', "the model's provider held the answer back (content filter)")
    }
    if (turn.toolCalls.length === 0) {
      const cut = turn.finishReason === 'length'
      if (turn.text.trim() !== '' && (!cut || wasted >= wastedTurnsMax))
        return endWithAnswer(turn.text, denied, end)
      if (wasted++ >= wastedTurnsMax) {
        return end('failed', 'model_broken', `the model gave ${wasted} empty or cut answers in a row`)
      }
      askAgain(history, turn)
      continue
    }
    history.push(assistantMessage(turn))
    const outcome = await runCalls(step.id, turn, run, signal)
    const stuck = recordResults(history, outcome, guard)
    denied ||= outcome.some(({ error }) => error?.code === 'denied')
    if (signal.aborted) return end('cancelled', 'cancelled', 'interrupted during tool calls')
    if (stuck !== null) {
      const text = `the agent repeated ${stuck} with the same result after it was told to stop`
      return end('failed', denied ? 'denied' : 'step_failed', text)
    }
    wasted = 0
  }
  const turns = run.task.limits.maxTurnsPerStep
  return end('failed', 'limit_turns', `the step was not done after ${turns} turns of the model`)
}

/** Ids that no other call of the run has, in the alphabet that hosts and providers accept. */
function withOwnIds(turn: Turn, run: Run): Turn {
  const toolCalls = turn.toolCalls.map(
    (call): ToolCallRequest => ({ ...call, id: run.callIds.claim(call.id) }),
  )
  return { ...turn, toolCalls }
}

/** Tells the host of a turn, and the budget of its tokens. */
export async function reportTurn(stepId: string, number: number, turn: Turn, run: Run): Promise<void> {
  run.budget.addUsage(turn.usage)
  await run.report.event({
    type: 'turn-end',
    stepId,
    turn: number,
    text: boundText(turn.text, limits.documentMaxChars),
    calls: turn.toolCalls.map(({ id, name }) => ({ callId: id, tool: boundText(name, limits.lineMaxChars) })),
    usage: turn.usage,
    finishReason: boundText(turn.finishReason, 100),
  })
}

function endWithAnswer(
  text: string,
  denied: boolean,
  end: (state: StepResult['state'], reason: RunReason, text: string) => StepResult,
): StepResult {
  const answer = text.trim()
  if (!answer.startsWith(stepFailedMark)) return end('completed', 'completed', answer)
  const why = answer.slice(stepFailedMark.length).trim()
  return end('failed', denied ? 'denied' : 'step_failed', why === '' ? 'the agent gave no reason' : why)
}

function assistantMessage(turn: Turn): ChatMessage {
  return {
    role: 'assistant',
    content: turn.text,
    toolCalls: turn.toolCalls,
    ...(turn.reasoning === '' ? {} : { reasoning: turn.reasoning }),
  }
}

/**
 * After a cut text the conversation goes on from it. After an empty answer the request is made again with a word added to
 * its last message, for neither an empty assistant message nor two messages of one role is accepted everywhere.
 */
function askAgain(history: ChatMessage[], turn: Turn): void {
  if (turn.text.trim() !== '') {
    history.push(assistantMessage(turn))
    const content =
      'Your reply was cut off at its length limit. Go on with a tool call, or give a shorter answer.'
    history.push({ role: 'user', content })
    return
  }
  const last = history.pop()
  if (last === undefined) return
  history.push({
    ...last,
    content: `${last.content}\n\n[Caisson] Your last reply was empty. Call a tool, or answer in text; keep it short.`,
  })
}

/** Puts the results into the history; names the tool that goes in circles, if one does. */
function recordResults(
  history: ChatMessage[],
  outcome: Awaited<ReturnType<typeof runCalls>>,
  guard: LoopGuard,
): string | null {
  let stuck: string | null = null
  for (const { callId, tool, arguments: args, output } of outcome) {
    const verdict = guard.record(tool, args, output)
    if (verdict === 'stop') stuck ??= tool
    const note =
      verdict === 'nudge'
        ? '\n\n[Caisson] This call has given this same result several times. Do something else, or answer in text that the step cannot be done.'
        : ''
    history.push({ role: 'tool', callId, content: `${output}${note}` })
  }
  return stuck
}
