/**
 * What a model is told when the arguments of its call do not fit the tool: one JSON object, kept as the `output` of the
 * journal's `tool-end`. Programs find such failures with {@link parseToolValidationFailureArtifact}.
 */
import * as z from 'zod'

/** The value of `errorType` by which the object is known. */
export const toolValidationFailureType = 'tool_parameter_validation_failed'

export const ToolValidationIssue = z.object({
  /** The parameter, with dots for what lies in it; empty when it is about the arguments as a whole. */
  path: z.string(),
  /** The schema's word (`invalid_type`, `unrecognized_keys`, …), or `invalid_json`, `cut_off`. */
  code: z.string(),
  /** What is wrong, for a model to act on. */
  message: z.string(),
  /** Absent unless the type is what is wrong. */
  expectedType: z.string().optional(),
  receivedType: z.string().optional(),
})
export type ToolValidationIssue = z.infer<typeof ToolValidationIssue>

/** Fields of later versions are left out when it is read, for journals outlive versions. */
export const ToolValidationFailure = z.object({
  ok: z.literal(false),
  status: z.literal('error'),
  errorType: z.literal(toolValidationFailureType),
  toolName: z.string(),
  message: z.string(),
  issues: z.array(ToolValidationIssue),
  /** What had been put right before the rest was found wrong, in words. */
  corrections: z.array(z.string()),
})
export type ToolValidationFailure = z.infer<typeof ToolValidationFailure>

/** The artifact in `value`, an object or its JSON; null for everything else. Never throws. */
export function parseToolValidationFailureArtifact(value: unknown): ToolValidationFailure | null {
  const parsed = ToolValidationFailure.safeParse(typeof value === 'string' ? parseJson(value) : value)
  return parsed.success ? parsed.data : null
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
