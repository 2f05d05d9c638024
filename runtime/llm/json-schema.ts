/** Converts zod schemas to the small subset of JSON schema that models and their servers understand. */
import * as z from 'zod'
import { isRecord } from '#specs/node/model-protocols/records.ts'

export { definitionOf, isRecord } from '#specs/node/model-protocols/records.ts'

/**
 * Keywords that every server accepts. Our own validation checks patterns, formats and lengths: grammars built from
 * them fail.
 */
const keptKeywords = ['type', 'description', 'enum', 'const', 'required', 'minimum', 'maximum'] as const

/** The schema of the input (before defaults), inlined and without extensions. */
export function toModelSchema(schema: z.ZodType): Record<string, unknown> {
  return simplify(toInputSchema(schema))
}

const inputSchemas = new WeakMap<z.ZodType, Record<string, unknown>>()

/** The same with all keywords, such as whether an object is closed. */
export function toInputSchema(schema: z.ZodType): Record<string, unknown> {
  const known = inputSchemas.get(schema)
  if (known !== undefined) return known
  const made = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' })
  inputSchemas.set(schema, made)
  return made
}

function simplify(node: unknown): Record<string, unknown> {
  if (!isRecord(node)) return {}
  const kept: Record<string, unknown> = {}
  for (const keyword of keptKeywords) {
    const value = node[keyword]
    // Zod gives every integer the safe range, which is useless to a model.
    if (value !== undefined && !(typeof value === 'number' && Math.abs(value) >= Number.MAX_SAFE_INTEGER)) {
      kept[keyword] = value
    }
  }
  if (isRecord(node.properties)) {
    const entries = Object.entries(node.properties).map(([name, child]) => [name, simplify(child)])
    kept.properties = Object.fromEntries(entries)
  } else if (node.type === 'object') {
    // Servers require `properties`, and strict ones would then allow no other.
    kept.properties = {}
    kept.additionalProperties = true
  }
  if (node.items !== undefined) kept.items = simplify(node.items)
  const options = node.anyOf ?? node.oneOf
  if (Array.isArray(options)) kept.anyOf = options.map(simplify)
  return kept
}

/** Whether a tool's parameters are a zod schema rather than a JSON schema. */
export function isZod(parameters: z.ZodType | Readonly<Record<string, unknown>>): parameters is z.ZodType {
  return parameters instanceof z.ZodType
}
