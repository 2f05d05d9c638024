/** The host's hooks around one tool call, in the form that the registry calls. */
import type { ToolError } from '#specs/protocol/error.ts'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import { askSafely, hookTextMaxBytes, isHooked } from '../run/hooks.ts'
import type { AgentRun } from '../run/run.ts'
import { truncateJson, truncateMiddle } from '../text/truncate.ts'
import type { CallHooks } from '../tool-calls/around-call.ts'
import { defaultsMaxCount } from '../tool-calls/call.ts'

/** The hooks around one call; undefined when no hook concerns tools. */
export function callHooks(
  run: AgentRun,
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
    // Approval during a pause does not end the pause.
    await run.steering.ready(signal)
    return decision
  }
  return {
    looksAfter: (tool) => isHooked(hooks.hooks, 'after-tool', tool),
    before: (tool, given, defaults) =>
      ask(
        {
          point: 'before-tool',
          callId,
          tool,
          arguments: given,
          ...(defaults.length === 0 ? {} : { defaults: defaults.slice(0, defaultsMaxCount) }),
        },
        tool,
      ),
    after: (tool, given, output, error?: ToolError) =>
      ask(
        {
          point: 'after-tool',
          callId,
          tool,
          arguments: given,
          output: truncateJson(
            truncateMiddle(output, limits.textMaxChars),
            limits.textMaxChars,
            hookTextMaxBytes,
          ),
          ...(error === undefined ? {} : { error }),
        },
        tool,
      ),
  }
}
