/** Whether an agent that something is asked for is at work: of one that is not, nobody is asked and nothing is kept. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { AgentEventValidator } from './agent-event-validator.ts'

/** A request may overtake the event by which its agent begins. */
const beginningMs = 1_000

/** True at once for an agent at work; one that is not has a moment to begin. */
export async function waitForActiveAgent(
  claims: Pick<AgentEventValidator, 'isAtWork'>,
  agentPath: string,
): Promise<boolean> {
  if (!claims.isAtWork(agentPath)) await sleep(beginningMs)
  return claims.isAtWork(agentPath)
}
