/**
 * Turns a model's arguments into a tool's typed input. Arguments that fit are unchanged. Mistakes with one meaning
 * are coerced and recorded, but not for tools that may destroy something. Everything else is refused with a message
 * that names every problem.
 */

import { coerceArguments, findMeant, isDestructive } from '#runtime/arguments/coerce.ts'
import { argumentIssues, type ValidationFailure, validationFailure } from '#runtime/arguments/failure.ts'
import { decodeNestedJson } from '#runtime/arguments/nested-json.ts'
import { propertiesOf } from '#runtime/arguments/schema-facts.ts'
import { isRecord, toInputSchema } from '#runtime/llm/json-schema.ts'
import { readArgumentsJson } from '#runtime/llm/repair.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type Tool, toolFailure } from './tool.ts'

export interface ParsedArguments {
  readonly input: unknown
  /** Canonical JSON of `input`: keys sorted at every level. */
  readonly canonical: string
  /** Names in `input` that the model did not give. */
  readonly defaults: readonly string[]
  readonly corrections: readonly string[]
}

/** The properties of a tool that matter here. */
export type ArgumentsOf = Pick<Tool, 'name' | 'inputSchema' | 'parameters' | 'readOnly' | 'destructive'>

/** Maximum characters of arguments; no tool takes more. */
export const argumentsMaxChars = limits.frameMaxBytes

/**
 * The validated input of a call, by the rungs of a ladder, each tried only where the one before did not hold:
 *
 * 1. JSON as it stands, that fits the schema as it stands.
 * 2. JSON that is broken in a way with one meaning (`repair.ts`), or encoded twice; missing closing braces only of tools
 *    that just read.
 * 3. Objects and lists that are JSON in a string, where the schema accepts no string.
 * 4. Mistakes that are harmless (`runtime/arguments/coerce.ts`), of tools that cannot destroy anything.
 * 5. A failure whose output is the artifact for the model: nothing is executed, nothing is guessed.
 *
 * (Calls that a model wrote into its text have been found by then: `llm/text-calls.ts`.)
 */
export function parseArguments(
  tool: ArgumentsOf,
  argumentsText: string,
): Result<ParsedArguments, ValidationFailure> {
  if (argumentsText.length > argumentsMaxChars) return tooLong(tool.name, argumentsText.length)
  const corrections: string[] = []
  const json = readArgumentsJson(argumentsText, tool.readOnly, corrections)
  if (!json.ok) return unreadable(tool.name, json.error)
  const schema = tool.parameters ?? toInputSchema(tool.inputSchema)
  const given = decodeNestedJson(json.value, schema, corrections)
  const strict = tool.inputSchema.safeParse(given)
  if (strict.success) return success(given, strict.data, corrections)

  const coerced =
    !isDestructive(tool) && isRecord(given) ? coerceArguments(given, schema, corrections) : given
  const second = coerced === given ? strict : tool.inputSchema.safeParse(coerced)
  if (second.success) return success(coerced, second.data, corrections)
  const issues = argumentIssues(second.error, coerced, (name) => findMeant(name, propertiesOf(schema)))
  const message = `the arguments do not fit ${tool.name}, and nothing was done: correct them and call again`
  return { ok: false, error: validationFailure(tool.name, message, issues, corrections) }
}

function success(
  given: unknown,
  input: unknown,
  corrections: readonly string[],
): { ok: true; value: ParsedArguments } {
  const names = isRecord(input) ? Object.keys(input) : []
  const defaults = names.filter((name) => !isRecord(given) || !Object.hasOwn(given, name))
  return { ok: true, value: { input, canonical: toCanonicalJson(input) ?? 'null', defaults, corrections } }
}

function unreadable(toolName: string, problem: string): { ok: false; error: ValidationFailure } {
  const message = `the arguments of ${toolName} could not be read, and nothing was done: send them as one JSON object`
  const issues = [{ path: '', code: 'invalid_json', message: problem }]
  return { ok: false, error: validationFailure(toolName, message, issues) }
}

function tooLong(toolName: string, length: number): { ok: false; error: ValidationFailure } {
  const text = `the arguments of ${toolName} are ${length} characters, the bound is ${argumentsMaxChars}; write large content in pieces`
  const { error } = toolFailure('too_large', text)
  return { ok: false, error: { error, output: `Error (${error.code}): ${error.message}` } }
}
