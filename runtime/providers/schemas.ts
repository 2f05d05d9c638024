/**
 * JSON schemas in the subsets that providers take. What a provider does not know is left out or said in words; what lies
 * inside stays, however deep. Bounded, for schemas come from strangers too.
 */
import { isRecord } from '../llm/json-schema.ts'

type Schema = Record<string, unknown>

const nodesMaxCount = 5_000
const depthMax = 64

/** The schema with every object closed, as strict structured output wants it. */
export function closeSchema(schema: unknown, depth = 0): Schema {
  if (!isRecord(schema) || depth > depthMax) return {}
  const closed: Schema = { ...schema }
  for (const key of ['properties', '$defs', 'definitions']) {
    const children = schema[key]
    if (!isRecord(children)) continue
    const entries = Object.entries(children).map(([name, child]) => [name, closeSchema(child, depth + 1)])
    closed[key] = Object.fromEntries(entries)
  }
  for (const key of ['anyOf', 'oneOf', 'allOf']) {
    const children = schema[key]
    if (Array.isArray(children)) closed[key] = children.map((child) => closeSchema(child, depth + 1))
  }
  if (isRecord(schema.items)) closed.items = closeSchema(schema.items, depth + 1)
  if (isRecord(schema.properties) || schema.type === 'object') closed.additionalProperties = false
  return closed
}

/** The schema as Gemini's API takes it; undefined for an object without properties, which it takes as no parameters at all. */
export function toGoogleSchema(schema: Readonly<Schema>): Schema | undefined {
  const converted = new GoogleSchemas(schema).convert(schema, 0, [])
  const { properties } = converted
  return converted.type === 'object' && (!isRecord(properties) || Object.keys(properties).length === 0)
    ? undefined
    : converted
}

/** Keywords that mean the same there. */
const googleKeywords = [
  'title',
  'description',
  'minItems',
  'maxItems',
  'minimum',
  'maximum',
  'minLength',
  'maxLength',
  'pattern',
] as const
const googleFormats: ReadonlySet<unknown> = new Set([
  'date-time',
  'enum',
  'int32',
  'int64',
  'float',
  'double',
])

class GoogleSchemas {
  readonly #root: Readonly<Schema>
  #nodes = 0

  constructor(root: Readonly<Schema>) {
    this.#root = root
  }

