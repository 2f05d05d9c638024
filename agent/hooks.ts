/**
 * The host's hooks as the agent keeps to them: it stops at the points that the task names, asks, and does as it is told, for
 * itself and for its sub-agents. Whom the host asks there is not known here. A hook that cannot be asked counts as a no.
 */
import type { Logger } from 'pino'
import type { ToolError } from '#specs/protocol/error.ts'
import type { AgentHook, AgentHookPoint, HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { boundJsonText, boundText, type Run } from './run.ts'
import type { StepResult } from './step.ts'
import type { CallHooks } from './tools/around-call.ts'
import { cutMiddle } from './tools/cut.ts'

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
const textMaxBytes = limits.frameMaxBytes / 4

/** The hooks around one call; undefined where there are none about tools. */
export function callHooks(
  run: Run,
  {
    stepId,
    callId,
    signal,
  }: { readonly stepId: string; readonly callId: string; readonly signal: AbortSignal },
): CallHooks | undefined {
  const { hooks } = run
  if (hooks === undefined || !hooks.hooks.some(({ point }) => point.endsWith('-tool'))) return undefined
  const ask = async (subject: HookRequest['subject'], tool: string): Promise<HookDecision | undefined> => {
    if (!isHooked(hooks.hooks, subject.point, tool)) return undefined
    const decision = await askSafely(hooks, { agentPath: run.agentPath, stepId, subject }, signal, run.logger)
    // A yes that is given in a pause does not end it.
    await run.steering.ready(signal)
    return decision
  }
  return {
    before: (tool, given) => ask({ point: 'before-tool', callId, tool, arguments: given }, tool),
    after: (tool, given, output, error?: ToolError) =>
      ask(
        {
          point: 'after-tool',
          callId,
          tool,
          arguments: given,
          output: boundJsonText(cutMiddle(output, limits.textMaxChars), limits.textMaxChars, textMaxBytes),
          ...(error === undefined ? {} : { error }),
        },
        tool,
      ),
  }
}

/** The work of a step, or of a sub-agent, between its hooks: a no before it means that it never begins, one after it that it failed. */
export async function aroundStep<R extends StepResult>(
  { id, title, instructions }: Pick<Step, 'id' | 'title' | 'instructions'>,
  run: Run,
  signal: AbortSignal,
  work: () => Promise<R>,
): Promise<R | StepResult> {
  const { hooks } = run
  if (hooks === undefined) return await work()
  const about = {
    title: boundText(title, limits.lineMaxChars),
    instructions: boundJsonText(instructions, limits.documentMaxChars, textMaxBytes),
  }
  const ask = async (subject: HookRequest['subject']): Promise<HookDecision | undefined> =>
    isHooked(hooks.hooks, subject.point)
      ? await askSafely(hooks, { agentPath: run.agentPath, stepId: id, subject }, signal, run.logger)
      : undefined
  const before = await ask({ point: 'before-step', ...about })
  if (signal.aborted)
    return { state: 'cancelled', reason: 'cancelled', text: 'interrupted at a hook', history: [] }
  if (before?.decision === 'deny')
    return denied(`a hook refused the step: ${before.reason ?? 'no reason given'}`, [])
  const result = await work()
  if (signal.aborted) return result
  const text = boundJsonText(result.text, limits.documentMaxChars, textMaxBytes)
  const after = await ask({ point: 'after-step', ...about, state: result.state, text })
  if (signal.aborted || after?.decision !== 'deny') return result
  return denied(`a hook refused what the step gave: ${after.reason ?? 'no reason given'}`, result.history)
}

function denied(text: string, history: StepResult['history']): StepResult {
  return { state: 'failed', reason: 'denied', text: boundText(text, limits.documentMaxChars), history }
}

function isHooked(hooks: readonly AgentHook[], point: AgentHookPoint, tool?: string): boolean {
  return hooks.some(
    (hook) =>
      hook.point === point &&
      (tool === undefined ||
        hook.tools === undefined ||
        hook.tools.some((pattern) => matchesPattern(pattern, tool))),
  )
}

/** What fails here is a no. */
async function askSafely(
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
