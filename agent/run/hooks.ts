/**
 * The agent's side of the host's hooks: stops at the points that the task names, asks the host, and obeys the answer,
 * also for sub-agents. Does not know whom the host asks. A hook that cannot be asked counts as a denial.
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

type AskHooks = (request: Omit<HookRequest, 'runId'>, signal: AbortSignal) => Promise<HookDecision>

export interface AgentHooks {
  readonly hooks: readonly AgentHook[]
  readonly ask: AskHooks
  /** The next id of a question; unique within a run. */
  nextId(): string
}

/** The hooks of a run; undefined when the task names none. */
export function openHooks(hooks: readonly AgentHook[] | undefined, ask: AskHooks): AgentHooks | undefined {
  if (hooks === undefined || hooks.length === 0) return undefined
  let count = 0
  return { hooks, ask, nextId: () => `hook-${++count}` }
}

/** Maximum JSON bytes of one text in a question. */
export const hookTextMaxBytes = limits.frameMaxBytes / 4

/** Whether any hook applies there; points of steps have no tool. */
export function isHooked(hooks: readonly AgentHook[], point: AgentHookPoint, tool?: string): boolean {
  return hooks.some((hook) => isAskedAt(hook, point, tool))
}

/** A failure counts as a denial. */
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
