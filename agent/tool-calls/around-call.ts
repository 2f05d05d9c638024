/**
 * Runs a call between the host's hooks, which may change its arguments and withhold its result. Does not know whom
 * the host asks.
 */
import type { Result, ToolError } from '#specs/protocol/error.ts'
import type { HookDecision } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { type ParsedArguments, parseArguments } from './arguments.ts'
import { describeError, interruptedCall } from './call-texts.ts'
import { type Tool, toolFailure } from './tool.ts'

/** The host's hooks before and after a call; undefined when none concerns the tool. Arguments are canonical JSON. */
export interface CallHooks {
  /** Whether any hook inspects the results of the tool. */
  looksAfter(tool: string): boolean
  /** @param defaults names of arguments that the model did not give */
  before(tool: string, given: string, defaults: readonly string[]): Promise<HookDecision | undefined>
  after(tool: string, given: string, output: string, error?: ToolError): Promise<HookDecision | undefined>
}

/**
 * Runs the call between its hooks, with the arguments and the result that they allow.
 * @param notes receives the hooks' notes
 */
export async function aroundCall(
  tool: Tool,
  parsed: ParsedArguments,
  { hooks, signal }: { readonly hooks?: CallHooks; readonly signal: AbortSignal },
  notes: string[],
  run: (parsed: ParsedArguments) => Promise<Result<string>>,
): Promise<Result<string>> {
  if (hooks === undefined || signal.aborted) return await run(parsed)
  if (parsed.canonical.length > limits.documentMaxChars)
    return toolFailure(
      'too_large',
      `the arguments are too long for the host’s hooks (${parsed.canonical.length} characters)`,
    )
  const before = await hooks.before(tool.name, parsed.canonical, parsed.defaults)
  if (signal.aborted) return interruptedCall()
  if (before?.decision === 'deny')
    return toolFailure(
      'denied',
      `a hook of the host refused this call of ${tool.name}: ${before.reason ?? 'no reason given'}`,
    )
  const allowed = before?.arguments === undefined ? parsed : changeArguments(tool, before.arguments)
  if (allowed === null)
    return toolFailure('denied', `a hook of the host gave ${tool.name} arguments that do not fit it`)
  if (allowed !== parsed)
    notes.push(`a hook changed the arguments to ${truncateMiddle(allowed.canonical, 300)}`)
  const result = await run(allowed)
  // Cancelled: a result that a hook must inspect first is withheld.
  if (signal.aborted) return result.ok && hooks.looksAfter(tool.name) ? interruptedCall() : result
  const told = result.ok ? result.value : describeError(result.error)
  const after = await hooks.after(tool.name, allowed.canonical, told, result.ok ? undefined : result.error)
  for (const note of [before?.note, after?.note]) if (note !== undefined) notes.push(`a hook says: ${note}`)
  if (after?.decision !== 'deny') return result
  return toolFailure(
    'denied',
    `the call of ${tool.name} was executed, but a hook of the host withholds its result: ${after.reason ?? 'no reason given'}`,
  )
}

/** The hook's arguments unchanged, or null when the tool does not accept them. */
function changeArguments(tool: Tool, given: string): ParsedArguments | null {
  const parsed = parseArguments({ ...tool, readOnly: false, destructive: true }, given)
  return parsed.ok ? parsed.value : null
}
