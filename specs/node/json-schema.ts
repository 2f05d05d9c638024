/**
 * A JSON schema that answers are checked against, by host and agent. Schemas are interpreted, since a model may write
 * them; the validator loads with the first one.
 */
import type { OutputUnit, Schema, Validator } from '@cfworker/json-schema'
import type { Result } from '../protocol/error.ts'
import { isWithinDepth } from '../protocol/json-depth.ts'
import { isOutOfTime, withinTime } from './bounded-time.ts'

export type JsonSchema = Readonly<Record<string, unknown>>

export interface AnswerSchema<T> {
  /** The schema in the form shown to a model. */
  readonly json: JsonSchema
  /** The value, or a description of its problems for the model. */
  check(value: unknown): Result<T, string>
}

/** A keyword of the schema that a part of the value violates. */
export interface SchemaFault {
  /** Path of names and indexes; empty for the value itself. */
  readonly path: readonly string[]
  readonly keyword: string
  /** One bounded line. */
  readonly message: string
}

export interface OpenedSchema extends AnswerSchema<unknown> {
  /** Empty when the value fits. */
  findFaults(value: unknown): readonly SchemaFault[]
}

const issuesMaxCount = 12
const issueMaxChars = 300
/** Validates one value against a schema that a model may have written. */
const checkTimeoutMs = 1_000
/** Maximum nesting of a value: a schema that refers to itself is followed as deep as the value goes. */
const valueMaxDepth = 64

/** Compiles the schema; the error says why it is invalid or cannot be checked. */
export async function openSchema(schema: JsonSchema): Promise<Result<OpenedSchema, string>> {
  const { Validator: Interpreter } = await import('@cfworker/json-schema')
  try {
    const validator = new Interpreter(schema as Schema, '2020-12', false)
    // Any defect shows with the first value: dangling or circular references, keywords of the wrong type.
    withinTime(() => probes.forEach((probe) => void validator.validate(probe)), checkTimeoutMs)
    const findFaults = (value: unknown) => faultsOf(validator, value)
    return {
      ok: true,
      value: { json: schema, findFaults, check: (value) => toResult(value, findFaults(value)) },
    }
  } catch (error) {
    return { ok: false, error: `not a usable JSON schema: ${describeBreak(error)}`.slice(0, issueMaxChars) }
  }
}

const probes: readonly unknown[] = [{}, [], '', 0, null]

function faultsOf(validator: Validator, value: unknown): SchemaFault[] {
  if (!isWithinDepth(value, valueMaxDepth))
    return [{ path: [], keyword: '$schema', message: `the value nests deeper than ${valueMaxDepth} levels` }]
  let result: ReturnType<Validator['validate']>
  try {
    result = withinTime(() => validator.validate(value), checkTimeoutMs)
  } catch (error) {
    // A part of the schema that no probe reached.
    const message = oneLine(`the schema itself cannot be checked: ${describeBreak(error)}`)
    return [{ path: [], keyword: '$schema', message }]
  }
  if (result.valid) return []
  const told = result.errors.filter(({ keyword }) => !wrappers.has(keyword))
  return (told.length > 0 ? told : result.errors).map(toFault)
}

function toResult(value: unknown, faults: readonly SchemaFault[]): Result<unknown, string> {
  const [first] = faults
  if (first === undefined) return { ok: true, value }
  if (first.keyword === '$schema') return { ok: false, error: first.message }
  const told = faults.map(
    ({ path, message }) => `${path.length === 0 ? 'the value' : path.join('.')}: ${message}`,
  )
  return { ok: false, error: joinIssues(told) }
}

function describeBreak(error: unknown): string {
  if (isOutOfTime(error)) return 'its patterns or references take too long'
  if (error instanceof RangeError && error.message.includes('call stack'))
    return 'a "$ref" leads back to itself without going into a part of the value; refer to the whole from below "properties" or "items"'
  return error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
}

/** Keywords whose error only repeats an error below them. */
const wrappers: ReadonlySet<string> = new Set([
  'properties',
  'patternProperties',
  'additionalProperties',
  'items',
  'prefixItems',
  '$ref',
  'allOf',
  'if',
])

function toFault({ keyword, instanceLocation, error }: OutputUnit): SchemaFault {
  const parts = instanceLocation.replace(/^#\/?/, '').split('/')
  const path = parts[0] === '' && parts.length === 1 ? [] : parts.map(decodePointer)
  return { path, keyword, message: oneLine(keyword === 'false' ? 'not allowed here' : error) }
}

/** Decodes a JSON pointer in a URI fragment (RFC 6901). */
function decodePointer(part: string): string {
  return decodeURIComponentOr(part).replaceAll('~1', '/').replaceAll('~0', '~')
}

function decodeURIComponentOr(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** The problems in one bounded line. */
export function joinIssues(all: readonly string[]): string {
  const shown = all.slice(0, issuesMaxCount).map(oneLine)
  const more = all.length - shown.length
  return `${shown.join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').slice(0, issueMaxChars)
}
