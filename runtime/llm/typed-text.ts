/**
 * Converts a text in a tag to a value that the tool's schema allows. The text may be JSON or Python syntax; if the
 * schema allows both text and a value, it is ambiguous.
 */
import { definitionOf, isRecord } from './json-schema.ts'
import type { ToolSpec } from './messages.ts'
import { parseModelJson } from './repair.ts'

/**
 * The value, or null when it is ambiguous.
 * @param said the type stated by the call; null: none
 */
export function readTypedText(
  text: string,
  tool: ToolSpec,
  parameter: string,
  said: 'text' | 'json' | null,
): { readonly value: unknown } | null {
  if (said === 'text') return { value: text }
  const schema = schemaOf(tool, parameter)
  if (said === null && (schema === undefined || (isRecord(schema) && schema.type === 'string')))
    return { value: text }
  const parsed = readJson(text.trim())
  if (said === 'json' || parsed === null) return parsed ?? (said === null ? { value: text } : null)
  const root = tool.parameters
  const isValue = admits(schema, parsed.value, root)
  if (!admits(schema, text, root)) return isValue ? parsed : { value: text }
  return isValue && typeof parsed.value !== 'string' ? null : { value: text }
}

const pythonWords: ReadonlyMap<string, unknown> = new Map([
  ['True', true],
  ['False', false],
  ['None', null],
])

/** JSON, a Python object, list or constant; anything else is text. */
function readJson(text: string): { value: unknown } | null {
  if (pythonWords.has(text)) return { value: pythonWords.get(text) }
  if (!/^[[{]/.test(text) && !/^(?:-?\d[\d.eE+-]{0,400}|true|false|null|"[^\n]*")$/.test(text)) return null
  const parsed = parseModelJson(text, { lossless: true })
  return parsed.ok ? { value: parsed.value.value } : null
}

/** The schema of a parameter; undefined for an unknown name. */
function schemaOf({ parameters }: ToolSpec, name: string): unknown {
  const { properties, additionalProperties } = parameters
  if (isRecord(properties) && Object.hasOwn(properties, name)) return properties[name]
  return additionalProperties === true || isRecord(additionalProperties) ? additionalProperties : undefined
}

/** Maximum nested references and alternatives. */
const depthMax = 8

/** Whether the schema allows the value's type; validation checks its content. */
function admits(schema: unknown, value: unknown, root: ToolSpec['parameters'], depth = 0): boolean {
  if (!isRecord(schema) || depth > depthMax) return schema !== false
  const within = (one: unknown): boolean => admits(one, value, root, depth + 1)
  if (typeof schema.$ref === 'string') return within(definitionOf(schema.$ref, root))
  if (Object.hasOwn(schema, 'const')) return isSame(schema.const, value)
  if (Array.isArray(schema.enum)) return schema.enum.some((one) => isSame(one, value))
  for (const options of [schema.anyOf, schema.oneOf])
    if (Array.isArray(options) && !options.some(within)) return false
  if (Array.isArray(schema.allOf) && !schema.allOf.every(within)) return false
  const types = Array.isArray(schema.type) ? schema.type : schema.type === undefined ? [] : [schema.type]
  if (types.length > 0) return types.some((type) => isOfType(value, type))
  if (isRecord(schema.properties)) return isRecord(value)
  return schema.items === undefined || Array.isArray(value)
}

function isOfType(value: unknown, type: unknown): boolean {
  switch (type) {
    case 'string':
    case 'number':
    case 'boolean':
      return typeof value === type
    case 'integer':
      return Number.isInteger(value)
    case 'null':
      return value === null
    case 'array':
      return Array.isArray(value)
    case 'object':
      return isRecord(value)
    default:
      return true
  }
}

function isSame(one: unknown, other: unknown): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other)
}
