/** Defects of a JSON schema that no value would fit: types that do not exist, references that lead nowhere. Pure. */

export interface SchemaProblem {
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
export function findSchemaProblems(schema: unknown): SchemaProblem[] {
  const problems: SchemaProblem[] = []
  let hasBase = false
  const references: { readonly path: SchemaProblem['path']; readonly target: string }[] = []
  visit(schema, [], (one, path) => {
    if ('$id' in one) hasBase = true
    if (typeof one.$ref === 'string') references.push({ path: [...path, '$ref'], target: one.$ref })
    for (const [at, type] of typesOf(one.type))
      if (problems.length < problemsMaxCount && !types.has(type))
        problems.push(toProblem(type, [...path, 'type', ...at]))
  })
  // With `$id`, a pointer may start elsewhere.
  const lost = hasBase ? [] : references.filter(({ target }) => isLost(target, schema))
  const told = lost.map(({ path, target }) => ({
    path,
    message: `leads nowhere: the schema has no ${JSON.stringify(target.slice(0, 80))}`,
  }))
  return [...problems, ...told].slice(0, problemsMaxCount)
}

type Visitor = (schema: Readonly<Record<string, unknown>>, path: SchemaProblem['path']) => void

function visit(schema: unknown, path: SchemaProblem['path'], visitor: Visitor): void {
  if (!isObject(schema)) return
  visitor(schema, path)
  for (const keyword of below.one) visit(schema[keyword], [...path, keyword], visitor)
  for (const keyword of below.many)
    for (const [key, one] of entriesOf(schema[keyword])) visit(one, [...path, keyword, key], visitor)
}

/** Whether a JSON pointer (RFC 6901) names no part of the schema; false for a reference of another kind. */
function isLost(target: string, schema: unknown): boolean {
  if (!target.startsWith('#/')) return false
  let at = schema
  for (const part of target.slice(2).split('/')) {
    const name = decode(part).replaceAll('~1', '/').replaceAll('~0', '~')
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, name)) return true
    at = (at as Readonly<Record<string, unknown>>)[name]
  }
  return false
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

function typesOf(type: unknown): readonly (readonly [at: readonly number[], type: unknown])[] {
  if (Array.isArray(type)) return type.map((one, index) => [[index], one] as const)
  return type === undefined ? [] : [[[], type]]
}

function entriesOf(value: unknown): readonly (readonly [string | number, unknown])[] {
  if (Array.isArray(value)) return value.map((one, index) => [index, one] as const)
  return isObject(value) ? Object.entries(value) : []
}

function toProblem(got: unknown, path: SchemaProblem['path']): SchemaProblem {
  const seen = typeof got === 'string' ? JSON.stringify(got.slice(0, 40)) : 'no text'
  return { path, message: `is no type of JSON schema, got ${seen}; expected one of ${[...types].join(', ')}` }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
