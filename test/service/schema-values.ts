// Values of a JSON schema, as the OpenAPI document has them: most fit it, some do not.
import fc from 'fast-check'

export interface JsonSchema {
  readonly $ref?: string
  readonly type?: string
  readonly enum?: readonly unknown[]
  readonly const?: unknown
  readonly anyOf?: readonly JsonSchema[]
  readonly oneOf?: readonly JsonSchema[]
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: readonly string[]
  readonly propertyNames?: JsonSchema
  readonly additionalProperties?: JsonSchema | boolean
  readonly items?: JsonSchema
  readonly minItems?: number
  readonly maxItems?: number
  readonly pattern?: string
  readonly minLength?: number
  readonly maxLength?: number
  readonly minimum?: number
  readonly maximum?: number
}

type Known = Readonly<Record<string, JsonSchema>>

const depthMax = 5
const shortLength = 40
const optionalMax = 3

/** One in so many values does not fit. */
const wrongOneIn = 20
const wrong = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    '',
    '..',
    -1,
    0,
    1e300,
    2 ** 53,
    true,
    [],
    {},
    '\0',
    '\u202e',
    '%00',
    'last',
  ),
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.jsonValue({ maxDepth: 2 }),
)

/** @param known schemas that `$ref` names, by the last part of it */
export function valuesOf(schema: JsonSchema, known: Known, depth = 0): fc.Arbitrary<unknown> {
  const right = rightValues(schema, known, depth)
  return fc.oneof({ weight: wrongOneIn - 1, arbitrary: right }, { weight: 1, arbitrary: wrong })
}

function rightValues(schema: JsonSchema, known: Known, depth: number): fc.Arbitrary<unknown> {
  const { $ref, type, anyOf = schema.oneOf } = schema
  if ($ref !== undefined) return rightValues(known[$ref.split('/').at(-1) ?? ''] ?? {}, known, depth + 1)
  if ('const' in schema) return fc.constant(schema.const)
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  if (anyOf !== undefined) return fc.oneof(...anyOf.map((one) => rightValues(one, known, depth)))
  if (type === 'string') return stringsOf(schema)
  if (type === 'integer') return integersOf(schema)
  if (type === 'number')
    return fc.double({ min: schema.minimum ?? 0, max: schema.maximum ?? 1e6, noNaN: true })
  if (type === 'boolean') return fc.boolean()
  if (type === 'null') return fc.constant(null)
  if (type === 'array') return arraysOf(schema, known, depth)
  if (type === 'object') return objectsOf(schema, known, depth)
  return fc.jsonValue({ maxDepth: 2 })
}

function stringsOf({ pattern, minLength = 0, maxLength = shortLength }: JsonSchema): fc.Arbitrary<string> {
  if (pattern !== undefined)
    return fc.stringMatching(new RegExp(pattern)).map((text) => text.slice(0, maxLength))
  return fc.string({
    minLength: Math.min(minLength, shortLength),
    maxLength: Math.min(maxLength, shortLength),
  })
}

function integersOf({ minimum = -1_000, maximum = 1_000_000 }: JsonSchema): fc.Arbitrary<number> {
  const [min, max] = [Math.max(minimum, Number.MIN_SAFE_INTEGER), Math.min(maximum, Number.MAX_SAFE_INTEGER)]
  return fc.oneof(fc.integer({ min, max: Math.max(min, Math.min(max, min + 100)) }), fc.maxSafeInteger())
}

function arraysOf({ items = {}, minItems = 0, maxItems = 3 }: JsonSchema, known: Known, depth: number) {
  const maxLength = depth >= depthMax ? minItems : Math.max(minItems, Math.min(maxItems, 3))
  return fc.array(valuesOf(items, known, depth + 1), { minLength: minItems, maxLength })
}

function objectsOf(schema: JsonSchema, known: Known, depth: number): fc.Arbitrary<unknown> {
  const { properties = {}, required = [], additionalProperties, propertyNames = { type: 'string' } } = schema
  const optional = Object.keys(properties).filter((name) => depth < depthMax && !required.includes(name))
  // Few of many at a time, or hardly any object would fit.
  const named = fc
    .subarray(optional, { maxLength: Math.min(optional.length, optionalMax) })
    .chain((chosen) => {
      const names = [...required, ...chosen]
      return fc.record(
        Object.fromEntries(names.map((name) => [name, valuesOf(properties[name] ?? {}, known, depth + 1)])),
      )
    })
  if (typeof additionalProperties !== 'object' || depth >= depthMax) return named
  const others = fc.dictionary(stringsOf(propertyNames), valuesOf(additionalProperties, known, depth + 1), {
    maxKeys: 2,
  })
  return fc.tuple(others, named).map(([more, own]) => ({ ...more, ...own }))
}
