/** The failure of a tool call: as a durable artifact, and as an error for applications that want it thrown. */
import * as z from 'zod'
import { CaissonError, type ErrorCode } from '#specs/errors.ts'
import { parseArtifact } from '#specs/protocol/validation-failure.ts'
import type { LLMToolCall } from '../contract/contract.ts'

/**
 * What becomes of a call that fails. `text`: a sentence for the model. `return-artifact`: the same as JSON, which
 * {@link parseToolFailureArtifact} reads. `throw`: an {@link LLMToolError}. Arguments that do not fit are their own
 * artifact with the first two.
 */
export type ToolErrorMode = 'text' | 'return-artifact' | 'throw'
const modes: readonly unknown[] = ['text', 'return-artifact', 'throw'] satisfies ToolErrorMode[]

export type ToolFailureCode = 'unknown_tool' | 'invalid_arguments' | 'not_allowed' | 'cancelled' | 'failed'

const failureType = 'tool_execution_failed'

/** A failed call, for the model and for programs. */
export interface ToolFailureArtifact {
  readonly ok: false
  readonly status: 'error'
  readonly errorType: 'tool_execution_failed'
  readonly toolCallId: string
  readonly toolName: string
  readonly code: ToolFailureCode
  readonly message: string
}

/** Unknown fields of later versions are ignored: transcripts outlive versions. */
const Artifact: z.ZodType<ToolFailureArtifact> = z.object({
  ok: z.literal(false),
  status: z.literal('error'),
  errorType: z.literal(failureType),
  toolCallId: z.string(),
  toolName: z.string(),
  code: z.enum(['unknown_tool', 'invalid_arguments', 'not_allowed', 'cancelled', 'failed']),
  message: z.string(),
})

/** A call failed, with the error mode `throw`. */
export class LLMToolError extends CaissonError {
  override readonly name = 'LLMToolError'
  readonly failure: ToolFailureArtifact

  constructor(failure: ToolFailureArtifact) {
    const { toolName, code, message } = failure
    super(errorCodeOf(code), `the call of ${toolName} failed (${code}): ${message}`)
    this.failure = failure
  }
}

export function toFailureArtifact(
  call: LLMToolCall,
  code: ToolFailureCode,
  message: string,
): ToolFailureArtifact {
  return {
    ok: false,
    status: 'error',
    errorType: failureType,
    toolCallId: call.id,
    toolName: call.function.name.slice(0, 100),
    code,
    message: message.slice(0, 8_000).toWellFormed(),
  }
}

/** Parses the artifact from `value`, an object or its JSON; null for everything else. Never throws. */
export function parseToolFailureArtifact(value: unknown): ToolFailureArtifact | null {
  return parseArtifact(Artifact, value)
}

export function checkErrorMode(mode: ToolErrorMode | undefined): ToolErrorMode {
  if (mode === undefined) return 'text'
  if (modes.includes(mode)) return mode
  throw new CaissonError('invalid_options', `errorMode must be text, return-artifact or throw`)
}

function errorCodeOf(code: ToolFailureCode): ErrorCode {
  if (code === 'not_allowed') return 'denied'
  return code === 'cancelled' ? 'cancelled' : 'tool_failed'
}
