/** The schema of an answer from zod, and the form in which a model is asked for a value that is no object. */
import * as z from 'zod'
import { type AnswerSchema, type JsonSchema, joinIssues } from '#specs/node/json-schema.ts'
import { isRecord } from '../llm/json-schema.ts'

/**
 * An answer's schema from a zod schema, whose transformations are applied. Throws when it has no JSON schema form: that is
 * misuse.
 */
export function openZodSchema<T extends z.ZodType>(schema: T): AnswerSchema<z.output<T>> {
  const { $schema: _, ...json } = z.toJSONSchema(schema, { io: 'input' })
  return {
    json,
    check: (value) => {
      const parsed = schema.safeParse(value)
      return parsed.success
        ? { ok: true, value: parsed.data }
        : { ok: false, error: describeSchemaIssues(parsed.error) }
    },
  }
}

/** Problems reported by zod, in one bounded line. */
export function describeSchemaIssues(error: z.ZodError, root = 'the value'): string {
  return joinIssues(
    error.issues.map(
      ({ path, message }) => `${path.length === 0 ? root : path.map(String).join('.')}: ${message}`,
    ),
  )
}

/**
 * The schema as that of an object, as tools and most servers require: itself, or an object with it as `value`.
 * Definitions stay at its root, where references expect them.
 */
export function asObjectSchema(schema: JsonSchema): {
  readonly schema: JsonSchema
  readonly isWrapped: boolean
} {
  if (schema.type === 'object') return { schema, isWrapped: false }
  const { $defs, definitions, ...value } = schema
  return {
    isWrapped: true,
    schema: {
      type: 'object',
      properties: { value },
      required: ['value'],
      ...(isRecord($defs) ? { $defs } : {}),
      ...(isRecord(definitions) ? { definitions } : {}),
    },
  }
}
