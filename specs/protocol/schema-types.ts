/** Types in a JSON schema that do not exist, which no value would fit. Pure. */

export interface SchemaTypeProblem {
  readonly path: readonly (string | number)[]
  readonly message: string
}

const types: ReadonlySet<unknown> = new Set([
  'string',
  'number',
  'integer',
  'boolean',
  'object',
  'array',
  'null',
])

/** Keywords whose value is a schema, or several in a list or by name. */
const below = {
  one: [
    'items',
    'additionalProperties',
    'additionalItems',
    'unevaluatedItems',
    'unevaluatedProperties',
    'contains',
    'propertyNames',
    'not',
    'if',
    'then',
    'else',
  ],
  many: [
    'prefixItems',
    'allOf',
    'anyOf',
    'oneOf',
    'properties',
    'patternProperties',
    'dependentSchemas',
    '$defs',
    'definitions',
  ],
} as const

const problemsMaxCount = 20

/** @param schema not nested deeply */
export function findSchemaTypeProblems(schema: unknown): SchemaTypeProblem[] {
  const problems: SchemaTypeProblem[] = []
  visit(schema, [], problems)
  return problems
}

function visit(schema: unknown, path: SchemaTypeProblem['path'], problems: SchemaTypeProblem[]): void {
  if (!isObject(schema)) return
  for (const [at, type] of typesOf(schema.type)) {
    if (problems.length >= problemsMaxCount) return
    if (!types.has(type)) problems.push(toProblem(type, [...path, 'type', ...at]))
  }
  for (const keyword of below.one) visit(schema[keyword], [...path, keyword], problems)
  for (const keyword of below.many)
    for (const [key, one] of entriesOf(schema[keyword])) visit(one, [...path, keyword, key], problems)
}

function typesOf(type: unknown): readonly (readonly [at: readonly number[], type: unknown])[] {
  if (Array.isArray(type)) return type.map((one, index) => [[index], one] as const)
  return type === undefined ? [] : [[[], type]]
}

function entriesOf(value: unknown): readonly (readonly [string | number, unknown])[] {
  if (Array.isArray(value)) return value.map((one, index) => [index, one] as const)
  return isObject(value) ? Object.entries(value) : []
}

function toProblem(got: unknown, path: SchemaTypeProblem['path']): SchemaTypeProblem {
  const seen = typeof got === 'string' ? JSON.stringify(got.slice(0, 40)) : 'no text'
  return { path, message: `is no type of JSON schema, got ${seen}; expected one of ${[...types].join(', ')}` }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
