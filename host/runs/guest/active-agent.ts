/**
 * Checks that the requesting agent is active. Requests from inactive agents are refused: no question is asked and
 * nothing is stored.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { AgentEventValidator } from './agent-event-validator.ts'

/** A request can arrive before the event that starts its agent. */
const beginningMs = 1_000

/** Resolves to true at once for an active agent; waits briefly for one that is just starting. */
export async function waitForActiveAgent(
  claims: Pick<AgentEventValidator, 'isAtWork'>,
  agentPath: string,
): Promise<boolean> {
  if (!claims.isAtWork(agentPath)) await sleep(beginningMs)
  return claims.isAtWork(agentPath)
}
