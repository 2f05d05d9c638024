/**
 * Runs a task from prompt to end: obtains a plan, reports it, asks for approval where required, and executes it; or
 * only plans.
 */

import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { AgentRun, RunEnding } from '../run/run.ts'
import { truncate } from '../text/truncate.ts'
import { interruption } from './ending.ts'
import { boundsOf, findPlanProblems } from './parse-plan.ts'
import { adoptAllowed, askConsent } from './plan-approval.ts'
import { PlanState } from './plan-state.ts'
import type { PlanFailure, Planner } from './planner.ts'
import { describePlan } from './render.ts'

interface PlanAndExecuteParts {
  readonly planner: Planner
  /** Planner for runs that only plan. */
  readonly explorer: Planner
  readonly executor: (book: PlanState, run: AgentRun) => Promise<RunEnding>
}

/** Maximum number of replans after a person's feedback. */
const replansMax = 3

export async function planAndExecute(run: AgentRun, parts: PlanAndExecuteParts): Promise<RunEnding> {
  const isOnlyPlanned = run.task.mode === 'plan'
  const planned = await planFirst(run, isOnlyPlanned ? parts.explorer : parts.planner)
  if (run.signal.aborted) return { ...interruption(run, 'the plan was not executed'), summary: '' }
  if (!planned.ok) return failed(planned.error)
  const { plan, corrections } = planned.value
  await noteCorrections(corrections, run)
  const book = await PlanState.open(plan, run)
  if (isOnlyPlanned) {
    const summary = truncate(describePlan(plan), limits.documentMaxChars)
    return {
      outcome: 'completed',
      reason: 'completed',
      message: `planned ${plan.steps.length} steps; nothing was executed`,
      summary,
    }
  }
  const refusal = await agree(book, run, parts.planner)
  if (run.signal.aborted) return { ...interruption(run, 'the plan was not executed'), summary: '' }
  return refusal === null ? parts.executor(book, run) : failed(refusal)
}

/** The plan in the task, or a new one. */
async function planFirst(run: AgentRun, planner: Planner): ReturnType<Planner> {
  const { plan } = run.task
  if (plan === undefined) return planner(run, run.signal)
  const problems = await findPlanProblems(plan, boundsOf(run))
  if (problems.length === 0) return { ok: true, value: { plan, corrections: [] } }
  const message = `the plan of the task cannot be executed: ${problems.join('; ')}`
  return { ok: false, error: { reason: 'plan_invalid', message: truncate(message, limits.textMaxChars) } }
}

/** Asks until a plan is approved, then returns null. A denial with feedback starts a replan. */
async function agree(book: PlanState, run: AgentRun, planner: Planner): Promise<PlanFailure | null> {
  for (let round = 0; ; round++) {
    const consent = await askConsent(book.plan, run, () => boundsOf(run), run.signal)
    if (consent.allowed) {
      if (consent.isEdited)
        await adoptAllowed(book, { ...consent, isEdited: false }, 'edited by the person', run)
      return null
    }
    const { hint } = consent
    if (hint === undefined || round === replansMax) {
      const why = hint === undefined ? 'the plan was denied' : `the plan was denied: ${hint}`
      return { reason: 'denied', message: truncate(why, limits.textMaxChars) }
    }
    const planned = await planner(run, run.signal, { plan: book.plan, states: {}, why: { hint } })
    if (!planned.ok) return planned.error
    await noteCorrections(planned.value.corrections, run)
    await book.adopt(planned.value.plan, `replanned: ${hint}`, run)
  }
}

async function noteCorrections(corrections: readonly string[], run: AgentRun): Promise<void> {
  if (corrections.length === 0) return
  const text = truncate(`the model's plan was corrected: ${corrections.join('; ')}`, limits.textMaxChars)
  await run.report.event({ type: 'note', level: 'info', text })
}

function failed({ reason, message }: { reason: RunReason; message: string }): RunEnding {
  return { outcome: 'failed', reason, message, summary: '' }
}
