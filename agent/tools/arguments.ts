/**
 * A tool's arguments as a model wrote them, made into its typed input. What already fits is not touched; otherwise only
 * harmless slips are put right (another spelling of a name, a number as text, one value for a list), each recorded.
 * Unknown parameters are refused with an error that names every problem.
 */
import type { z } from 'zod'
import type { Result, ToolError } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { isRecord, toModelSchema } from '../llm/json-schema.ts'
import { parseModelJson } from '../llm/repair.ts'
import { toolFailure } from './tool.ts'

export interface ParsedArguments {
  readonly input: unknown
  /** Canonical JSON of `input`: keys sorted at every level. */
  readonly canonical: string
  readonly corrections: readonly string[]
}

/** Bytes of arguments beyond what any tool takes. */
const argumentsMaxChars = limits.frameMaxBytes
const issuesMaxCount = 20

/** Other words that models use, per parameter; compared without case, `_` and `-`. */
const aliases: Readonly<Record<string, readonly string[]>> = {
  path: ['filepath', 'file', 'filename', 'pathname', 'directory', 'dir', 'folder', 'targetfile'],
  content: ['contents', 'text', 'data', 'body', 'filecontent'],
  command: ['cmd', 'bash', 'shell', 'shellcommand'],
  code: ['python', 'pythoncode', 'script', 'source'],
  pattern: ['query', 'regex', 'search', 'searchpattern'],
  oldText: ['oldstring', 'oldstr', 'search', 'find'],
  newText: ['newstring', 'newstr', 'replace', 'replacement'],
  from: ['source', 'src', 'oldpath', 'sourcepath'],
  to: ['destination', 'dest', 'target', 'newpath', 'destinationpath'],
  offset: ['startline', 'line', 'start'],
  limit: ['maxlines', 'count', 'lines'],
  timeoutMs: ['timeout', 'timeoutmilliseconds'],
}

/** The validated input for `schema`, or an `invalid_input` whose message is the artifact of {@link describeIssues}. */
export function parseArguments(
  toolName: string,
  schema: z.ZodType,
  argumentsText: string,
): Result<ParsedArguments> {
  if (argumentsText.length > argumentsMaxChars) {
    const text = `the arguments of ${toolName} are ${argumentsText.length} characters, the bound is ${argumentsMaxChars}; write large content in pieces`
    return toolFailure('too_large', text)
  }
  const text = argumentsText.trim()
  const parsed = parseModelJson(text === '' || text === 'null' ? '{}' : text)
  if (!parsed.ok) return invalid(toolName, `arguments: ${parsed.error}`, [], [])
  const corrections = [...parsed.value.corrections]
  let value = parsed.value.value
  // Some servers encode the object twice.
  if (typeof value === 'string') {
    const inner = parseModelJson(value)
    if (inner.ok) {
      value = inner.value.value
      corrections.push('arguments were JSON in a string')
    }
  }
  const strict = schema.safeParse(value)
  if (strict.success) return success(strict.data, corrections)
  const mended = isRecord(value) ? mendObject(value, toModelSchema(schema), corrections) : value
  const second = schema.safeParse(mended)
  if (second.success) return success(second.data, corrections)
  return invalid(toolName, 'arguments do not fit the tool', describeIssues(second.error, mended), corrections)
}

/** JSON with sorted keys at every level, so that equal values are equal text. */
export function toCanonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, child: unknown) =>
    isRecord(child)
      ? Object.fromEntries(Object.entries(child).toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : child,
  )
}

export interface ArgumentIssue {
  readonly path: string
  readonly code: string
  readonly message: string
  readonly expectedType?: string
  readonly receivedType?: string
}

function success(input: unknown, corrections: readonly string[]): Result<ParsedArguments> {
  return { ok: true, value: { input, canonical: toCanonicalJson(input) ?? 'null', corrections } }
}

