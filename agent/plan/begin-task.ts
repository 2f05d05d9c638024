/**
 * The first request of a run whose plan nobody has to approve: the model submits a plan, begins the work with tool
 * calls, or answers in words. Work and words make a plan of one step that begins with this turn, so a small task
 * needs no planning request.
 */
import { isRecord } from '#runtime/llm/json-schema.ts'
import type { Turn } from '#runtime/llm/model.ts'
import { type ParsedJson, parseModelJson } from '#runtime/llm/repair.ts'
import { answerAgain } from '#runtime/structured/request.ts'
import { oneLine } from '#specs/node/prompt-block.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { plainName } from '#specs/protocol/tool-names.ts'
import { beginOpening } from '../context/opening.ts'
import { wholeTaskInstructions } from '../context/prompts.ts'
import { listenTo } from '../run/run.ts'
import { hearPerson, reportTurn, withOwnIds } from '../step/step.ts'
import { withContext } from '../step/turn-context.ts'
import { truncate } from '../text/truncate.ts'
import { revisePlanName } from '../tools/revise-plan.ts'
import { isFinalAnswer } from './final-answer.ts'
import { boundsOf, parsePlan } from './parse-plan.ts'
import {
  makePlan,
  type Planner,
  planningStepId,
  requestPlan,
  submitPlanName,
  submitPlanSpec,
  toFailure,
} from './planner.ts'

/** Characters of the task that name its only step. */
const titleMaxChars = 100
const wholeTaskStepId = 'task'

/** Failures that the planner's own request, with one tool alone, may not have. */
const formFailures: ReadonlySet<string> = new Set([
  'invalid_request',
  'unprocessable',
  'unsupported',
  'context_exceeded',
])

/** Obtains a plan, or begins the work with a plan of one step. */
export const beginTask: Planner = async (run, signal) => {
  await hearPerson(planningStepId, run, signal)
  const opened = await withContext(beginOpening(run), planningStepId, run, signal)
  if (signal.aborted) return toFailure({ kind: 'cancelled', message: 'interrupted' })
  if (!opened.ok) return { ok: false, error: { reason: 'denied', message: opened.error } }
  const messages = opened.value
  // There is no plan to revise yet.
  const tools = run.registry.specs.filter(({ name }) => name !== revisePlanName)
  const answer = await run.model(
    { messages, tools: [...tools, submitPlanSpec(run)] },
    listenTo(planningStepId, run, signal),
  )
  if (signal.aborted) return toFailure({ kind: 'cancelled', message: 'interrupted' })
  if (!answer.ok) {
    const { error } = answer
    if (formFailures.has(error.code)) return makePlan(run, signal)
    return toFailure({ kind: 'model', message: error.message, error })
  }
  const turn = withOwnIds(answer.value, run.callIds)
  await reportTurn(planningStepId, turn, run)
  const isAnswer = turn.toolCalls.length === 0 && (await isFinalAnswer(turn.text, run))
  const given = isAnswer ? null : readGivenPlan(turn)
  if (given === null) {
    const plan = planOfOneStep(run.task.prompt)
    return { ok: true, value: { plan, corrections: [], begun: turn } }
  }
  const read = given.ok ? await parsePlan(given.value.value, boundsOf(run)) : given
  if (!read.ok) return requestPlan(run, signal, [...messages, ...answerAgain(turn, read.error)], { made: 1 })
  const corrections = [...(given.ok ? given.value.corrections : []), ...read.value.corrections]
  return { ok: true, value: { ...read.value, corrections } }
}

/** The plan that the turn submits, by a call or as JSON in its text; null when it submits none. */
function readGivenPlan({ text, toolCalls }: Turn): Result<ParsedJson, string> | null {
  const call = toolCalls.find(({ name }) => plainName(name).endsWith(submitPlanName))
  if (call !== undefined) return parseModelJson(call.argumentsText)
  if (toolCalls.length > 0) return null
  const parsed = parseModelJson(text)
  return parsed.ok && isPlanLike(parsed.value.value) ? parsed : null
}

function isPlanLike(value: unknown): boolean {
  return isRecord(value) && (Array.isArray(value.steps) || isPlanLike(value.plan))
}

/** The plan of a task that its first answer began or completed. */
function planOfOneStep(prompt: string): Plan {
  const title = truncate(oneLine(prompt).toWellFormed(), titleMaxChars) || 'Carry out the task'
  const step = {
    id: wholeTaskStepId,
    title,
    instructions: wholeTaskInstructions,
    needs: [],
    writes: ['*'],
    onFailure: 'abort' as const,
  }
  return { goal: title, steps: [step] }
}
