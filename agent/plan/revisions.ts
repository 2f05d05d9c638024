/**
 * Other plans in the place of the one in force, one at a time: handed in by a step, or made because a step failed. Nothing new
 * starts while one is on its way, and none touches what has begun.
 */
import type { Result } from '#specs/protocol/error.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { findAgentProblems } from '#specs/protocol/plan-agents.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import type { AgentRun } from '../run/run.ts'
import { truncate } from '../text/truncate.ts'
import { toolFailure } from '../tool-calls/tool.ts'
import { boundsOf, type FormerPlan, type PlanBounds, readPlan } from './parse-plan.ts'
import { adoptAllowed, askConsent } from './plan-approval.ts'
import { isSamePlan, type PlanState } from './plan-state.ts'
import type { PlanFailure, Planner } from './planner.ts'

export interface RevisionParts {
  readonly book: PlanState
  readonly run: AgentRun
  readonly planner: Planner
  /** The plan in force and where its steps stand at this moment. */
  former(): FormerPlan
  /** Another plan is in force, and the host has been told. */
  onAdopted(plan: Plan): void
  /** Nothing is on its way any more. */
  onIdle(): void
  readonly signal: AbortSignal
}

/** Plans made after failures; what steps hand in is bounded by the number of plans of a run alone. */
const replansMax = 8
/** A plan is made once more when what had not begun begins to fail while it is made. */
const attemptsMax = 2

export class Revisions {
  readonly #parts: RevisionParts
  #under = 0
  #last: Promise<void> = Promise.resolve()
  #replans = 0
  /** The number of the plan that a step knows. */
  readonly #known = new Map<string, number>()

  constructor(parts: RevisionParts) {
    this.#parts = parts
  }

  /** Whether a plan is on its way. */
  get isBusy(): boolean {
    return this.#under > 0
  }

  /** The step has been told the plan in force. */
  noteSeen(stepId: string): void {
    this.#known.set(stepId, this.#parts.book.revision)
  }

  /** A running step hands a whole plan in; what the model is told of it. */
  propose(stepId: string, value: unknown, reason: string, signal: AbortSignal): Promise<Result<string>> {
    return this.#alone(async () => {
      const { book } = this.#parts
      if (book.isFull)
        return toolFailure('limit_reached', `the plan was changed ${book.revision - 1} times: go on with it`)
      if (this.#known.get(stepId) !== book.revision) {
        this.noteSeen(stepId)
        const text = `another step has changed the plan meanwhile. It now is\n${JSON.stringify(book.plan)}\nHand yours in again if it is still needed`
        return toolFailure('invalid_input', text)
      }
      const read = await readPlan(value, this.#bounds())
      if (!read.ok) return toolFailure('invalid_input', `the plan is not changed: ${read.error}`)
      const { plan, corrections } = read.value
      if (isSamePlan(plan, book.plan))
        return toolFailure('invalid_input', 'the plan is not changed: this is the plan in force')
      const adopted = await this.#adopt(plan, reason, signal)
      if (adopted !== null) {
        return toolFailure(adopted.reason === 'denied' ? 'denied' : 'invalid_input', adopted.message)
      }
      this.noteSeen(stepId)
      const note = corrections.length === 0 ? '' : ` (put right: ${corrections.join('; ')})`
      const text = `plan ${book.revision} is in force${note}; go on with this step`
      return { ok: true, value: truncate(text, 4_000) }
    })
  }

  /** Has the rest planned anew after the failure of a step; why there is no other plan, null when there is one. */
  replan(failedStep: string): Promise<PlanFailure | null> {
    return this.#alone(() => this.#replan(failedStep))
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

  /** Asks where it is due, looks again at what has begun meanwhile, and puts the plan in force. */
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

  /** One at a time, in the order in which they were asked for. */
  async #alone<T>(work: () => Promise<T>): Promise<T> {
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
