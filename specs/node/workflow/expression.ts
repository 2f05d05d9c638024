/**
 * Expressions of workflows, in the Common Expression Language (CEL): no loops, no assignments, no functions of their own.
 * Bounds their length, their nesting and the size of the values they read, so that each one ends soon. Never throws.
 */
import { type ASTNode, Environment } from '@marcbachmann/cel-js'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'

/** What an expression can read. */
export interface ExpressionValues {
  /** The input of the workflow. */
  readonly input: unknown
  /** Steps that have ended, by id. */
  readonly steps: Readonly<Record<string, StepValue>>
  /** The entry of the list, in a step with `each`. */
  readonly item?: unknown
  /** Position in the list, or the number of rounds before this one, from 0. */
  readonly index?: number
}

/** A step as expressions see it. */
export interface StepValue {
  readonly state: 'completed' | 'failed' | 'skipped' | 'cancelled'
  /** Text, or the value that the step's `output` describes; null when it did not complete. */
  readonly output: unknown
  /** The steps that it added, as far as they have ended. Absent: it may add none. */
  readonly added?: readonly (Pick<StepValue, 'state' | 'output'> & { readonly id: string })[]
}

export interface Expression {
  readonly source: string
  /** Ids of the steps that it names, each once. */
  readonly steps: readonly string[]
  /** Whether it reads `item` or `index`. */
  readonly readsItem: boolean
  /** @returns JSON, or what went wrong, in one line */
  readonly evaluate: (values: ExpressionValues) => Result<unknown, string>
}

export const { expressionMaxChars } = limits
/** Values in all that one expression may read, each entry of a list or object counted. */
const readMaxValues = 20_000
/** Entries of any list while an expression has one macro (`map`, `filter`, `all`, `exists`) inside another. */
const nestedListMaxEntries = 1_000
const macros: ReadonlySet<string> = new Set(['map', 'filter', 'all', 'exists', 'exists_one'])
const macrosMaxDepth = 2
/** What would make an expression unbounded, with what to write instead. */
const refusedCalls: Readonly<Record<string, string>> = {
  // Its patterns are those of JavaScript, which can take exponential time.
  matches: 'matches() is not available; use contains, startsWith or endsWith',
  // Doubling a value 30 times would exhaust the memory.
  bind: 'cel.bind() is not available; repeat the expression',
}
const messageMaxChars = 300

const environment = new Environment({
  homogeneousAggregateLiterals: false,
  enableOptionalTypes: true,
  limits: { maxAstNodes: 500, maxDepth: 32, maxListElements: 100, maxMapEntries: 100, maxCallArguments: 8 },
})
  .registerVariable('input', 'dyn')
  .registerVariable('steps', 'map<string, dyn>')
  .registerVariable('item', 'dyn')
  .registerVariable('index', 'int')

// JSON has one kind of number.
const arithmetic: Readonly<Record<string, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
}
for (const [sign, calculate] of Object.entries(arithmetic))
  for (const signature of [`double ${sign} int`, `int ${sign} double`])
    environment.registerOperator(signature, (a, b) => calculate(Number(a), Number(b)))

/** @returns the expression, or what is wrong with it, in one line */
export function parseExpression(source: string): Result<Expression, string> {
  if (source.trim() === '') return { ok: false, error: 'is empty' }
  if (source.length > expressionMaxChars)
    return { ok: false, error: `has ${source.length} characters; at most ${expressionMaxChars} are allowed` }
  try {
    const parsed = environment.parse(source)
    const checked = parsed.check()
    if (!checked.valid) return { ok: false, error: oneLine(checked.error) }
    const found: Found = { steps: new Set(), readsItem: false, macroDepth: 0, problem: null }
    visit(parsed.ast, found, 0)
    if (found.problem !== null) return { ok: false, error: found.problem }
    const evaluate: Expression['evaluate'] = (values) => {
      const scope = toScope(values, found.macroDepth)
      if (!scope.ok) return scope
      try {
        const rest = { values: readMaxValues, characters: limits.documentMaxChars }
        return { ok: true, value: toJson(parsed(scope.value), rest) }
      } catch (error) {
        return { ok: false, error: oneLine(error) }
      }
    }
    return { ok: true, value: { source, steps: [...found.steps], readsItem: found.readsItem, evaluate } }
  } catch (error) {
    return { ok: false, error: oneLine(error) }
  }
}

interface Found {
  readonly steps: Set<string>
  readsItem: boolean
  macroDepth: number
  problem: string | null
}

