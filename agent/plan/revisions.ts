/**
 * Replaces the current plan, one revision at a time: submitted by a step or made after a failure. While one is
 * pending no step starts. A revision never changes steps that have started.
 */
import type { Result } from '#specs/protocol/error.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { findAgentProblems } from '#specs/protocol/plan-agents.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import type { AgentRun } from '../run/run.ts'
import { truncate } from '../text/truncate.ts'
import { toolFailure } from '../tool-calls/tool.ts'
import { boundsOf, type FormerPlan, type PlanBounds, parsePlan } from './parse-plan.ts'
import { adoptAllowed, askConsent } from './plan-approval.ts'
import { isSamePlan, type PlanState } from './plan-state.ts'
import type { PlanFailure, Planner } from './planner.ts'

interface RevisionParts {
  readonly book: PlanState
  readonly run: AgentRun
  readonly planner: Planner
  /** The current plan and the current states of its steps. */
  former(): FormerPlan
  /** A new plan is current, and the host has it. */
  onAdopted(plan: Plan): void
  /** No revision is pending any more. */
  onIdle(): void
  readonly signal: AbortSignal
}

/** Maximum number of plans made after failures; submitted plans are bounded only by the run's number of plans. */
const replansMax = 8
/** Maximum planning attempts after one failure: planning repeats when a step it expected to be pending fails meanwhile. */
const attemptsMax = 2

export class Revisions {
  readonly #parts: RevisionParts
  #under = 0
  #last: Promise<void> = Promise.resolve()
  #replans = 0
  /** Number of the plan that each step knows. */
  readonly #known = new Map<string, number>()

  constructor(parts: RevisionParts) {
    this.#parts = parts
  }

  /** Whether a revision is pending. */
  get isBusy(): boolean {
    return this.#under > 0
  }

  /** Records that the step knows the current plan. */
  noteSeen(stepId: string): void {
    this.#known.set(stepId, this.#parts.book.revision)
  }

  /** A running step submits a complete plan; returns the text for the model. */
  propose(stepId: string, value: unknown, reason: string, signal: AbortSignal): Promise<Result<string>> {
    return this.alone(async () => {
      const { book } = this.#parts
      if (book.isFull)
        return toolFailure(
          'limit_reached',
          `the plan was changed ${book.revision - 1} times: continue with it`,
        )
      if (this.#known.get(stepId) !== book.revision) {
        this.noteSeen(stepId)
        const text = `another step has changed the plan meanwhile. It now is\n${JSON.stringify(book.plan)}\nHand yours in again if it is still needed`
        return toolFailure('invalid_input', text)
      }
      const read = await parsePlan(value, this.#bounds())
      if (!read.ok) return toolFailure('invalid_input', `the plan is not changed: ${read.error}`)
      const { plan, corrections } = read.value
      if (isSamePlan(plan, book.plan))
        return toolFailure('invalid_input', 'the plan is not changed: this is the current plan')
      const adopted = await this.#adopt(plan, reason, signal)
      if (adopted !== null) {
        return toolFailure(adopted.reason === 'denied' ? 'denied' : 'invalid_input', adopted.message)
      }
      this.noteSeen(stepId)
      const note = corrections.length === 0 ? '' : ` (corrected: ${corrections.join('; ')})`
      const text = `plan ${book.revision} is now the current plan${note}; continue with this step`
      return { ok: true, value: truncate(text, 4_000) }
    })
  }

  /** Replans the rest after a step failed; returns why there is no new plan, or null. */
  replan(failedStep: string): Promise<PlanFailure | null> {
    return this.alone(() => this.#replan(failedStep))
  }

  async #replan(failedStep: string): Promise<PlanFailure | null> {
    const { book, run, planner, signal } = this.#parts
    if (book.isFull || this.#replans >= replansMax)
      return { reason: 'step_failed', message: 'the plan was changed too often already' }
    this.#replans++
    let failure: PlanFailure | null = null
    for (let attempt = 1; attempt <= attemptsMax; attempt++) {
      const planned = await planner(run, signal, { ...this.#parts.former(), why: { failedStep } })
      if (signal.aborted) return { reason: 'cancelled', message: 'interrupted while planning' }
      if (!planned.ok) return planned.error
      failure = await this.#adopt(planned.value.plan, `step "${failedStep}" failed`, signal)
      if (failure?.reason !== 'plan_invalid') return failure
    }
    return failure
  }

  /** Asks for approval where required, checks again which steps have started, and makes the plan current. */
  async #adopt(plan: Plan, reason: string, signal: AbortSignal): Promise<PlanFailure | null> {
    const { book, run } = this.#parts
    const consent = await askConsent(plan, run, () => this.#bounds(), signal)
    if (!consent.allowed) {
      const said = consent.hint === undefined ? '' : ` They said: ${consent.hint}`
      return {
        reason: 'denied',
        message: `the change of the plan was denied; the plan stays as it is.${said}`,
      }
    }
    const { agents, former } = this.#bounds()
    const [problem] = [
      ...findRevisionProblems(former.plan, consent.plan, former.states),
      ...findAgentProblems(consent.plan, agents, former.states),
    ]
    if (problem !== undefined)
      return { reason: 'plan_invalid', message: `the plan is not changed: ${problem}` }
    await adoptAllowed(book, consent, reason, run)
    this.#parts.onAdopted(consent.plan)
    return null
  }

  /** One change of the plan at a time, in request order. */
  async alone<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#last
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#last = promise
    this.#under++
    try {
      await before
      return await work()
    } finally {
      resolve()
      if (--this.#under === 0) this.#parts.onIdle()
    }
  }

  #bounds(): PlanBounds & { readonly former: FormerPlan } {
    const former = this.#parts.former()
    return { ...boundsOf(this.#parts.run, former), former }
  }
}
