/**
 * Carries out a step of a workflow: a chat with the model, a call, a question, a wait, or a workflow of its own. Whatever
 * fails is the step's result; nothing throws.
 */
import * as z from 'zod'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result, RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { askTool, UserAnswer } from '#specs/protocol/question.ts'
import { waitTool } from '#specs/protocol/tool-names.ts'
import { findValueProblem, type WaitArguments, type WorkflowStep } from '#specs/protocol/workflow.ts'
import type { Opening } from '../context/opening.ts'
import { atEffort } from '../run/effort.ts'
import type { AgentRun } from '../run/run.ts'
import { atModel } from '../run/step-model.ts'
import { describeFunctionFailure, type StepResult } from '../step/step.ts'
import { askPerson, makeCall } from '../step/step-calls.ts'
import { checkOutput, settleOutput } from '../step/step-output.ts'
import { truncate } from '../text/truncate.ts'
import { openChat, runOfStep } from './chat-step.ts'
import { type Round, toText, type WorkflowValues } from './values.ts'

/** Runs a conversation; in production `runStep`. */
type Converse = (step: Step, opening: Opening, run: AgentRun, signal: AbortSignal) => Promise<StepResult>

export interface WorkflowParts {
  readonly values: WorkflowValues
  readonly run: AgentRun
  readonly signal: AbortSignal
  readonly converse: Converse
  /** Conversations of steps that have completed. */
  readonly historyOf: (stepId: string) => readonly ChatMessage[] | undefined
  /** Runs a workflow that is a step. */
  readonly performPart: (
    plan: Step,
    part: NonNullable<WorkflowStep['workflow']>,
    round: Round,
    parts: WorkflowParts,
  ) => Promise<WorkflowResult>
}

/** `value`: what expressions read as its output. Absent: the text. */
export type WorkflowResult = StepResult & { readonly value?: unknown }

/** @param plan its id is that of turns and calls; @param condition whether it may run */
export async function performStep(
  plan: Step,
  step: WorkflowStep,
  condition: Result<boolean, string>,
  parts: WorkflowParts,
): Promise<WorkflowResult> {
  if (!condition.ok) return failed(condition.error)
  return step.each === undefined
    ? await performRounds(plan, step, {}, parts)
    : await performEach(plan, step, step.each, parts)
}

/** The list of what the step gives for each entry, in its order. */
async function performEach(
  plan: Step,
  step: WorkflowStep,
  { in: source, parallel, max }: NonNullable<WorkflowStep['each']>,
  parts: WorkflowParts,
): Promise<WorkflowResult> {
  const list = parts.values.evaluate(source, 'each.in')
  if (!list.ok) return failed(list.error)
  if (!Array.isArray(list.value)) return failed('each.in: gives no list')
  const items: readonly unknown[] = list.value
  if (items.length > max) return failed(`each.in: gives ${items.length} entries; at most ${max} are allowed`)
  const stop = new AbortController()
  const signal = AbortSignal.any([parts.signal, stop.signal])
  const results: WorkflowResult[] = []
  let next = 0
  let broken: WorkflowResult | undefined
  const work = async (): Promise<void> => {
    while (next < items.length && broken === undefined) {
      const index = next
      next += 1
      const own = { ...plan, id: `${plan.id}--${index}` }
      const result = await performRounds(own, step, { item: items[index], index }, { ...parts, signal })
      results[index] = result
      if (result.state === 'completed') continue
      broken ??= { ...result, text: `entry ${index}: ${result.text}` }
      stop.abort()
    }
  }
  await Promise.all(Array.from({ length: Math.min(parallel, items.length) }, work))
  if (broken !== undefined) return broken
  return await settleValue({}, results.map(outputOf))
}

