/**
 * Checks how many sub-agents a plan certainly needs against those that its run may still start. Both sides use it.
 */
import type { Plan } from './plan.ts'
import type { StepStates } from './plan-revision.ts'

export interface AgentRoom {
  /** Maximum sub-agents of the run; with 0 such steps execute without one. */
  readonly maxAgents: number
  /** Number started so far, by anyone. */
  readonly begun: number
}

/**
 * Why `plan` needs too many sub-agents, as text for the planner; empty when it does not. Counts steps that have not
 * started and have no condition: others may be skipped.
 */
export function findAgentProblems(plan: Plan, { maxAgents, begun }: AgentRoom, states: StepStates): string[] {
  if (maxAgents === 0) return []
  const isPending = (id: string): boolean => !Object.hasOwn(states, id) || states[id]?.state === 'pending'
  const certain = plan.steps.filter(
    ({ id, kind, when }) => kind === 'agent' && when === undefined && isPending(id),
  )
  const left = Math.max(0, maxAgents - begun)
  if (certain.length <= left) return []
  const had = begun === 0 ? '' : `, and ${begun} have begun`
  const ids = certain.map(({ id }) => `"${id}"`).join(', ')
  return [
    `the steps that have not begun need ${certain.length} sub-agents (${ids}) where ${left} can begin: the run may have ${maxAgents} (maxAgents)${had}. Leave the kind "agent" out of some of them, or join some`,
  ]
}
