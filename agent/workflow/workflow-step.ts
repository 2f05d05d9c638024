/**
 * Carries out a step of a workflow once: a chat with the model, or a call. Whatever fails is the
 * step's result; nothing throws.
 */
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Step } from '#specs/protocol/plan.ts'
import type { WorkflowStep } from '#specs/protocol/workflow.ts'
import type { Opening } from '../context/opening.ts'
import { atEffort } from '../run/effort.ts'
import type { AgentRun } from '../run/run.ts'
import { describeFunctionFailure, type StepResult } from '../step/step.ts'
import { makeCall } from '../step/step-calls.ts'
import { checkOutput, settleOutput } from '../step/step-output.ts'
import { truncate } from '../text/truncate.ts'
import { openChat, runOfStep } from './chat-step.ts'
import type { Round, WorkflowValues } from './values.ts'

/** Runs a conversation; in production `runStep`. */
type Converse = (step: Step, opening: Opening, run: AgentRun, signal: AbortSignal) => Promise<StepResult>

export interface WorkflowParts {
  readonly values: WorkflowValues
  readonly run: AgentRun
  readonly signal: AbortSignal
  readonly converse: Converse
  /** Conversations of steps that have completed. */
  readonly historyOf: (stepId: string) => readonly ChatMessage[] | undefined
}

/** `value`: what expressions read as its output. Absent: the text. */
export type WorkflowResult = StepResult & { readonly value?: unknown }

export async function performWorkflowStep(plan: Step, parts: WorkflowParts): Promise<WorkflowResult> {
  const { values } = parts
  const condition = values.condition(plan.id)
  if (!condition.ok) return failed(condition.error)
  return await performOnce(plan, values.stepOf(plan.id), {}, parts)
}

async function performOnce(
  plan: Step,
  step: WorkflowStep,
  round: Round,
  parts: WorkflowParts,
): Promise<WorkflowResult> {
  if (step.chat !== undefined) return await chat(plan, step, round, parts)
  if (step.call !== undefined) return await call(plan, step, round, parts)
  return failed('the step has nothing to do')
}

async function chat(
  plan: Step,
  step: WorkflowStep,
  round: Round,
  { values, run, signal, converse, historyOf }: WorkflowParts,
): Promise<WorkflowResult> {
  const narrowed = runOfStep(step, atEffort(run, step.effort))
  if (!narrowed.ok) return failed(narrowed.error)
  const earlier = step.continues?.map(historyOf).findLast((history) => history !== undefined)
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
  return await settleValue(step, readValue(made.value ?? made.output))
}

/** What a call gave, as the output of the step. */
export async function settleValue(
  { output }: Pick<WorkflowStep, 'output'>,
  value: unknown,
): Promise<WorkflowResult> {
  if (output !== undefined) {
    const checked = await checkOutput(value, output)
    if (!checked.ok) return failed(`output: ${checked.error}`)
  }
  const text = typeof value === 'string' ? value : toCanonicalJson(value)
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

export function failed(text: string, reason: RunReason = 'step_failed'): WorkflowResult {
  return { state: 'failed', reason, text: truncate(text, limits.documentMaxChars), history: [] }
}
