/** What a later plan may change of an earlier one: nothing that has begun. Both sides check it; the host ends the session over a breach. */
import { toCanonicalJson } from './canonical-json.ts'
import type { Plan, Step, StepState } from './plan.ts'

/** Where the steps of the plan in force stand; a step that is not named has not begun. */
export type StepStates = Readonly<Record<string, { readonly state: StepState }>>

/**
 * What is wrong with `next` as a revision of `current`, in words for the model; empty when it may be. Every step that has
 * begun stands in it as it was, and no step that has not begun waits for one that can no longer complete.
 */
export function findRevisionProblems(current: Plan, next: Plan, states: StepStates): string[] {
  const stateOf = (id: string): StepState =>
    Object.hasOwn(states, id) ? (states[id]?.state ?? 'pending') : 'pending'
  const problems: string[] = []
  const nextById = new Map(next.steps.map((step) => [step.id, step]))
  for (const step of current.steps) {
    const state = stateOf(step.id)
    if (state === 'pending') continue
    const kept = nextById.get(step.id)
    if (kept === undefined) problems.push(`step "${step.id}" is ${state} and cannot be left out`)
    else if (!isSameStep(step, kept)) problems.push(`step "${step.id}" is ${state} and cannot be changed`)
  }
  for (const step of next.steps) {
    if (stateOf(step.id) !== 'pending') continue
    for (const need of step.needs) {
      const state = stateOf(need)
      if (state === 'failed' || state === 'cancelled')
        problems.push(`step "${step.id}" needs "${need}", which is ${state}: let it need another step`)
    }
  }
  return problems
}

/** Whether both say the same, whatever the order of their fields. */
export function isSameStep(a: Step, b: Step): boolean {
  return toCanonicalJson(a) === toCanonicalJson(b)
}
