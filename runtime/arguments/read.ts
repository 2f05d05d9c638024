/**
 * Validates a call's arguments against a library tool's schema. Arguments that fit are unchanged; mistakes with one
 * meaning are coerced and recorded; everything else becomes the artifact that names each problem.
 */

import { type OpenedSchema, openSchema } from '#specs/node/json-schema.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { ToolValidationIssue } from '#specs/protocol/validation-failure.ts'
import type { LLMTool } from '../contract/contract.ts'
import { isRecord, isZod, toInputSchema } from '../llm/json-schema.ts'
import { readArgumentsJson } from '../llm/repair.ts'
import { coerceArguments, findMeant, isDestructive, type ToolEffect } from './coerce.ts'
import { argumentIssues, describeFaults, validationFailure } from './failure.ts'
import { decodeNestedJson } from './nested-json.ts'
import { propertiesOf } from './schema-facts.ts'

interface ToolArguments extends ToolEffect {
  readonly name: string
  /** Null: not checked here, because its server does. */
  readonly parameters: LLMTool['parameters'] | null
  /** The schema in the form shown to a model. */
  readonly schema: Readonly<Record<string, unknown>>
}

interface CheckedArguments {
  /** The model's JSON after coercion, before the schema transforms it. */
  readonly given: unknown
  /** The value after the schema's transformations. */
  readonly input: unknown
  /** Descriptions of the corrections. */
  readonly corrections: readonly string[]
}

/** The error is the durable artifact as JSON. */
export async function readArguments(
  tool: ToolArguments,
  text: string,
): Promise<Result<CheckedArguments, string>> {
  const corrections: string[] = []
  const refuse = (issues: readonly ToolValidationIssue[]): { ok: false; error: string } => {
    const message = `the arguments do not fit ${tool.name}, and nothing was done: correct them and call again`
    return { ok: false, error: validationFailure(tool.name, message, issues, corrections).output }
  }
  if (text.length > limits.frameMaxBytes) {
    const message = `they are ${text.length} characters, the bound is ${limits.frameMaxBytes}`
    return refuse([{ path: '', code: 'too_big', message }])
  }
  const json = readArgumentsJson(text, tool.readOnly, corrections)
  if (!json.ok) return refuse([{ path: '', code: 'invalid_json', message: json.error }])
  const { parameters } = tool
  const schema =
    parameters === null ? tool.schema : isZod(parameters) ? toInputSchema(parameters) : parameters
  const given = decodeNestedJson(json.value, schema, corrections)
  if (parameters === null) return { ok: true, value: { given, input: given, corrections } }

  const suggest = (unknownName: string) => findMeant(unknownName, propertiesOf(tool.schema))
  const first = await check(parameters, given, suggest)
  if (first.ok) return { ok: true, value: { given, input: first.value, corrections } }
  if (isDestructive(tool) || !isRecord(given)) return refuse(first.error)
  const coerced = coerceArguments(given, schema, corrections)
  const second = await check(parameters, coerced, suggest)
  return second.ok
    ? { ok: true, value: { given: coerced, input: second.value, corrections } }
    : refuse(second.error)
}

async function check(
  parameters: LLMTool['parameters'],
  value: unknown,
  suggest: (unknownName: string) => string | undefined,
): Promise<Result<unknown, ToolValidationIssue[]>> {
  if (isZod(parameters)) {
    const parsed = await parameters.safeParseAsync(value)
    return parsed.success
      ? { ok: true, value: parsed.data }
      : { ok: false, error: argumentIssues(parsed.error, value, suggest) }
  }
  const schema = await openedSchema(parameters)
  // A schema that cannot be checked is the application's concern; its tool gets what the model wrote.
  const faults = schema.ok ? schema.value.findFaults(value) : []
  return faults.length === 0 ? { ok: true, value } : { ok: false, error: describeFaults(faults, suggest) }
}

const openedSchemas = new WeakMap<object, Promise<Result<OpenedSchema, string>>>()

function openedSchema(parameters: Readonly<Record<string, unknown>>): Promise<Result<OpenedSchema, string>> {
  const known = openedSchemas.get(parameters) ?? openSchema(parameters)
  openedSchemas.set(parameters, known)
  return known
}
