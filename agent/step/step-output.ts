/**
 * The answer of a step with a schema: canonical JSON that fits it. An answer that does not fit is requested again in
 * the step's conversation, at most twice, and never guessed.
 */

import type { ChatMessage } from '#runtime/llm/messages.ts'
import { parseModelJson } from '#runtime/llm/repair.ts'
import { requestStructured } from '#runtime/structured/request.ts'
import { type AnswerSchema, openSchema } from '#specs/node/json-schema.ts'
import { reasonOf } from '#specs/node/model-protocols/model-error.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { OutputSchema } from '#specs/protocol/plan.ts'
import { type AgentRun, listenTo } from '../run/run.ts'
import { reportTurn, type StepResult, withOwnIds } from './step.ts'

/** Maximum requests after an answer that did not fit. */
const moreRequests = 2

/** Text after the instructions of a step with a schema. */
export function describeOutput(schema: OutputSchema): string {
  return `When the step is done, answer with JSON alone, without any other word, that fits this JSON schema:\n${JSON.stringify(schema)}`
}

/** Whether a value fits the schema; the error says what is wrong with it. */
export async function checkOutput(value: unknown, schema: OutputSchema): Promise<Result<unknown, string>> {
  const opened = await openSchema(schema)
  return opened.ok ? opened.value.check(value) : opened
}

/** Parses the value from a step's answer; the error says what is wrong with it. */
export async function readOutput(text: string, schema: OutputSchema): Promise<Result<unknown, string>> {
  const opened = await openSchema(schema)
  return opened.ok ? readValue(text, opened.value) : opened
}

/** As above, by a schema that was opened. */
export function readValue(
  text: string,
  schema: Pick<AnswerSchema<unknown>, 'check'>,
): Result<unknown, string> {
  const parsed = parseModelJson(text)
  return parsed.ok ? schema.check(parsed.value.value) : parsed
}

/** Returns a completed step's result in the form of its schema, or a failed result with the reason. */
export async function settleOutput(
  result: StepResult,
  schema: OutputSchema,
  stepId: string,
  run: AgentRun,
  signal: AbortSignal,
): Promise<StepResult & { readonly value?: unknown }> {
  if (result.state !== 'completed') return result
  const opened = await openSchema(schema)
  if (!opened.ok) return { ...result, state: 'failed', reason: 'step_failed', text: opened.error }
  const given = readValue(result.text, opened.value)
  if (given.ok) return withValue(result, given.value)
  const answer = await requestOutput(
    {
      messages: askAgain(result, given.error),
      description: "The step's answer.",
      schema,
      check: opened.value.check,
      maxRequests: moreRequests,
      stepId,
    },
    run,
    signal,
  )
  if (answer.ok) return withValue(result, answer.value.value)
  const { kind, message, error } = answer.error
  if (kind === 'cancelled') return { ...result, state: 'cancelled', reason: 'cancelled', text: message }
  const reason = error === undefined ? 'step_failed' : reasonOf(error)
  return { ...result, state: 'failed', reason, text: `the step's answer does not fit its schema: ${message}` }
}

interface OutputRequest {
  readonly messages: readonly ChatMessage[]
  readonly description: string
  readonly schema: OutputSchema
  check(value: unknown): Result<unknown, string>
  readonly maxRequests: number
  /** The step that the turns are reported for. */
  readonly stepId: string
  /** Sees each reply of the model. */
  onReply?(text: string): void
}

/** Asks for an answer that fits, in the way that the model's server takes. */
export function requestOutput(
  { messages, description, schema, check, maxRequests, stepId, onReply }: OutputRequest,
  run: AgentRun,
  signal: AbortSignal,
): ReturnType<typeof requestStructured<unknown>> {
  return requestStructured({
    model: run.model,
    messages,
    name: 'answer',
    description,
    schema,
    maxRequests,
    hooks: listenTo(stepId, run, signal),
    read: (value) => {
      const checked = check(value)
      return checked.ok ? { ok: true, value: { value: checked.value, corrections: [] } } : checked
    },
    onTurn: async (turn) => {
      const own = withOwnIds(turn, run.callIds.ofStep(stepId))
      await reportTurn(stepId, own, run)
      onReply?.(turn.text)
      return own
    },
  })
}

/** The conversation of a step, ending with the request to correct its answer. */
export function askAgain(result: StepResult, problem: string): readonly ChatMessage[] {
  const content = `Your answer is not valid: ${problem}. Give it again, corrected.`
  return [...withAnswer(result), { role: 'user', content }]
}

function withValue(result: StepResult, value: unknown): StepResult & { value: unknown } {
  return { ...result, text: toCanonicalJson(value), value }
}

/** The conversation, ending with the step's answer. */
function withAnswer({ history, text }: StepResult): readonly ChatMessage[] {
  const last = history.at(-1)
  return last?.role === 'assistant' && last.toolCalls.length === 0
    ? history
    : [...history, { role: 'assistant', content: text, toolCalls: [] }]
}
