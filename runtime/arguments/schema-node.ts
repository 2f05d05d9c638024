/**
 * What a JSON schema says of one value: local references followed, and of several options the only one that can be meant.
 * Answers nothing where more than one option is possible.
 */
import { definitionOf, isRecord } from '../llm/json-schema.ts'

type Schema = Readonly<Record<string, unknown>>

/** References and options that are followed for one value. */
const stepsMaxCount = 16

/** The schema that holds for `value`; null when the schema leaves open which one does. `root` holds the definitions. */
export function schemaFor(node: unknown, value: unknown, root: Schema): Schema | null {
  let at: unknown = node
  for (let step = 0; step < stepsMaxCount; step++) {
    if (!isRecord(at)) return null
    const options = at.anyOf ?? at.oneOf
    if (typeof at.$ref === 'string') at = definitionOf(at.$ref, root)
    else if (Array.isArray(options)) at = onlyOption(options, value, root)
    else return withOneType(at)
  }
  return null
}

/** Whether the schema takes null. A schema that names no type takes any value. */
export function allowsNull(node: unknown, root: Schema, depth = 0): boolean {
  if (!isRecord(node) || depth > stepsMaxCount) return true
  if (typeof node.$ref === 'string') return allowsNull(definitionOf(node.$ref, root), root, depth + 1)
  const options = node.anyOf ?? node.oneOf
  if (Array.isArray(options)) return options.some((option) => allowsNull(option, root, depth + 1))
  if (node.const !== undefined) return node.const === null
  if (Array.isArray(node.enum)) return node.enum.includes(null)
  return node.type === undefined || [node.type].flat().includes('null')
}

/** The only option besides null, or the only one whose constants are those of `value`. */
function onlyOption(options: readonly unknown[], value: unknown, root: Schema): unknown {
  const some = options.filter((option) => !isRecord(option) || option.type !== 'null')
  if (some.length === 1) return some[0]
  const fitting = some.filter((option) => {
    const schema =
      isRecord(option) && typeof option.$ref === 'string' ? definitionOf(option.$ref, root) : option
    return hasConstantsOf(schema, value)
  })
  return fitting.length === 1 ? fitting[0] : undefined
}

function hasConstantsOf(schema: unknown, value: unknown): boolean {
  if (!isRecord(schema) || !isRecord(schema.properties) || !isRecord(value)) return false
  const constants = Object.entries(schema.properties).filter(
    ([, property]) => isRecord(property) && property.const !== undefined,
  )
  return (
    constants.length > 0 &&
    constants.every(
      ([name, property]) =>
        Object.hasOwn(value, name) && isRecord(property) && value[name] === property.const,
    )
  )
}

/** `type: ["string", "null"]` is a string that may be null. */
function withOneType(schema: Schema): Schema {
  if (!Array.isArray(schema.type)) return schema
  const types = schema.type.filter((type) => type !== 'null')
  return { ...schema, type: types.length === 1 ? types[0] : undefined }
}
