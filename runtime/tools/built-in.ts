/** What a tool of the library itself is: its parameters as a zod schema, and what it does with them. */
import type { z } from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import type { LLMToolContext } from '../contract/contract.ts'

/** What a call came to. A content that is no text is told as JSON. */
export interface ToolOutcome {
  readonly ok: boolean
  readonly content: unknown
}

export interface BuiltIn {
  readonly name: string
  readonly description: string
  readonly parameters: z.ZodType
  readonly readOnly: boolean
  readonly destructive?: boolean
  /** @param input checked against the parameters */
  execute(input: unknown, context: LLMToolContext): Promise<ToolOutcome>
}

/** Types a tool's function by its parameters. */
export function defineBuiltIn<I extends z.ZodType>(
  tool: Omit<BuiltIn, 'parameters' | 'execute'> & {
    readonly parameters: I
    run(input: z.output<I>, context: LLMToolContext): Promise<ToolOutcome>
  },
): BuiltIn {
  const { run, ...rest } = tool
  return { ...rest, execute: async (input, context) => await run(tool.parameters.parse(input), context) }
}

/** A value for the model; or a failure, by its code and in words. */
export function toOutcome(result: Result<unknown>): ToolOutcome {
  return result.ok
    ? { ok: true, content: result.value }
    : { ok: false, content: `Error (${result.error.code}): ${result.error.message}` }
}
