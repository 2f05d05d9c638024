/** How many sub-agents a plan is certain to need, held against those that its run may still begin. Both sides measure by it. */
import type { Plan } from './plan.ts'
import type { StepStates } from './plan-revision.ts'

export interface AgentRoom {
  /** Sub-agents of the whole run; with 0 such steps are carried out like any other. */
  readonly maxAgents: number
  /** Those that have begun, whoever began them. */
  readonly begun: number
}

/**
 * What is wrong with `plan` for want of sub-agents, in words that whoever plans can act on; empty when it may be. A step counts
 * when it has not begun and has no condition: of others nobody knows yet whether they are taken.
 */
export function findAgentProblems(plan: Plan, { maxAgents, begun }: AgentRoom, states: StepStates): string[] {
  if (maxAgents === 0) return []
  const isPending = (id: string): boolean => !Object.hasOwn(states, id) || states[id]?.state === 'pending'
  const certain = plan.steps.filter(
    ({ id, kind, when }) => kind === 'agent' && when === undefined && isPending(id),
  )
  const left = Math.max(0, maxAgents - begun)
  if (certain.length <= left) return []
  const had = begun === 0 ? '' : `, ${begun} of which have begun`
  const ids = certain.map(({ id }) => `"${id}"`).join(', ')
  return [
    `the steps that have not begun need ${certain.length} sub-agents (${ids}) where ${left} can begin: the run may have ${maxAgents} (maxAgents)${had}. Leave the kind "agent" out of some of them, or join some`,
  ]
}
