/**
 * Parameters that a call sends as headers too (`x-mcp-header`, MCP 2026-07-28): which declarations a tool may have. The
 * library sends the headers.
 */
import { isRecord } from '../llm/json-schema.ts'

const key = 'x-mcp-header'
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const headerTypes: ReadonlySet<unknown> = new Set(['string', 'integer', 'boolean'])

/** Why a tool with this schema may not be offered; null if it may. */
export function findHeaderProblem(schema: Readonly<Record<string, unknown>>): string | null {
  const names = new Set<string>()
  return visit(schema, [], true, names)
}

/** @param isReachable whether only `properties` lead here */
function visit(
  value: unknown,
  path: readonly string[],
  isReachable: boolean,
  names: Set<string>,
): string | null {
  if (Array.isArray(value)) return firstProblem(value.map((one) => () => visit(one, path, false, names)))
  if (!isRecord(value)) return null
  const own = Object.hasOwn(value, key) ? judge(value, path, isReachable, names) : null
  if (own !== null) return own
  return firstProblem(
    Object.entries(value).map(([name, inner]) => () => {
      // Values that only look like schemas.
      if (name === 'const' || name === 'default' || name === 'enum' || name === 'examples') return null
      if (name !== 'properties' || !isRecord(inner)) return visit(inner, [...path, name], false, names)
      return firstProblem(
        Object.entries(inner).map(
          ([property, each]) =>
            () =>
              visit(each, [...path, property], isReachable, names),
        ),
      )
    }),
  )
}

function judge(
  schema: Readonly<Record<string, unknown>>,
  path: readonly string[],
  isReachable: boolean,
  names: Set<string>,
): string | null {
  const at = path.join('.')
  const name = schema[key]
  if (!isReachable || path.length === 0) return `${at}: ${key} is for properties of the arguments alone`
  if (typeof name !== 'string' || !token.test(name)) return `${at}: ${key} is no name of a header`
  if (!headerTypes.has(schema.type)) return `${at}: ${key} is for a string, an integer or a boolean`
  const folded = name.toLowerCase()
  if (names.has(folded)) return `${at}: ${key} names a header twice`
  names.add(folded)
  return null
}

function firstProblem(checks: readonly (() => string | null)[]): string | null {
  for (const check of checks) {
    const problem = check()
    if (problem !== null) return problem
  }
  return null
}