  /** `references` are those that were followed to come here. */
  convert(node: unknown, depth: number, references: readonly string[]): Schema {
    if (!isRecord(node) || depth > depthMax || ++this.#nodes > nodesMaxCount) return { type: 'string' }
    if (typeof node.$ref === 'string') return this.#follow(node, node.$ref, depth, references)
    const merged = Array.isArray(node.allOf) ? mergeAll(node, node.allOf) : node
    const inner = (child: unknown) => this.convert(child, depth + 1, references)
    const out: Schema = {}
    for (const key of googleKeywords) if (merged[key] !== undefined) out[key] = merged[key]
    if (googleFormats.has(merged.format)) out.format = merged.format
    const options = merged.anyOf ?? merged.oneOf
    if (Array.isArray(options)) addOptions(out, options, inner)
    addType(out, merged, inner)
    addValues(out, merged)
    if (isRecord(merged.properties)) addProperties(out, merged.properties, merged.required, inner)
    // An array without the type of its items is refused.
    if (out.type === 'array')
      out.items = merged.items === undefined ? { type: 'string' } : inner(firstOf(merged.items))
    if (out.type === undefined && out.anyOf === undefined) out.type = out.properties ? 'object' : 'string'
    return out
  }

  #follow(node: Schema, reference: string, depth: number, references: readonly string[]): Schema {
    const { $ref: _reference, ...beside } = node
    const target = references.includes(reference) ? undefined : resolve(this.#root, reference)
    // What holds itself is described down to where it would begin anew.
    if (!isRecord(target)) return { type: 'object', ...pickText(beside) }
    return this.convert({ ...target, ...beside }, depth + 1, [...references, reference])
  }
}

function addOptions(out: Schema, options: readonly unknown[], convert: (node: unknown) => Schema): void {
  const some = options.filter((option) => !isRecord(option) || option.type !== 'null')
  if (some.length < options.length) out.nullable = true
  const converted = some.map(convert)
  const [only] = converted
  if (converted.length === 1 && only !== undefined) Object.assign(out, { ...only, ...pickText(out) })
  else if (converted.length > 0) out.anyOf = converted
}

function addType(out: Schema, node: Schema, convert: (node: unknown) => Schema): void {
  const types = (Array.isArray(node.type) ? node.type : [node.type]).filter(
    (type) => typeof type === 'string',
  )
  const some = types.filter((type) => type !== 'null')
  if (some.length < types.length) out.nullable = true
  if (some.length === 1) out.type = some[0]
  else if (some.length > 1 && out.anyOf === undefined) {
    // What belongs to one type alone goes to that one.
    const { type: _type, description: _description, title: _title, ...rest } = node
    out.anyOf = some.map((type) => convert({ ...rest, type }))
  }
}

/** Lists of values are for text there; others are said in words. */
function addValues(out: Schema, node: Schema): void {
  const values = Array.isArray(node.enum) ? node.enum : node.const === undefined ? [] : [node.const]
  const some = values.filter((value) => value !== null)
  if (values.length > some.length) out.nullable = true
  if (some.length === 0) return
  if (some.every((value) => typeof value === 'string') && (out.type === undefined || out.type === 'string')) {
    out.type = 'string'
    out.enum = some
    return
  }
  const words = `One of: ${some.map((value) => JSON.stringify(value)).join(', ')}.`
  out.description = typeof out.description === 'string' ? `${out.description} ${words}` : words
  const [first] = some
  out.type ??= typeof first === 'number' ? 'number' : typeof first === 'boolean' ? 'boolean' : 'string'
}

function addProperties(
  out: Schema,
  properties: Schema,
  required: unknown,
  convert: (node: unknown) => Schema,
): void {
  out.type = 'object'
  const names = Object.keys(properties)
  out.properties = Object.fromEntries(names.map((name) => [name, convert(properties[name])]))
  const needed = Array.isArray(required) ? required.filter((name) => names.includes(name)) : []
  if (needed.length > 0) out.required = needed
}

/** Of several schemas that all hold, one: properties together, the rest by the last word. */
function mergeAll(node: Schema, parts: readonly unknown[]): Schema {
  const { allOf: _allOf, ...own } = node
  const all = [...parts.filter(isRecord), own]
  const properties = Object.assign(
    {},
    ...all.map((part) => (isRecord(part.properties) ? part.properties : {})),
  )
  const required = all.flatMap((part) => (Array.isArray(part.required) ? part.required : []))
  return {
    ...Object.assign(bare(), ...all),
    ...(Object.keys(properties).length === 0 ? {} : { properties }),
    ...(required.length === 0 ? {} : { required: [...new Set(required)] }),
  }
}

/** Without a prototype, a property named like it is one like others. */
function bare(): Schema {
  return Object.create(null)
}

function resolve(root: Readonly<Schema>, reference: string): unknown {
  if (!reference.startsWith('#/')) return reference === '#' ? root : undefined
  let at: unknown = root
  for (const step of reference.slice(2).split('/')) {
    const key = step.replaceAll('~1', '/').replaceAll('~0', '~')
    if (!isRecord(at) || !Object.hasOwn(at, key)) return undefined
    at = at[key]
  }
  return at
}

function pickText(node: Schema): Schema {
  const { title, description, nullable } = node
  return {
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(nullable === undefined ? {} : { nullable }),
  }
}

function firstOf(items: unknown): unknown {
  return Array.isArray(items) ? items[0] : items
}