/** The durable form of a validation failure; its fields are what other programs parse. */
function invalid(
  toolName: string,
  message: string,
  issues: readonly ArgumentIssue[],
  corrections: readonly string[],
): { ok: false; error: ToolError } {
  const artifact = {
    ok: false,
    status: 'error',
    errorType: 'tool_parameter_validation_failed',
    toolName: toolName.slice(0, 100),
    message,
    issues,
    corrections: corrections.slice(0, issuesMaxCount),
  }
  return toolFailure('invalid_input', JSON.stringify(artifact).toWellFormed().slice(0, limits.textMaxChars))
}

function describeIssues(error: z.ZodError, value: unknown): ArgumentIssue[] {
  return error.issues.slice(0, issuesMaxCount).map((issue) => {
    const path = issue.path.map(String).join('.')
    const expected = 'expected' in issue && typeof issue.expected === 'string' ? issue.expected : undefined
    return {
      path: path.slice(0, 200),
      code: issue.code,
      message: issue.message.slice(0, 500),
      ...(expected === undefined
        ? {}
        : { expectedType: expected, receivedType: typeName(valueAt(value, issue.path)) }),
    }
  })
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let at = value
  for (const key of path) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key)) return undefined
    at = Reflect.get(at, key)
  }
  return at
}

function typeName(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}

/** Renames and coerces by the schema's own properties; what no rule covers stays for validation to refuse. */
function mendObject(
  value: Record<string, unknown>,
  schema: Record<string, unknown>,
  corrections: string[],
): Record<string, unknown> {
  const properties = isRecord(schema.properties) ? schema.properties : {}
  const required = Array.isArray(schema.required) ? schema.required : []
  const mended: Record<string, unknown> = {}
  for (const [name, child] of Object.entries(value)) {
    if (Object.hasOwn(properties, name)) {
      if (child === null && !required.includes(name)) corrections.push(`${name}: null was left out`)
      else mended[name] = child
    }
  }
  for (const [name, child] of Object.entries(value)) {
    if (Object.hasOwn(properties, name)) continue
    const meant = Object.keys(properties).filter(
      (known) => !Object.hasOwn(value, known) && isSpelling(name, known),
    )
    const [target] = meant
    if (meant.length === 1 && target !== undefined && !Object.hasOwn(mended, target)) {
      mended[target] = child
      corrections.push(`${name.slice(0, 100)}: taken as ${target}`)
    } else mended[name] = child
  }
  for (const [name, child] of Object.entries(mended)) {
    const property = Object.hasOwn(properties, name) ? properties[name] : undefined
    const coerced = isRecord(property) ? coerce(child, property.type) : child
    if (coerced !== child) {
      mended[name] = coerced
      corrections.push(`${name}: ${typeName(child)} taken as ${typeName(coerced)}`)
    }
  }
  return mended
}

function isSpelling(name: string, known: string): boolean {
  const plain = plainName(name)
  return plain === plainName(known) || (aliases[known]?.includes(plain) ?? false)
}

function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, '')
}

function coerce(value: unknown, type: unknown): unknown {
  if ((type === 'number' || type === 'integer') && typeof value === 'string') {
    const number = Number(value)
    return value.trim() !== '' && Number.isFinite(number) ? number : value
  }
  if (type === 'boolean' && typeof value === 'string') {
    return /^true$/i.test(value) ? true : /^false$/i.test(value) ? false : value
  }
  if (type === 'string' && (typeof value === 'number' || typeof value === 'boolean')) return String(value)
  if (type === 'array' && ['string', 'number', 'boolean'].includes(typeof value)) {
    const parsed =
      typeof value === 'string' && value.trimStart().startsWith('[') ? parseModelJson(value) : null
    return parsed?.ok && Array.isArray(parsed.value.value) ? parsed.value.value : [value]
  }
  if (type === 'object' && typeof value === 'string') {
    const parsed = parseModelJson(value)
    return parsed.ok && isRecord(parsed.value.value) ? parsed.value.value : value
  }
  return value
}
