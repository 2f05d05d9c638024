/**
 * The final answer of a run with an output schema: JSON that fits it. An answer that does not fit is requested again,
 * a bounded number of times; when none fits, the run fails and keeps the text.
 */

import type { ChatMessage } from '#runtime/llm/messages.ts'
import { type AnswerSchema, openSchema } from '#specs/node/json-schema.ts'
import { reasonOf } from '#specs/node/model-protocols/model-error.ts'
import type { Result, RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan, Step } from '#specs/protocol/plan.ts'
import { stepOpening } from '../context/opening.ts'
import { stepFailedMark } from '../context/prompts.ts'
import type { AgentRun, RunEnding } from '../run/run.ts'
import type { StepResult } from '../step/step.ts'
import { askAgain, readValue, requestOutput } from '../step/step-output.ts'
import { truncate } from '../text/truncate.ts'
import { interruption } from './ending.ts'

/** Step id in the events of these requests. */
const answerStepId = 'answer'
/** Maximum requests after the answer of the last step. */
const requestsMax = 3
const quotedMaxChars = 500

interface ExecutedWork {
  readonly plan: Plan
  /** Results of the steps that no completed step builds on, in plan order. */
  readonly last: readonly { readonly step: Step; readonly result: StepResult }[]
}

/** The ending with an answer that fits, or a failed one with the text. Endings without an answer stay the same. */
export async function settleAnswer(ending: RunEnding, work: ExecutedWork, run: AgentRun): Promise<RunEnding> {
  const { outputSchema } = run.task
  if (outputSchema === undefined || ending.outcome !== 'completed') return ending
  const fail = (reason: RunReason, problem: string): RunEnding => ({
    outcome: 'failed',
    reason,
    message: truncate(`${ending.message}, but ${problem}`, limits.textMaxChars),
    summary: ending.summary,
  })
  const ends = (value: unknown): RunEnding => ({ ...ending, summary: JSON.stringify(value) })
  const opened = await openSchema(outputSchema)
  if (!opened.ok) return fail('answer_invalid', `the final answer cannot be checked: ${opened.error}`)
  const schema = { ...opened.value, check: (value: unknown) => checkAnswer(value, opened.value) }
  const given = readValue(ending.summary, schema)
  if (given.ok) return ends(given.value)
  let refusal = ''
  const answer = await requestOutput(
    {
      messages: conversationOf(work, given.error, run),
      description: 'The final answer of the task.',
      schema: outputSchema,
      check: schema.check,
      maxRequests: requestsMax,
      stepId: answerStepId,
      onReply: (text) => {
        refusal = text.trimStart().startsWith(stepFailedMark) ? text.trim().slice(stepFailedMark.length) : ''
      },
    },
    run,
    run.signal,
  )
  if (answer.ok) return ends(answer.value.value)
  if (run.signal.aborted) return { ...interruption(run, ending.message), summary: ending.summary }
  const { message, error } = answer.error
  const why = refusal === '' ? message : truncate(refusal.trim(), quotedMaxChars)
  const reason = error === undefined ? 'answer_invalid' : reasonOf(error)
  return fail(reason, `the final answer does not fit the output schema: ${why}`)
}

/** Whether the text of a turn is the final answer already. */
export async function isFinalAnswer(text: string, { task }: Pick<AgentRun, 'task'>): Promise<boolean> {
  if (task.outputSchema === undefined) return false
  const opened = await openSchema(task.outputSchema)
  return opened.ok && readValue(text, opened.value).ok
}

function checkAnswer(value: unknown, schema: AnswerSchema<unknown>): Result<unknown, string> {
  const checked = schema.check(value)
  if (!checked.ok) return checked
  const { length } = JSON.stringify(value)
  if (length <= limits.documentMaxChars) return checked
  return {
    ok: false,
    error: `it has ${length} characters as JSON, expected at most ${limits.documentMaxChars}`,
  }
}

/** The conversation of the only last step, else a step of its own with what the last steps answered. */
function conversationOf(
  { plan, last }: ExecutedWork,
  problem: string,
  run: AgentRun,
): readonly ChatMessage[] {
  const [only] = last
  if (only !== undefined && last.length === 1 && only.result.history.length > 0)
    return askAgain(only.result, problem)
  const step: Step = {
    id: answerStepId,
    title: 'Final answer',
    instructions: 'Give the final answer of the task from the results. Call no other tool.',
    needs: [],
    writes: [],
    onFailure: 'abort',
  }
  const results = last.map(({ step: { id }, result: { text } }) => ({ stepId: id, text }))
  return stepOpening(run, { plan, step, results })
}