/** Until the condition of `repeat` holds; each round of a chat continues the conversation of the one before. */
async function performRounds(
  plan: Step,
  step: WorkflowStep,
  round: Round,
  parts: WorkflowParts,
): Promise<WorkflowResult> {
  const { repeat } = step
  if (repeat === undefined) return await performOnce(plan, step, round, parts)
  let before: WorkflowResult | undefined
  for (let count = 0; count < repeat.max; count++) {
    const now = { ...round, index: round.index ?? count }
    const result = await performOnce(plan, step, now, parts, before?.history)
    if (result.state !== 'completed') return result
    const own = { [step.name]: { state: 'completed' as const, output: outputOf(result) } }
    const held = parts.values.holds(repeat.until, 'repeat.until', now, own)
    if (!held.ok) return failed(held.error)
    if (held.value) return result
    before = result
  }
  return failed(`repeat.until: does not hold after ${repeat.max} rounds`)
}

async function performOnce(
  plan: Step,
  step: WorkflowStep,
  round: Round,
  parts: WorkflowParts,
  before?: readonly ChatMessage[],
): Promise<WorkflowResult> {
  if (step.chat !== undefined) return await chat(plan, step, round, parts, before)
  if (step.call !== undefined) return await call(plan, step, round, parts)
  if (step.ask !== undefined) return await ask(plan, step.ask, round, parts)
  if (step.workflow !== undefined) {
    const result = await parts.performPart(plan, step.workflow, round, parts)
    return result.state === 'completed' ? await settleValue(step, outputOf(result)) : result
  }
  if (step.wait !== undefined) return await waitFor(plan, step.wait, round, parts)
  return failed('the step has nothing to do')
}

async function chat(
  plan: Step,
  step: WorkflowStep,
  round: Round,
  { values, run, signal, converse, historyOf }: WorkflowParts,
  before?: readonly ChatMessage[],
): Promise<WorkflowResult> {
  const narrowed = runOfStep(step, atEffort(atModel(run, plan.model), plan.effort))
  if (!narrowed.ok) return failed(narrowed.error)
  const earlier = before ?? step.continues?.map(historyOf).findLast((history) => history !== undefined)
  const opening = openChat(step, values, round, earlier)
  if (!opening.ok) return failed(opening.error)
  const result = await converse(plan, opening.value, narrowed.value, signal)
  if (step.output === undefined) return result
  return await settleOutput(result, step.output, plan.id, narrowed.value, signal)
}

async function call(
  plan: Step,
  step: WorkflowStep,
  round: Round,
  { values, run, signal }: WorkflowParts,
): Promise<WorkflowResult> {
  const name = step.call?.function ?? ''
  const given = values.json(step.call?.arguments ?? {}, 'call.arguments', round)
  if (!given.ok) return failed(given.error)
  const made = await makeCall(plan.id, { name, argumentsText: toCanonicalJson(given.value) }, run, signal)
  if (made.error !== undefined) {
    if (signal.aborted) return { ...failed(made.error.message, 'cancelled'), state: 'cancelled' }
    const reason = made.error.code === 'denied' ? 'denied' : 'step_failed'
    return failed(describeFunctionFailure(made.tool, made.error), reason)
  }
  // Code gives typed values; a text that looks like JSON is one.
  const hasCode = run.task.workflow?.functions?.some((one) => one.name === made.tool) === true
  const value = made.value === undefined ? made.output : made.value
  return await settleValue(step, hasCode ? value : readValue(value))
}

/** The answer of a person is the output. */
async function ask(
  plan: Step,
  { question, options }: NonNullable<WorkflowStep['ask']>,
  round: Round,
  { values, run, signal }: WorkflowParts,
): Promise<WorkflowResult> {
  const text = values.text(question, 'ask.question', round)
  if (!text.ok) return failed(text.error)
  const form = options === undefined ? { kind: 'text' } : { kind: 'choice', options }
  const given = { question: truncate(text.value, limits.textMaxChars), ...form }
  const made = await makeCall(plan.id, { name: askTool, argumentsText: toCanonicalJson(given) }, run, signal)
  if (made.error !== undefined) {
    if (signal.aborted) return { ...failed(made.error.message, 'cancelled'), state: 'cancelled' }
    const reason = made.error.code === 'denied' ? 'denied' : 'step_failed'
    return failed(`the question has no answer (${made.error.code}): ${made.error.message}`, reason)
  }
  const reply = Answered.safeParse(made.value)
  return reply.success ? await settleValue({}, reply.data.answer) : failed('the question has no answer')
}

