/** What the scripted model says to a planner, and what a request of ours is about. */
import { readHttpRequest } from '#runtime/testing/request.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, ServerReply } from '#specs/testing/model-server.ts'

/** The reply to a planning request: a call of submit_plan. */
export function planReply(plan: unknown): ServerReply {
  return reply({ calls: [{ name: 'submit_plan', arguments: plan }] })
}

/** Whether the request asks for a plan. */
export function isPlanning(asked: Asked): boolean {
  return asked.messages[0]?.content?.startsWith("You are Caisson's planner.") ?? false
}

/** Whether the request is a sub-agent's. */
export function isOfSubAgent(asked: Asked): boolean {
  return asked.messages[0]?.content?.includes('You are a sub-agent') ?? false
}

/** The id of the step that the request is about. */
export function stepOf(asked: Asked): string | undefined {
  const { step } = readHttpRequest(asked, 0)
  return step === 'plan' ? undefined : step
}
