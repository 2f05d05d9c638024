/** Messages to the model about a call: its result, or why it did not run. */

import type { ValidationFailure } from '#runtime/arguments/failure.ts'
import type { Result, ToolError } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { type Tool, toolFailure } from './tool.ts'

export function interruptedCall(): { ok: false; error: ToolError } {
  return toolFailure('cancelled', 'interrupted: the run ended before this call did; its effect is unknown')
}

export function unknownTool(
  name: string,
  byName: ReadonlyMap<string, Tool>,
): { ok: false; error: ValidationFailure } {
  const { error } = toolFailure('unknown_tool', unknownText(name, byName))
  return { ok: false, error: { error, output: describeError(error) } }
}

export function refusedTool(name: string): { ok: false; error: ValidationFailure } {
  const text = `${name} is not for a run that only plans: nothing can be changed or run now. Add it to the plan instead`
  const { error } = toolFailure('denied', text)
  return { ok: false, error: { error, output: describeError(error) } }
}

/** Message about an executed call; corrections come last, so that the model writes the next call correctly. */
export function describeResult(
  result: Result<string> | null,
  corrections: readonly string[],
  notes: readonly string[],
  cut: (text: string) => string,
): string {
  const output = cut(result === null ? '' : result.ok ? result.value : describeError(result.error))
  const told = [
    ...(corrections.length === 0
      ? []
      : [`The call was corrected (${truncateMiddle(corrections.join('; '), 1_000)}).`]),
    ...notes.map((note) => truncateMiddle(note, 2_000)),
  ]
  return told.length === 0 ? output : `${output}\n\n${told.map((line) => `[Caisson] ${line}`).join('\n')}`
}

export function unknownText(name: string, byName: ReadonlyMap<string, Tool>): string {
  return `there is no tool ${JSON.stringify(name)}; the tools are ${[...byName.keys()].join(', ')}`
}

export function boundError(error: ToolError): ToolError {
  return {
    code: error.code,
    message: truncateMiddle(error.message.toWellFormed(), limits.textMaxChars),
    retryable: error.retryable,
  }
}

export function describeError(error: ToolError): string {
  if (error.code === 'invalid_input') return error.message
  return `Error (${error.code}): ${error.message}${error.retryable ? ' (may succeed if tried again)' : ''}`
}
