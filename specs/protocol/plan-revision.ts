/**
 * What a later plan may change: nothing that has started. Both sides check it; the host ends the session on a
 * violation.
 */
import { toCanonicalJson } from './canonical-json.ts'
import type { Plan, Step, StepState } from './plan.ts'

/** States of the current plan's steps; a step without an entry has not started. */
export type StepStates = Readonly<Record<string, { readonly state: StepState }>>

/**
 * Why `next` is no valid revision of `current`, as text for the model; empty when it is valid. Every started step
 * must be unchanged, and no other step may wait for one that can no longer complete.
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

/** Whether both are equal, regardless of field order. */
export function isSameStep(a: Step, b: Step): boolean {
  return toCanonicalJson(a) === toCanonicalJson(b)
}
