/**
 * Converts JSON schemas to the subsets of providers. Unsupported keywords are dropped or described in text; nested
 * schemas stay at any depth. Bounded, since schemas may be untrusted.
 */
import { definitionOf, isRecord } from './records.ts'

type Schema = Record<string, unknown>

const nodesMaxCount = 5_000
const depthMax = 64

/** Closes every object, as strict structured output requires. */
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

/** The schema in Gemini's form; undefined for an object without properties, which means no parameters. */
export function toGoogleSchema(schema: Readonly<Schema>): Schema | undefined {
  const converted = new GoogleSchemas(schema).convert(schema, 0, [])
  const { properties } = converted
  return converted.type === 'object' && (!isRecord(properties) || Object.keys(properties).length === 0)
    ? undefined
    : converted
}

/** Keywords with the same meaning there. */
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

  /** @param references those followed so far */
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
    // An array without an item type is rejected.
    if (out.type === 'array')
      out.items = merged.items === undefined ? { type: 'string' } : inner(firstOf(merged.items))
    if (out.type === undefined && out.anyOf === undefined) out.type = out.properties ? 'object' : 'string'
    return out
  }

  #follow(node: Schema, reference: string, depth: number, references: readonly string[]): Schema {
    const { $ref: _reference, ...beside } = node
    const target = references.includes(reference) ? undefined : definitionOf(reference, this.#root)
    // A recursive schema is expanded until it would repeat.
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
    // Keywords of one type go to that type's schema.
    const { type: _type, description: _description, title: _title, ...rest } = node
    out.anyOf = some.map((type) => convert({ ...rest, type }))
  }
}

/** The API allows enums only for text; others are described in text. */
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

/** Merges schemas that all apply: properties are united, for the rest the last one wins. */
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

/** Without a prototype, so that a property of that name is an ordinary one. */
function bare(): Schema {
  return Object.create(null)
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
