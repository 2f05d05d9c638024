/**
 * A call's arguments as a model wrote them, checked against the schema of a tool of the library: what fits is not touched,
 * slips with one meaning are put right and recorded, everything else is the artifact that names each problem.
 */
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { ToolValidationIssue } from '#specs/protocol/validation-failure.ts'
import type { LLMTool } from '../contract/contract.ts'
import { isRecord, isZod, toInputSchema } from '../llm/json-schema.ts'
import { coerceArguments, findMeant, isDestructive, propertiesOf, type ToolEffect } from './coerce.ts'
import { describeFaults, describeIssues, validationFailure } from './failure.ts'
import { type OpenedSchema, openSchema } from './json-schema.ts'
import { readArgumentsJson } from './read-json.ts'

export interface ToolArguments extends ToolEffect {
  readonly name: string
  /** Null: nothing is checked here, its server does that. */
  readonly parameters: LLMTool['parameters'] | null
  /** The same as a model is told of it. */
  readonly schema: Readonly<Record<string, unknown>>
}

export interface CheckedArguments {
  /** What the model wrote, put right: JSON, before the schema makes anything of it. */
  readonly given: unknown
  /** What the schema makes of it. */
  readonly input: unknown
  /** What was put right, in words. */
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
  if (tool.parameters === null)
    return { ok: true, value: { given: json.value, input: json.value, corrections } }

  const { parameters } = tool
  const suggest = (unknownName: string) => findMeant(unknownName, propertiesOf(tool.schema))
  const first = await check(parameters, json.value, suggest)
  if (first.ok) return { ok: true, value: { given: json.value, input: first.value, corrections } }
  if (isDestructive(tool) || !isRecord(json.value)) return refuse(first.error)
  const coerced = coerceArguments(
    json.value,
    isZod(parameters) ? toInputSchema(parameters) : parameters,
    corrections,
  )
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
      : { ok: false, error: describeIssues(parsed.error, value, suggest) }
  }
  const schema = await openedSchema(parameters)
  // A schema that cannot be checked is the application's; its tool gets what the model wrote.
  const faults = schema.ok ? schema.value.findFaults(value) : []
  return faults.length === 0 ? { ok: true, value } : { ok: false, error: describeFaults(faults, suggest) }
}

const openedSchemas = new WeakMap<object, Promise<Result<OpenedSchema, string>>>()

function openedSchema(parameters: Readonly<Record<string, unknown>>): Promise<Result<OpenedSchema, string>> {
  const known = openedSchemas.get(parameters) ?? openSchema(parameters)
  openedSchemas.set(parameters, known)
  return known
}
