/**
 * The host's hooks as the agent keeps to them: it stops at the points that the task names, asks, and does as it is told, for
 * itself and for its sub-agents. Whom the host asks there is not known here. A hook that cannot be asked counts as a no.
 */
import type { Logger } from 'pino'
import {
  type AgentHook,
  type AgentHookPoint,
  type HookDecision,
  type HookRequest,
  isAskedAt,
} from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'

export type AskHooks = (request: Omit<HookRequest, 'runId'>, signal: AbortSignal) => Promise<HookDecision>

export interface AgentHooks {
  readonly hooks: readonly AgentHook[]
  readonly ask: AskHooks
  /** The next id of a question; no two of a run are the same. */
  nextId(): string
}

/** The hooks of a run; undefined where the task names none. */
export function openHooks(hooks: readonly AgentHook[] | undefined, ask: AskHooks): AgentHooks | undefined {
  if (hooks === undefined || hooks.length === 0) return undefined
  let count = 0
  return { hooks, ask, nextId: () => `hook-${++count}` }
}

/** Bytes of one text of a question, as JSON. */
export const hookTextMaxBytes = limits.frameMaxBytes / 4

/** Whether any of them is asked there; of a point of steps there is no tool. */
export function isHooked(hooks: readonly AgentHook[], point: AgentHookPoint, tool?: string): boolean {
  return hooks.some((hook) => isAskedAt(hook, point, tool))
}

/** What fails here is a no. */
export async function askSafely(
  { ask, nextId }: AgentHooks,
  request: Omit<HookRequest, 'runId' | 'hookId'>,
  signal: AbortSignal,
  logger: Logger,
): Promise<HookDecision> {
  try {
    return await ask({ hookId: nextId(), ...request }, signal)
  } catch (error) {
    if (signal.aborted) return { decision: 'deny', reason: 'the run ended' }
    logger.error({ err: error }, 'the hooks could not be asked')
    return { decision: 'deny', reason: 'the host’s hooks could not be asked' }
  }
}