/** Finds the steps that the expression reads, and what it must not have. */
function visit(node: ASTNode, found: Found, depth: number): void {
  if (node.op === 'id' && (node.args === 'item' || node.args === 'index')) found.readsItem = true
  if (node.op === 'id' && node.args === 'steps') found.problem ??= 'name one step: steps["ID"] or steps.ID'
  const step = stepOf(node)
  if (step !== null) {
    found.steps.add(step)
    return
  }
  const name = node.op === 'rcall' || node.op === 'call' ? node.args[0] : ''
  if (Object.hasOwn(refusedCalls, name)) found.problem ??= refusedCalls[name] ?? null
  const below = depth + (macros.has(name) ? 1 : 0)
  found.macroDepth = Math.max(found.macroDepth, below)
  if (below > macrosMaxDepth)
    found.problem ??= `has more than ${macrosMaxDepth} of map, filter, all and exists inside one another`
  for (const child of childrenOf(node.args)) visit(child, found, below)
}

/** The id in `steps["ID"]` or `steps.ID`; null for other nodes. */
function stepOf(node: ASTNode): string | null {
  if (node.op === '.' || node.op === '.?') return isSteps(node.args[0]) ? node.args[1] : null
  if (node.op !== '[]' && node.op !== '[?]') return null
  const [of, key] = node.args
  return isSteps(of) && key.op === 'value' && typeof key.args === 'string' ? key.args : null
}

function isSteps(node: ASTNode): boolean {
  return node.op === 'id' && node.args === 'steps'
}

function childrenOf(args: unknown): ASTNode[] {
  if (Array.isArray(args)) return args.flatMap(childrenOf)
  return isNode(args) ? [args] : []
}

function isNode(value: unknown): value is ASTNode {
  return typeof value === 'object' && value !== null && 'op' in value && 'args' in value
}

function toScope(values: ExpressionValues, macroDepth: number): Result<Record<string, unknown>, string> {
  const counted = { values: 0, longest: 0 }
  const scope = Object.fromEntries(
    Object.entries({ item: null, index: 0, ...values }).map(([name, value]) => [name, toCel(value, counted)]),
  )
  if (counted.values > readMaxValues)
    return { ok: false, error: `reads more than ${readMaxValues} values; let a function prepare them` }
  if (macroDepth > 1 && counted.longest > nestedListMaxEntries)
    return {
      ok: false,
      error: `goes through a list of ${counted.longest} entries inside another; at most ${nestedListMaxEntries} are allowed`,
    }
  return { ok: true, value: scope }
}

/** Whole numbers become CEL's integers, objects lose their prototypes. */
function toCel(value: unknown, counted: { values: number; longest: number }): unknown {
  counted.values += 1
  if (counted.values > readMaxValues) return null
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : value
  if (Array.isArray(value)) {
    counted.longest = Math.max(counted.longest, value.length)
    return value.slice(0, readMaxValues).map((entry) => toCel(entry, counted))
  }
  if (typeof value !== 'object' || value === null) return value
  return new Map(Object.entries(value).map(([key, entry]) => [key, toCel(entry, counted)]))
}

/** What is left of the bounds of a result. */
interface Rest {
  values: number
  characters: number
}

/** @throws {RangeError} when the result is too large @throws {TypeError} when JSON does not have the value */
function toJson(value: unknown, rest: Rest): unknown {
  rest.values -= 1
  if (rest.values < 0) throw new RangeError(`gives more than ${readMaxValues} values`)
  if (typeof value === 'string') {
    rest.characters -= value.length
    if (rest.characters < 0) throw new RangeError(`gives more than ${limits.documentMaxChars} characters`)
    return value
  }
  if (typeof value === 'bigint') {
    const number = Number(value)
    if (!Number.isSafeInteger(number)) throw new RangeError(`gives ${value}, which is too large for a number`)
    return number
  }
  if (typeof value === 'number' && !Number.isFinite(value)) throw new RangeError(`gives ${value}`)
  if (value === null || typeof value === 'boolean' || typeof value === 'number') return value
  if (Array.isArray(value)) return value.map((entry) => toJson(entry, rest))
  const entries = value instanceof Map ? [...value.entries()] : isPlain(value) ? Object.entries(value) : null
  if (entries === null) throw new TypeError('gives a value that JSON does not have; convert it with string()')
  return Object.fromEntries(entries.map(([key, entry]) => [String(key), toJson(entry, rest)]))
}

function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

/** The message without the library's drawing of the place. */
function oneLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  const [line = ''] = text.split('\n')
  return line.slice(0, messageMaxChars).toWellFormed()
}
