/** The current plan and its number. The host receives every plan before any of its steps starts. */
import { limits } from '#specs/protocol/limits.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { isSameStep } from '#specs/protocol/plan-revision.ts'
import type { WorkflowAddition } from '#specs/protocol/workflow-format.ts'
import type { AgentRun } from '../run/run.ts'
import { truncate } from '../text/truncate.ts'

export class PlanState {
  #plan: Plan
  #revision = 1

  /** `plan` becomes the first; {@link PlanState.open} reports it to the host. */
  constructor(plan: Plan) {
    this.#plan = plan
  }

  static async open(plan: Plan, run: AgentRun): Promise<PlanState> {
    await run.report.event({ type: 'plan-update', revision: 1, plan })
    return new PlanState(plan)
  }

  get plan(): Plan {
    return this.#plan
  }

  get revision(): number {
    return this.#revision
  }

  /** Whether the run may adopt another plan. */
  get isFull(): boolean {
    return this.#revision >= limits.planMaxRevisions
  }

  /** Makes `plan` current; resolves when the host has it, with the reason. @param added by a step of a workflow */
  async adopt(plan: Plan, reason: string, run: AgentRun, added?: WorkflowAddition): Promise<void> {
    this.#plan = plan
    this.#revision++
    const why = truncate(reason.replaceAll(/\s+/g, ' ').trim(), limits.lineMaxChars)
    const more = added === undefined ? {} : { added }
    await run.report.event({ type: 'plan-update', revision: this.#revision, plan, reason: why, ...more })
  }
}

/** Whether both plans are equal, including the order of their steps. */
export function isSamePlan(a: Plan, b: Plan): boolean {
  if (a.goal !== b.goal || a.steps.length !== b.steps.length) return false
  return a.steps.every((step, index) => {
    const other = b.steps[index]
    return other !== undefined && isSameStep(step, other)
  })
}
