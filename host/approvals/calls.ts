/** A call as approval rules see it, and what they say about it. */
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'

/** The parts of a call that rules match; `arguments` are canonical JSON of an object. */
export type Call = Pick<ApprovalRequest, 'tool' | 'arguments'>

/** What rules say about a call. */
export interface Ruling {
  readonly effect: ApprovalRule['effect']
  /** The deciding rules: one, or those that together allow all commands of a call. */
  readonly rules: readonly [ApprovalRule, ...ApprovalRule[]]
  /** Whether the rule might match a command that is not understood; the effect is then `ask`. */
  readonly isUnsure?: boolean
}

/** The tool whose `command` is text for bash. */
export const commandTool = 'run_bash'

/** Whether the rule is for the tool of the call. */
export function isForTool({ tool }: ApprovalRule, call: Call): boolean {
  return tool === '*' || tool === call.tool
}

/** The arguments by name; none if they are no object. */
export function parseArguments({ arguments: json }: Call): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(json)
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}

/** The command of a call for bash; undefined for other calls. */
export function commandOf(call: Call): string | undefined {
  const { command } = call.tool === commandTool ? parseArguments(call) : {}
  return typeof command === 'string' ? command : undefined
}
