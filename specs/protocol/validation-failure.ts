/**
 * The model's message about arguments that do not fit a tool: one JSON object, kept as the `output` of the journal's
 * `tool-end`. Programs parse it with {@link parseToolValidationFailureArtifact}.
 */
import * as z from 'zod'

/** The value of `errorType` that identifies the object. */
export const toolValidationFailureType = 'tool_parameter_validation_failed'

export const ToolValidationIssue = z.object({
  /** The parameter, with dots for nested values; empty when it concerns the arguments as a whole. */
  path: z.string(),
  /** The schema's code (`invalid_type`, `unrecognized_keys`, …), or `invalid_json`, `cut_off`. */
  code: z.string(),
  /** The problem, for a model to act on. */
  message: z.string(),
  /** Absent unless the type is wrong. */
  expectedType: z.string().optional(),
  receivedType: z.string().optional(),
})
export type ToolValidationIssue = z.infer<typeof ToolValidationIssue>

/** Unknown fields of later versions are ignored: journals outlive versions. */
export const ToolValidationFailure = z.object({
  ok: z.literal(false),
  status: z.literal('error'),
  errorType: z.literal(toolValidationFailureType),
  toolName: z.string(),
  message: z.string(),
  issues: z.array(ToolValidationIssue),
  /** Corrections made before the remaining problems were found. */
  corrections: z.array(z.string()),
})
export type ToolValidationFailure = z.infer<typeof ToolValidationFailure>

/** Parses the artifact from `value`, an object or its JSON; null for everything else. Never throws. */
export function parseToolValidationFailureArtifact(value: unknown): ToolValidationFailure | null {
  return parseArtifact(ToolValidationFailure, value)
}

/** Parses `value`, an object or its JSON, by `schema`; null for everything else. Never throws. */
export function parseArtifact<T>(schema: z.ZodType<T>, value: unknown): T | null {
  const parsed = schema.safeParse(typeof value === 'string' ? parseJson(value) : value)
  return parsed.success ? parsed.data : null
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
