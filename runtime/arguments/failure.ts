/**
 * The failure of a call whose arguments do not fit: a durable artifact for the model and the journal, and a sentence
 * for people. The artifact is always valid JSON within its bound: excess entries are omitted, never cut.
 */
import type { z } from 'zod'
import type { SchemaFault } from '#specs/node/json-schema.ts'
import type { ToolError } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import {
  type ToolValidationFailure,
  type ToolValidationIssue,
  toolValidationFailureType,
} from '#specs/protocol/validation-failure.ts'

/** A failed validation: `output` is the artifact as JSON, `error` the same in a sentence. */
export interface ValidationFailure {
  readonly error: ToolError
  readonly output: string
}

const issuesMaxCount = 20
/** Maximum corrections kept per call. */
export const correctionsMaxCount = 20

/** Builds the failure of a call of `toolName`. `message` is one line. */
export function validationFailure(
  toolName: string,
  message: string,
  issues: readonly ToolValidationIssue[],
  corrections: readonly string[] = [],
): ValidationFailure {
  const artifact: ToolValidationFailure = {
    ok: false,
    status: 'error',
    errorType: toolValidationFailureType,
    toolName: toolName.slice(0, 100),
    message: message.slice(0, 500),
    issues: issues.slice(0, issuesMaxCount).map(boundIssue),
    corrections: corrections.slice(0, correctionsMaxCount).map((text) => text.slice(0, limits.lineMaxChars)),
  }
  const details = artifact.issues.map(
    (issue) => `${issue.path === '' ? '' : `${issue.path}: `}${issue.message}`,
  )
  const sentence = [artifact.message, ...details].join('; ').slice(0, 2_000).toWellFormed()
  return {
    error: { code: 'invalid_input', message: sentence, retryable: false },
    output: serialize(artifact),
  }
}

/** Problems that a schema found in `value`. `suggest` names the parameter that an unknown one may mean. */
export function argumentIssues(
  error: z.ZodError,
  value: unknown,
  suggest: (unknownName: string) => string | undefined,
): ToolValidationIssue[] {
  return error.issues.slice(0, issuesMaxCount).flatMap((issue): ToolValidationIssue[] => {
    const path = issue.path.map(String).join('.')
    if (issue.code === 'unrecognized_keys') {
      return issue.keys.map((key) => ({
        path: path === '' ? key : `${path}.${key}`,
        code: issue.code,
        message: unknownParameter(key, path === '' ? suggest(key) : undefined),
      }))
    }
    const expected = 'expected' in issue && typeof issue.expected === 'string' ? issue.expected : undefined
    const receivedType = typeName(valueAt(value, issue.path))
    return [
      {
        path,
        code: issue.code,
        message:
          expected !== undefined && receivedType === 'undefined' ? 'is required and missing' : issue.message,
        ...(expected === undefined ? {} : { expectedType: expected, receivedType }),
      },
    ]
  })
}

/** As above for a JSON schema. */
export function describeFaults(
  faults: readonly SchemaFault[],
  suggest: (unknownName: string) => string | undefined,
): ToolValidationIssue[] {
  const issues = faults.map((fault) => describeFault(fault, suggest))
  return [...new Map(issues.map((issue) => [JSON.stringify(issue), issue])).values()]
}

function describeFault(
  { path, keyword, message }: SchemaFault,
  suggest: (unknownName: string) => string | undefined,
): ToolValidationIssue {
  const where = path.join('.')
  const name = path.at(-1)
  if (keyword === 'false' && name !== undefined) {
    const meant = path.length === 1 ? suggest(name) : undefined
    return { path: where, code: 'unrecognized_keys', message: unknownParameter(name, meant) }
  }
  // The validator returns only text, so it is parsed; unknown text is passed on unchanged.
  const [, missing] = /^Instance does not have required property "(.*)"\.$/s.exec(message) ?? []
  if (keyword === 'required' && missing !== undefined)
    return { path: [...path, missing].join('.'), code: 'required', message: 'is required and missing' }
  const [, receivedType, expected] =
    /^Instance type "(.*)" is invalid\. Expected "(.*)"\.$/.exec(message) ?? []
  if (keyword === 'type' && receivedType !== undefined && expected !== undefined) {
    const expectedType = expected.replaceAll('", "', ' or ')
    const words = `expected ${expectedType}, got ${receivedType}`
    return { path: where, code: 'invalid_type', message: words, expectedType, receivedType }
  }
  return { path: where, code: keyword, message }
}

/** `array` and `null` besides the names of typeof. */
export function typeName(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}

function unknownParameter(name: string, meant: string | undefined): string {
  const shown = JSON.stringify(name.slice(0, 100))
  return meant === undefined
    ? `there is no parameter ${shown}`
    : `there is no parameter ${shown}; if you mean ${JSON.stringify(meant)}, give it under that name`
}

function boundIssue(issue: ToolValidationIssue): ToolValidationIssue {
  return { ...issue, path: issue.path.slice(0, 200), message: issue.message.slice(0, 500) }
}

function serialize(artifact: ToolValidationFailure): string {
  let { issues, corrections } = artifact
  for (;;) {
    const text = JSON.stringify({ ...artifact, issues, corrections })
    // Lone surrogates are escaped in JSON, so cutting within the fields cannot make it ill-formed.
    if (text.length <= limits.textMaxChars || issues.length + corrections.length === 0) return text
    if (corrections.length > 0) corrections = corrections.slice(0, -1)
    else issues = issues.slice(0, -1)
  }
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let at = value
  for (const key of path) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key)) return undefined
    at = Reflect.get(at, key)
  }
  return at
}
