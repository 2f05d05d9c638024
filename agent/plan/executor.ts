/**
 * Carries out a plan: ready steps side by side as far as the limits and their writes allow, answers handed on to the steps
 * that need them, failures answered as the plan says. Ends with one value for every way it can end.
 */

import { limits } from '#specs/protocol/limits.ts'
import type { Plan, Step } from '#specs/protocol/plan.ts'
import { type Opening, stepOpening } from '../context/opening.ts'
import { boundText, type Run, type RunEnding } from '../run.ts'
import { runStep, type StepResult } from '../step.ts'
import { Schedule } from './schedule.ts'

/** Runs one step; the real one is `runStep`. */
export type StepRunner = (step: Step, opening: Opening, run: Run, signal: AbortSignal) => Promise<StepResult>

/** Executes `plan` to its end. Reports every step's start and end, also of steps that never ran. */
export async function executePlan(
  plan: Plan,
  run: Run,
  performStep: StepRunner = runStep,
): Promise<RunEnding> {
  const schedule = new Schedule(plan, run.task.limits.maxParallelSteps)
  const results = new Map<string, StepResult>()
  const running = new Map<string, Promise<Step>>()
  const stop = new AbortController()
  const signal = AbortSignal.any([run.signal, stop.signal])

  const start = async (step: Step): Promise<Step> => {
    await run.steering.ready(signal)
    await run.report.event({ type: 'step-start', stepId: step.id })
    const opening = (): ReturnType<typeof stepOpening> =>
      stepOpening(run, { plan, step, results: resultsFor(step, plan, results), states: schedule.states })
    const result = await perform(step, opening, run, signal, performStep)
    results.set(step.id, result)
    schedule.end(step.id, result.state)
    await reportEnd(step, result.state, result.text, run)
    // A denial is a word on one thing: what does not need that step goes on, and the run fails at its end.
    if (result.state === 'failed' && step.onFailure === 'abort' && result.reason !== 'denied') stop.abort()
    return step
  }

  for (;;) {
    for (
      let next = signal.aborted ? undefined : schedule.takeNext();
      next !== undefined;
      next = schedule.takeNext()
    ) {
      running.set(next.id, start(next))
    }
    if (running.size === 0) break
    const ended = await Promise.race(running.values())
    running.delete(ended.id)
    for (const step of schedule.skipUnreachable()) {
      await reportEnd(step, 'skipped', 'a step that this one needs did not complete', run)
    }
  }
  for (const step of schedule.skipRest())
    await reportEnd(step, 'skipped', 'the run ended before this step', run)
  return endingOf(plan, schedule, results, run)
}

async function perform(
  step: Step,
  opening: Opening,
  run: Run,
  signal: AbortSignal,
  performStep: StepRunner,
): Promise<StepResult> {
  try {
    return await performStep(step, opening, run, signal)
  } catch (error) {
    run.logger.error({ stepId: step.id, err: error }, 'step threw')
    return {
      state: 'failed',
      reason: 'internal',
      text: 'the agent failed inside; its log has the details',
      history: [],
    }
  }
}

/** Answers of the steps that `step` needs, in the plan's order. */
function resultsFor(
  step: Step,
  plan: Plan,
  results: ReadonlyMap<string, StepResult>,
): { stepId: string; text: string }[] {
  const needed = plan.steps.filter(({ id }) => step.needs.includes(id))
  return needed.map(({ id }) => ({ stepId: id, text: results.get(id)?.text ?? '' }))
}

function reportEnd(
  step: Step,
  state: StepResult['state'] | 'skipped',
  text: string,
  run: Run,
): Promise<void> {
  return run.report.event({
    type: 'step-end',
    stepId: step.id,
    state,
    text: boundText(text, limits.documentMaxChars),
  })
}

function endingOf(
  plan: Plan,
  schedule: Schedule,
  results: ReadonlyMap<string, StepResult>,
  run: Run,
): RunEnding {
  const completed = plan.steps.filter(({ id }) => schedule.stateOf(id) === 'completed')
  const incomplete = plan.steps.filter(({ id }) => schedule.stateOf(id) !== 'completed')
  const summary = boundText(summarise(completed, results), limits.documentMaxChars)
  if (incomplete.length === 0) {
    return {
      outcome: 'completed',
      reason: 'completed',
      message: `all ${plan.steps.length} steps completed`,
      summary,
    }
  }
  const tally = `${completed.length} of ${plan.steps.length} steps completed`
  if (run.signal.aborted) return { ...interruption(run, tally), summary }
  const failed = plan.steps.filter(({ id }) => schedule.stateOf(id) === 'failed')
  const fatal = failed.filter(({ onFailure }) => onFailure === 'abort')
  const decisive =
    fatal.find(({ id }) => results.get(id)?.reason !== 'denied') ??
    fatal[0] ??
    (completed.length === 0 ? failed[0] : undefined)
  const describe = (step: Step): string => `step "${step.id}" failed: ${results.get(step.id)?.text ?? ''}`
  if (decisive === undefined) {
    const message = boundText(`${tally}; ${failed.map(describe).join('; ')}`, limits.textMaxChars)
    return { outcome: 'completed', reason: 'completed', message, summary }
  }
  const reason = results.get(decisive.id)?.reason ?? 'step_failed'
  return {
    outcome: 'failed',
    reason,
    message: boundText(`${tally}; ${describe(decisive)}`, limits.textMaxChars),
    summary,
  }
}

/** How a run ends whose signal was aborted: by its budget, or by a cancel. */
export function interruption(run: Pick<Run, 'signal' | 'budget'>, tally: string): Omit<RunEnding, 'summary'> {
  const { tripped } = run.budget
  if (tripped !== null) {
    const message = `${tripped.message}; ${tally}. Raise the limit, or give a smaller task.`
    return { outcome: 'failed', reason: tripped.reason, message }
  }
  const { reason } = run.signal
  const why = typeof reason === 'string' && reason !== '' ? reason : 'no reason given'
  const message = boundText(`cancelled (${why}); ${tally}`, limits.textMaxChars)
  return { outcome: 'cancelled', reason: 'cancelled', message }
}

/** The answers of the steps that no completed step builds on: what the plan was for. */
function summarise(completed: readonly Step[], results: ReadonlyMap<string, StepResult>): string {
  const last = completed.filter(({ id }) => !completed.some(({ needs }) => needs.includes(id)))
  const [only] = last
  if (last.length === 1 && only !== undefined) return results.get(only.id)?.text ?? ''
  return last.map(({ id, title }) => `## ${title}\n\n${results.get(id)?.text ?? ''}`).join('\n\n')
}
