/**
 * What an answer has to be: a JSON schema, or a zod schema, as one thing that can be shown to a model and checked against.
 * The validator of JSON schemas interprets them (a schema may be a model's own) and is loaded when the first is opened.
 */
import type { OutputUnit, Schema, Validator } from '@cfworker/json-schema'
import * as z from 'zod'
import { isOutOfTime, withinTime } from '#specs/node/bounded-time.ts'
import type { Result } from '#specs/protocol/error.ts'
import { isRecord } from '../llm/json-schema.ts'

export type JsonSchema = Readonly<Record<string, unknown>>

export interface AnswerSchema<T> {
  /** As a model is told of it. */
  readonly json: JsonSchema
  /** The value, or what is wrong with it, in words for the model. */
  check(value: unknown): Result<T, string>
}

/** What of a value a keyword of the schema refuses. */
export interface SchemaFault {
  /** Names and indexes that lead to it; empty for the value itself. */
  readonly path: readonly string[]
  readonly keyword: string
  /** Bounded, in one line. */
  readonly message: string
}

export interface OpenedSchema extends AnswerSchema<unknown> {
  /** Empty when the value fits. */
  findFaults(value: unknown): readonly SchemaFault[]
}

const issuesMaxCount = 12
const issueMaxChars = 300
/** Of one value, by a schema that may be a model's own. */
const checkTimeoutMs = 1_000

/** The schema opened; the error says why it is none, or one that cannot be checked. */
export async function openSchema(schema: JsonSchema): Promise<Result<OpenedSchema, string>> {
  const { Validator: Interpreter } = await import('@cfworker/json-schema')
  try {
    const validator = new Interpreter(schema as Schema, '2020-12', false)
    // Whatever breaks it does so at the first value: references to nowhere or in circles, keywords of the wrong type.
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

/** The same of a zod schema; transformations of it are applied. Throws where it has no form as JSON schema: that is misuse. */
export function openZodSchema<T extends z.ZodType>(schema: T): AnswerSchema<z.output<T>> {
  const { $schema: _, ...json } = z.toJSONSchema(schema, { io: 'input' })
  return {
    json,
    check: (value) => {
      const parsed = schema.safeParse(value)
      return parsed.success
        ? { ok: true, value: parsed.data }
        : { ok: false, error: describeIssues(parsed.error) }
    },
  }
}

/** What zod found wrong, in one bounded line. */
export function describeIssues(error: z.ZodError, root = 'the value'): string {
  return joinIssues(
    error.issues.map(
      ({ path, message }) => `${path.length === 0 ? root : path.map(String).join('.')}: ${message}`,
    ),
  )
}

const probes: readonly unknown[] = [{}, [], '', 0, null]

function faultsOf(validator: Validator, value: unknown): SchemaFault[] {
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
  return error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
}

/** Keywords whose error only says that something below them is wrong. */
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

/** Of a JSON pointer in a URI's fragment (RFC 6901). */
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

function joinIssues(all: readonly string[]): string {
  const shown = all.slice(0, issuesMaxCount).map(oneLine)
  const more = all.length - shown.length
  return `${shown.join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').slice(0, issueMaxChars)
}

/**
 * The schema as one of an object, which is what tools and most servers take: itself, or an object with it as `value`.
 * Definitions stay at its root, where references look for them.
 */
export function asObjectSchema(schema: JsonSchema): {
  readonly schema: JsonSchema
  readonly isWrapped: boolean
} {
  if (schema.type === 'object') return { schema, isWrapped: false }
  const { $defs, definitions, ...value } = schema
  return {
    isWrapped: true,
    schema: {
      type: 'object',
      properties: { value },
      required: ['value'],
      ...(isRecord($defs) ? { $defs } : {}),
      ...(isRecord(definitions) ? { definitions } : {}),
    },
  }
}
