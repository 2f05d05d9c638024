/** Computes how the execution of a plan ended: one value for every way it can end. */
import { limits } from '#specs/protocol/limits.ts'
import type { Plan, Step } from '#specs/protocol/plan.ts'
import type { AgentRun, RunEnding } from '../run/run.ts'
import type { StepResult } from '../step/step.ts'
import { truncate } from '../text/truncate.ts'
import type { PlanFailure } from './planner.ts'
import type { Schedule } from './schedule.ts'

interface ExecutedPlan {
  readonly plan: Plan
  readonly schedule: Schedule
  readonly results: ReadonlyMap<string, StepResult>
  /** Failures of replanning, by the step whose failure requested it. */
  readonly unplanned: ReadonlyMap<string, PlanFailure>
}

export function planEnding({ plan, schedule, results, unplanned }: ExecutedPlan, run: AgentRun): RunEnding {
  const stateOf = ({ id }: Step) => schedule.stateOf(id)
  const completed = plan.steps.filter((step) => stateOf(step) === 'completed')
  const aside = plan.steps.filter(({ id }) => schedule.isSetAside(id))
  const summary = truncate(summarize(completed, results), limits.documentMaxChars)
  const total = plan.steps.length
  const left = aside.length === 0 ? '' : `, ${aside.length} skipped by their conditions`
  if (completed.length + aside.length === total) {
    const whole = total === 1 ? 'its one step completed' : `all ${total} steps completed`
    const message = aside.length === 0 ? whole : `${completed.length} of ${total} steps completed${left}`
    return { outcome: 'completed', reason: 'completed', message, summary }
  }
  const tally = `${completed.length} of ${total} steps completed${left}`
  const said = summary === '' ? sayUnfinished(plan, results) : summary
  if (run.signal.aborted) return { ...interruption(run, tally), summary: said }
  const failed = plan.steps.filter((step) => stateOf(step) === 'failed')
  const fatal = failed.filter(({ id, onFailure }) => onFailure === 'abort' || unplanned.has(id))
  const decisive =
    fatal.find(({ id }) => results.get(id)?.reason !== 'denied') ??
    fatal[0] ??
    (completed.length === 0 ? failed[0] : undefined)
  const describe = ({ id }: Step): string => {
    const why = unplanned.get(id)
    const text = `step "${id}" failed: ${results.get(id)?.ended ?? results.get(id)?.text ?? ''}`
    return why === undefined ? text : `${text}; replanning failed: ${why.message}`
  }
  if (decisive === undefined) {
    const message = truncate(`${tally}; ${failed.map(describe).join('; ')}`, limits.textMaxChars)
    return { outcome: 'completed', reason: 'completed', message, summary }
  }
  const isDenied = unplanned.get(decisive.id)?.reason === 'denied'
  const reason = isDenied ? 'denied' : (results.get(decisive.id)?.reason ?? 'step_failed')
  const message = truncate(`${tally}; ${describe(decisive)}`, limits.textMaxChars)
  return { outcome: 'failed', reason, message, summary: said }
}

/** What steps said that a limit ended. */
function sayUnfinished({ steps }: Plan, results: ReadonlyMap<string, StepResult>): string {
  const ended = steps.filter(({ id }) => results.get(id)?.ended !== undefined)
  return truncate(joinTexts(ended, results), limits.documentMaxChars)
}

/** Ending of a run whose signal was aborted: by its budget or by a cancel. */
export function interruption(
  run: Pick<AgentRun, 'signal' | 'budget'>,
  tally: string,
): Omit<RunEnding, 'summary'> {
  const { tripped } = run.budget
  if (tripped !== null) {
    const message = `${tripped.message}; ${tally}. Raise the limit, or give a smaller task.`
    return { outcome: 'failed', reason: tripped.reason, message }
  }
  const { reason } = run.signal
  const why = typeof reason === 'string' && reason !== '' ? reason : 'no reason given'
  const message = truncate(`cancelled (${why}); ${tally}`, limits.textMaxChars)
  return { outcome: 'cancelled', reason: 'cancelled', message }
}

/** Answers of the last steps: the result of the plan. */
function summarize(completed: readonly Step[], results: ReadonlyMap<string, StepResult>): string {
  return joinTexts(lastSteps(completed), results)
}

function joinTexts(steps: readonly Step[], results: ReadonlyMap<string, StepResult>): string {
  const [only] = steps
  if (steps.length === 1 && only !== undefined) return results.get(only.id)?.text ?? ''
  return steps.map(({ id, title }) => `## ${title}\n\n${results.get(id)?.text ?? ''}`).join('\n\n')
}

/** The completed steps that no completed step builds on. */
export function lastSteps(completed: readonly Step[]): Step[] {
  return completed.filter(({ id }) => !completed.some(({ needs }) => needs.includes(id)))
}
