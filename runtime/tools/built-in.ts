/**
 * The type of a built-in tool: a zod schema of its parameters, and its function; and the working directory of a call,
 * which file tools cannot leave.
 */

import path from 'node:path'
import * as z from 'zod'
import type { LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import { failure } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { EvidenceKind, LLMToolContext } from '../contract/contract.ts'
import { withPlaceIn } from './workspace-file.ts'

/** Result of a call. A value other than text becomes JSON. */
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
  /** What a successful call proves. */
  readonly evidence: EvidenceKind
  /** @param input validated parameters */
  execute(input: unknown, context: LLMToolContext): Promise<ToolOutcome>
}

/** Infers the type of a tool's function from its parameters. */
export function defineBuiltIn<I extends z.ZodType>(
  tool: Omit<BuiltIn, 'parameters' | 'execute'> & {
    readonly parameters: I
    run(input: z.output<I>, context: LLMToolContext): Promise<ToolOutcome>
  },
): BuiltIn {
  const { run, ...rest } = tool
  return { ...rest, execute: async (input, context) => await run(tool.parameters.parse(input), context) }
}

/** A value for the model, or a failure with code and message. */
export function toOutcome(result: Result<unknown>): ToolOutcome {
  return result.ok
    ? { ok: true, content: result.value }
    : { ok: false, content: `Error (${result.error.code}): ${result.error.message}` }
}

export const pathParameter = z.string().min(1).max(8_192)

/** Opens `target` below the working directory, runs `action` on it and closes both. */
export async function withinDirectory<T>(
  { workingDirectory }: LLMToolContext,
  target: string,
  locate: LocateOptions,
  action: (place: Place, root: Root) => Result<T> | Promise<Result<T>>,
): Promise<Result<T>> {
  if (workingDirectory === undefined)
    return failure('unavailable', 'there is no working directory: the application gave none with this call')
  return await withPlaceIn({ path: path.resolve(workingDirectory) }, target, locate, action)
}
