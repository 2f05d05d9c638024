/**
 * Asks the model for a plan and accepts nothing but a valid one. What is certainly meant is put right and recorded; the rest
 * is asked again with the validation errors, at most twice.
 */
import type { z } from 'zod'
import type { Turn } from '#runtime/llm/client.ts'
import { reasonOf } from '#runtime/llm/errors.ts'
import { toModelSchema } from '#runtime/llm/json-schema.ts'
import type { ChatMessage, ToolSpec } from '#runtime/llm/messages.ts'
import { parseModelJson } from '#runtime/llm/repair.ts'
import type { Result, RunReason } from '#specs/protocol/error.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { plannerOpening } from '../context/opening.ts'
import { listenTo, type Run } from '../run.ts'
import { reportTurn } from '../step.ts'
import { mendPlan } from './repair.ts'

export interface PlanFailure {
  readonly reason: RunReason
  readonly message: string
}

export interface PlannedWork {
  readonly plan: Plan
  /** What was put right in the model's answer, in words. */
  readonly corrections: readonly string[]
}

/** Makes the plan of a run. */
export type Planner = (run: Run) => Promise<Result<PlannedWork, PlanFailure>>

/** Stands for a step while planning, in events. */
const planningStepId = 'plan'
const requestsMax = 3
const issuesMaxCount = 12

function submitPlanTool(): ToolSpec {
  return {
    name: 'submit_plan',
    description: 'Hands in the plan. Call it once, with the whole plan.',
    parameters: toModelSchema(Plan),
  }
}

/** The planner that asks the run's model. */
export const makePlan: Planner = async (run) => {
  const messages: ChatMessage[] = [...plannerOpening(run)]
  let problems = 'no plan was given'
  for (let request = 1; request <= requestsMax; request++) {
    const hooks = listenTo(planningStepId, run, run.signal)
    const answer = await run.model({ messages, tools: [submitPlanTool()] }, hooks)
    if (run.signal.aborted) return failure('cancelled', 'interrupted while planning')
    if (!answer.ok)
      return failure(reasonOf(answer.error), `the model failed while planning: ${answer.error.message}`)
    const turn = { ...answer.value, toolCalls: claimIds(answer.value, run) }
    await reportTurn(planningStepId, request, turn, run)
    if (turn.finishReason === 'content_filter') {
      return failure('model_refused', "the model's provider held the plan back (content filter)")
    }
    const read = readPlan(turn)
    if (read.ok) return read
    problems = read.error
    askAgain(messages, turn, problems)
  }
  return failure(
    'plan_invalid',
    `the model gave no valid plan in ${requestsMax} attempts; the last problems: ${problems}`,
  )
}

function claimIds(turn: Turn, run: Run): Turn['toolCalls'] {
  return turn.toolCalls.map((call) => ({ ...call, id: run.callIds.claim(call.id) }))
}

/** The plan in a turn: of its first call of submit_plan, else of its text. */
function readPlan(turn: Turn): Result<PlannedWork, string> {
  const call = turn.toolCalls.find(({ name }) => /submit_?plan$/i.test(name.trim())) ?? turn.toolCalls[0]
  const source = call === undefined ? turn.text : call.argumentsText
  if (source.trim() === '') return { ok: false, error: 'no plan was given; call submit_plan' }
  const parsed = parseModelJson(source)
  if (!parsed.ok) return { ok: false, error: parsed.error }
  const strict = Plan.safeParse(parsed.value.value)
  if (strict.success) return { ok: true, value: { plan: strict.data, corrections: parsed.value.corrections } }
  const mended = mendPlan(parsed.value.value)
  const second = Plan.safeParse(mended.value)
  if (!second.success) return { ok: false, error: describeIssues(second.error) }
  return {
    ok: true,
    value: { plan: second.data, corrections: [...parsed.value.corrections, ...mended.corrections] },
  }
}

function describeIssues(error: z.ZodError): string {
  const lines = error.issues.slice(0, issuesMaxCount).map((issue) => {
    const path = issue.path.map(String).join('.')
    return `${path === '' ? 'plan' : path}: ${issue.message}`.slice(0, 300)
  })
  const more = error.issues.length - lines.length
  return `${lines.join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}

/** Every call of the invalid answer gets a result, so that the history stays valid. */
function askAgain(messages: ChatMessage[], turn: Turn, problems: string): void {
  const content = `The plan is not valid: ${problems}. Hand in the whole plan again, corrected.`
  if (turn.toolCalls.length === 0) {
    messages.push({ role: 'assistant', content: turn.text, toolCalls: [] }, { role: 'user', content })
    return
  }
  messages.push({ role: 'assistant', content: turn.text, toolCalls: turn.toolCalls })
  for (const { id } of turn.toolCalls) messages.push({ role: 'tool', callId: id, content })
}

function failure(reason: RunReason, message: string): { ok: false; error: PlanFailure } {
  return { ok: false, error: { reason, message } }
}
