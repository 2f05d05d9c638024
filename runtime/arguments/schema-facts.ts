/** What a JSON schema says of a value: which part applies to it, and which types that accepts. */
import { definitionOf, isRecord } from '../llm/json-schema.ts'
import { typeName } from './failure.ts'

/** Maximum nesting depth of arguments that is examined. */
export const nestingMax = 32

export function isRequired(name: string, schema: Readonly<Record<string, unknown>>): boolean {
  return Array.isArray(schema.required) && schema.required.includes(name)
}

/** The properties of an object's JSON schema. */
export function propertiesOf(schema: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return isRecord(schema.properties) ? schema.properties : {}
}

type Schema = Readonly<Record<string, unknown>>

/** The types that a schema accepts, as far as it is sure of them; null when it may accept any. */
export function acceptedTypes(node: unknown, root: Schema): ReadonlySet<unknown> | null {
  return new AcceptedTypes(root).of(node, 0)
}

/** Reads each part once, however often options lead to it. */
class AcceptedTypes {
  readonly #root: Schema
  /** Null for a part that is being read too: it leads back to itself. */
  readonly #known = new Map<Schema, ReadonlySet<unknown> | null>()

  constructor(root: Schema) {
    this.#root = root
  }

  of(node: unknown, depth: number): ReadonlySet<unknown> | null {
    if (!isRecord(node) || depth > stepsMaxCount) return null
    const known = this.#known.get(node)
    if (known !== undefined) return known
    this.#known.set(node, null)
    const types = this.#read(node, depth)
    this.#known.set(node, types)
    return types
  }

  #read(node: Schema, depth: number): ReadonlySet<unknown> | null {
    if (typeof node.$ref === 'string') return this.of(definitionOf(node.$ref, this.#root), depth + 1)
    if (node.const !== undefined) return new Set([typeName(node.const)])
    if (Array.isArray(node.enum)) return new Set(node.enum.map(typeName))
    if (node.type !== undefined) return new Set([node.type].flat())
    const options = node.anyOf ?? node.oneOf
    if (!Array.isArray(options)) return null
    const all = new Set<unknown>()
    for (const option of options) {
      const types = this.of(option, depth + 1)
      if (types === null) return null
      for (const type of types) all.add(type)
    }
    return all
  }
}

/** Maximum references and options followed for one value. */
const stepsMaxCount = 16

/** The schema that applies to `value`; null when it is ambiguous. `root` holds the definitions. */
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

/** Whether the schema accepts null. A schema without a type accepts any value. @param seen parts that were read before */
export function allowsNull(node: unknown, root: Schema, seen = new Set<unknown>()): boolean {
  if (!isRecord(node)) return true
  // What it accepts was found where it was read first.
  if (seen.has(node)) return false
  seen.add(node)
  if (typeof node.$ref === 'string') return allowsNull(definitionOf(node.$ref, root), root, seen)
  const options = node.anyOf ?? node.oneOf
  if (Array.isArray(options)) return options.some((option) => allowsNull(option, root, seen))
  if (node.const !== undefined) return node.const === null
  if (Array.isArray(node.enum)) return node.enum.includes(null)
  return node.type === undefined || [node.type].flat().includes('null')
}

/** The only option besides null, or the only one whose constants match `value`. */
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

/** `type: ["string", "null"]` is a nullable string. */
function withOneType(schema: Schema): Schema {
  if (!Array.isArray(schema.type)) return schema
  const types = schema.type.filter((type) => type !== 'null')
  return { ...schema, type: types.length === 1 ? types[0] : undefined }
}
