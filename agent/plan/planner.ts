/**
 * Asks the model for a plan, first or replacement, and accepts only a valid one. Unambiguous mistakes are repaired
 * and recorded; otherwise the model is asked again with the validation errors, at most twice.
 */

import type { ChatMessage, ToolSpec } from '#runtime/llm/messages.ts'
import { requestStructured, type StructuredFailure } from '#runtime/structured/request.ts'
import type { JsonSchema } from '#specs/node/json-schema.ts'
import { reasonOf } from '#specs/node/model-protocols/model-error.ts'
import { block } from '#specs/node/prompt-block.ts'
import type { Result, RunReason } from '#specs/protocol/error.ts'
import { plannerOpening } from '../context/opening.ts'
import { type AgentRun, listenTo } from '../run/run.ts'
import { modelNamesOf } from '../run/step-model.ts'
import { hearPerson, reportTurn } from '../step/step.ts'
import { withContext } from '../step/turn-context.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { planForm } from '../tool-calls/plan-form.ts'
import { boundsOf, type PlannedWork, parsePlan, type Replanning } from './parse-plan.ts'

export interface PlanFailure {
  readonly reason: RunReason
  readonly message: string
}

/** Makes the plan of a run, or its replacement. */
export type Planner = (
  run: AgentRun,
  signal: AbortSignal,
  former?: Replanning,
) => Promise<Result<PlannedWork, PlanFailure>>

/** Step id in events while planning. */
export const planningStepId = 'plan'
export const submitPlanName = 'submit_plan'
/** Maximum requests for one plan. */
const requestsMax = 3

/** The tool that submits a plan, as the model sees it. */
export function submitPlanSpec(run: AgentRun): ToolSpec & { readonly parameters: JsonSchema } {
  const description = 'Submits the plan. Call it once, with the whole plan.'
  return { name: submitPlanName, description, parameters: planForm(modelNamesOf(run)) }
}

/** The planner that asks the run's model. */
export const makePlan: Planner = async (run, signal, former) => {
  await hearPerson(planningStepId, run, signal)
  const opened = await withContext(openingOf(run, former), planningStepId, run, signal)
  if (signal.aborted) return toFailure({ kind: 'cancelled', message: 'interrupted' })
  if (!opened.ok) return { ok: false, error: { reason: 'denied', message: opened.error } }
  return requestPlan(run, signal, opened.value, former === undefined ? {} : { former })
}

/** @param made requests for this plan before this one */
export async function requestPlan(
  run: AgentRun,
  signal: AbortSignal,
  messages: readonly ChatMessage[],
  { former, made = 0 }: { readonly former?: Replanning; readonly made?: number },
): ReturnType<Planner> {
  const { name, description, parameters } = submitPlanSpec(run)
  const answer = await requestStructured({
    model: run.model,
    messages,
    name,
    description,
    schema: parameters,
    maxRequests: requestsMax - made,
    // A plan is long, and models fill in a call's arguments better than they write JSON.
    forms: ['tool', 'prompt'],
    isFormDescribed: true,
    hooks: listenTo(planningStepId, run, signal),
    read: async (value) => {
      const read = await parsePlan(value, boundsOf(run, former))
      return read.ok
        ? { ok: true, value: { value: read.value.plan, corrections: read.value.corrections } }
        : read
    },
    onTurn: async (turn) => {
      const toolCalls = turn.toolCalls.map((call) => ({ ...call, id: run.callIds.claim(call.id) }))
      const own = { ...turn, toolCalls }
      await reportTurn(planningStepId, own, run)
      return own
    },
  })
  if (answer.ok)
    return { ok: true, value: { plan: answer.value.value, corrections: answer.value.corrections } }
  return toFailure(answer.error)
}

function openingOf(run: AgentRun, former: Replanning | undefined): readonly ChatMessage[] {
  const opening = plannerOpening(run)
  if (former === undefined) return opening
  return opening.map((message, index) =>
    index === opening.length - 1
      ? { ...message, content: `${message.content}\n\n${describeFormer(former)}` }
      : message,
  )
}

/** Why there is no plan. */
export function toFailure({ kind, message, error }: Omit<StructuredFailure, 'usage'>): {
  readonly ok: false
  readonly error: PlanFailure
} {
  const failure = (reason: RunReason, text: string) =>
    ({ ok: false, error: { reason, message: text } }) as const
  if (kind === 'cancelled') return failure('cancelled', 'interrupted while planning')
  if (kind === 'refused') return failure('model_refused', `no plan: ${message}`)
  if (kind === 'invalid') return failure('plan_invalid', `the model returned no valid plan: ${message}`)
  const reason = error === undefined ? 'model_broken' : reasonOf(error)
  return failure(reason, `the model failed while planning: ${message}`)
}

/** Maximum characters of one step's answer. */
const resultMaxChars = 4_000

/** Sections appended to those of a planning request. */
function describeFormer({ plan, states, why }: Replanning): string {
  const begun = plan.steps.filter(({ id }) => Object.hasOwn(states, id) && states[id]?.state !== 'pending')
  const lines = plan.steps.map(
    ({ id }) => `${id}: ${Object.hasOwn(states, id) ? states[id]?.state : 'pending'}`,
  )
  const results = begun
    .filter(({ id }) => states[id]?.state !== 'running' && states[id]?.text !== '')
    .map(({ id }) => block('result', truncateMiddle(states[id]?.text ?? '', resultMaxChars), ` step="${id}"`))
  return [
    `# Current plan\n${block('plan', JSON.stringify(plan))}`,
    `# State of the plan\n${lines.join('\n')}`,
    ...(results.length > 0 ? [`# Results of its steps\n${results.join('\n')}`] : []),
    'hint' in why
      ? `# What the user says about it\n${block('message', why.hint)}`
      : `# Why a new plan is needed\nStep "${why.failedStep}" failed; its result says why.`,
    `# What is asked\n${describeOrder(
      begun.map(({ id }) => id),
      why,
    )}`,
  ].join('\n\n')
}

function describeOrder(begun: readonly string[], why: Replanning['why']): string {
  const order =
    'hint' in why
      ? 'The user did not allow this plan. Submit a whole new plan that does what they say.'
      : 'Submit the whole plan again, so that its goal is reached in another way. No step may need one that failed.'
  if (begun.length === 0) return order
  return `${order} Steps that have begun (${begun.join(', ')}) stay exactly as they are; change, add and leave out others.`
}
