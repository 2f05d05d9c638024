/**
 * Replaces the local references of a JSON schema by what they name. Some servers' parsers do not follow a reference and
 * return the value of such a parameter as text (vLLM's for Qwen 3 Coder, Nemotron 3 and DeepSeek 3.2: vllm#46924).
 */
import { definitionOf, isRecord } from './json-schema.ts'

type Schema = Readonly<Record<string, unknown>>

/** Keywords that hold one schema, or a list of schemas. */
const schemaKeywords: ReadonlySet<string> = new Set([
  'additionalItems',
  'additionalProperties',
  'allOf',
  'anyOf',
  'contains',
  'else',
  'if',
  'items',
  'not',
  'oneOf',
  'prefixItems',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
])
/** Keywords that hold schemas by name. */
const mapKeywords: ReadonlySet<string> = new Set(['dependentSchemas', 'patternProperties', 'properties'])
const definitionKeywords: ReadonlySet<string> = new Set(['$defs', 'definitions'])

/** Maximum nesting of schemas; a request to a model nests at most 48 levels, two for each schema. */
const depthMax = 20
/** Maximum length of the result in characters of JSON: this much, and this often the original's. */
const growthMaxChars = 4_096
const growthMaxFactor = 2

const known = new WeakMap<object, Schema>()

/**
 * The schema without local references and definitions. A recursive definition is expanded once; where it would repeat,
 * any value of its type is accepted. A schema that would become too large or too deep is returned unchanged.
 */
export function inlineReferences(schema: Schema): Schema {
  const before = known.get(schema)
  if (before !== undefined) return before
  const inlined = new Inlining(schema).run()
  known.set(schema, inlined)
  return inlined
}

class TooLarge extends Error {}

class Inlining {
  readonly #root: Schema
  #charsLeft = 0
  /** Whether a reference stays, so that definitions must. */
  #hasUnresolved = false

  constructor(root: Schema) {
    this.#root = root
  }

  run(): Schema {
    const text = JSON.stringify(this.#root)
    if (!text.includes('"$ref"')) return this.#root
    this.#charsLeft = text.length * growthMaxFactor + growthMaxChars
    try {
      const inlined = this.#visit(this.#root, 0, ['#'])
      if (!this.#hasUnresolved) return inlined
      const definitions = Object.entries(this.#root).filter(([keyword]) => definitionKeywords.has(keyword))
      return { ...inlined, ...Object.fromEntries(definitions) }
    } catch (cause) {
      if (cause instanceof TooLarge) return this.#root
      throw cause
    }
  }

  /** @param followed the references that led here */
  #visit(node: Schema, depth: number, followed: readonly string[]): Schema {
    if (depth > depthMax) throw new TooLarge()
    this.#spend('{},'.length)
    if (typeof node.$ref === 'string') return this.#follow(node, node.$ref, depth, followed)
    const kept = Object.entries(node).filter(([keyword]) => !definitionKeywords.has(keyword))
    return Object.fromEntries(
      kept.map(([keyword, value]) => [keyword, this.#visitKeyword(keyword, value, depth, followed)]),
    )
  }

  #visitKeyword(keyword: string, value: unknown, depth: number, followed: readonly string[]): unknown {
    const visit = (child: unknown) =>
      isRecord(child) ? this.#visit(child, depth + 1, followed) : this.#count(child)
    this.#spend(keyword.length)
    if (schemaKeywords.has(keyword)) return Array.isArray(value) ? value.map(visit) : visit(value)
    if (mapKeywords.has(keyword) && isRecord(value)) {
      return Object.fromEntries(
        Object.entries(value).map(([name, child]) => [this.#count(name), visit(child)]),
      )
    }
    return this.#count(value)
  }

  #follow(node: Schema, reference: string, depth: number, followed: readonly string[]): Schema {
    const target = definitionOf(reference, this.#root)
    const { $ref: _, ...beside } = node
    if (!isRecord(target)) {
      this.#hasUnresolved = true
      return this.#count(node)
    }
    if (followed.includes(reference)) return { ...anyOfType(target), ...this.#visit(beside, depth, followed) }
    return this.#visit({ ...target, ...beside }, depth, [...followed, reference])
  }

  /** The same value, with its length counted. */
  #count<T>(value: T): T {
    this.#spend((JSON.stringify(value) ?? '').length)
    return value
  }

  #spend(chars: number): void {
    this.#charsLeft -= chars
    if (this.#charsLeft < 0) throw new TooLarge()
  }
}

/** What is known of every value of a definition: its type and its description. */
function anyOfType({ type, description, title }: Schema): Schema {
  return {
    ...(type === undefined ? {} : { type }),
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(type === 'object' ? { properties: {}, additionalProperties: true } : {}),
  }
}