/** The host waits, without a VM where it takes long. A person may end the wait. It has no output. */
async function waitFor(
  plan: Step,
  wait: NonNullable<WorkflowStep['wait']>,
  round: Round,
  { values, run, signal }: WorkflowParts,
): Promise<WorkflowResult> {
  // The same again when another agent continues the run.
  const now = await run.log.once(`wait ${plan.id}`, async () => Date.now())
  const given = 'until' in wait ? values.evaluate(wait.until, 'wait.until', round) : null
  if (given !== null && !given.ok) return failed(given.error)
  const until = 'until' in wait ? Date.parse(String(given?.value)) : now + wait.forMs
  if (!Number.isFinite(until)) return failed('wait.until: gives no time such as 2026-01-31T12:00:00Z')
  if (until - now > waitMaxMs) return failed('wait.until: gives a time in more than 366 days')
  const time = new Date(until).toISOString()
  const question = {
    callId: run.callIds.ofStep(plan.id).claim(''),
    tool: waitTool,
    arguments: toCanonicalJson({ until: Math.max(0, until) } satisfies z.infer<typeof WaitArguments>),
    preview: `Waits until ${time}. Allow it to continue now, deny it to end the step.`,
  }
  const { decision } = await askPerson(plan.id, question, run, signal)
  return decision === 'allow' ? await settleValue({}, '') : failed('a person ended the wait', 'denied')
}

const waitMaxMs = 366 * 86_400_000

const Answered = z.looseObject({ answer: UserAnswer })

function outputOf(result: WorkflowResult): unknown {
  return 'value' in result ? result.value : result.text
}

/** What a call gave, as the output of the step. */
export async function settleValue(
  { output }: Pick<WorkflowStep, 'output'>,
  value: unknown,
): Promise<WorkflowResult> {
  const problem = findValueProblem(value)
  if (problem !== null) return failed(`output: ${problem}`)
  if (output !== undefined) {
    const checked = await checkOutput(value, output)
    if (!checked.ok) return failed(`output: ${checked.error}`)
  }
  const text = toText(value)
  if (text.length > limits.documentMaxChars)
    return failed(`the output has ${text.length} characters; at most ${limits.documentMaxChars} are kept`)
  return {
    state: 'completed',
    reason: 'completed',
    text,
    history: [],
    ...(typeof value === 'string' ? {} : { value }),
  }
}

/** A host's tool gives objects and lists as JSON text. */
function readValue(given: unknown): unknown {
  if (typeof given !== 'string' || !/^\s*[[{]/.test(given)) return given
  try {
    return JSON.parse(given)
  } catch {
    return given
  }
}

/** Notes the end of a step for what follows; where that cannot be decided, the step has failed. */
export function noteEnd<R extends WorkflowResult>(
  values: WorkflowValues,
  stepId: string,
  result: R,
): R | WorkflowResult {
  const { state } = result
  const output = state === 'completed' ? outputOf(result) : null
  if (state !== 'completed') {
    values.note(stepId, { state, output })
    return result
  }
  const taken = values.findTaken(stepId, { state, output })
  if (taken.ok) {
    values.note(stepId, { state, output }, { taken: taken.value })
    return result
  }
  values.note(stepId, { state: 'failed', output: null })
  return { ...failed(taken.error), history: result.history }
}

export function failed(text: string, reason: RunReason = 'step_failed'): WorkflowResult {
  return { state: 'failed', reason, text: truncate(text, limits.documentMaxChars), history: [] }
}
