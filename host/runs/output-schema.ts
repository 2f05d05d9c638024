/**
 * The schema of a run's final answer: read from a file, refused where it is no JSON schema, and applied to the answer
 * that the agent reports. The guest is untrusted, so its own check does not count.
 */
import * as z from 'zod'
import { errorMessage } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { openSchema } from '#specs/node/json-schema.ts'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { AnswerForm } from '#specs/protocol/task.ts'
import { OptionsError, problemsOf } from '../files/check-arguments.ts'
import { openRegular } from '../files/regular-file.ts'
import type { Ending } from './ending.ts'

/** Bytes of a file with a schema: its characters, each in UTF-8, and some indentation. */
const fileMaxBytes = 8 * limits.outputSchemaMaxChars

/** The schema in a file. @throws {OptionsError} naming the file and the place in it */
export async function readOutputSchema(file: string): Promise<AnswerForm> {
  const refuse = (message: string) =>
    new OptionsError('the output schema cannot be used', [{ field: file, message }])
  let text: string
  try {
    await using handle = await openRegular(file)
    const { size } = await handle.stat()
    if (size > fileMaxBytes) throw refuse(`${size} bytes, expected at most ${fileMaxBytes}`)
    text = await handle.readFile('utf8')
  } catch (error) {
    if (error instanceof OptionsError) throw error
    throw refuse(`cannot be read: ${reasonOf(error)}; name a file with a JSON schema`)
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw refuse(`expected a JSON schema, seen no JSON: ${errorMessage(error)}`)
  }
  return await checkOutputSchema(value, file)
}

/**
 * A copy of the schema, without its `$schema`.
 * @param place what the error names: an option, or a file
 * @throws {OptionsError} naming the place in the schema
 */
export async function checkOutputSchema(given: unknown, place = 'outputSchema'): Promise<AnswerForm> {
  const what = 'the output schema cannot be used'
  const bounded = AnswerForm.safeParse(given, plainMessages)
  if (!bounded.success) throw refusalOf(what, place, bounded.error)
  const { $schema: _, ...schema } = JSON.parse(JSON.stringify(bounded.data)) as AnswerForm
  const checked = formOf(schema).safeParse(schema, plainMessages)
  if (!checked.success) throw refusalOf(what, place, checked.error)
  const opened = await openSchema(schema)
  if (!opened.ok) throw new OptionsError(what, [{ field: place, message: opened.error }])
  return schema
}

function refusalOf(what: string, place: string, error: z.ZodError): OptionsError {
  const problems = problemsOf(error, {}).map(({ field, message }) => ({
    field: field === '' ? place : place === 'outputSchema' ? `${place}.${field}` : `${place}: ${field}`,
    message,
  }))
  return new OptionsError(what, problems)
}

/** The ending of a run whose answer must fit: failed, with the text, when it does not. */
export async function checkAnswer(ending: Ending, schema: AnswerForm | undefined): Promise<Ending> {
  if (schema === undefined || ending.outcome !== 'completed') return ending
  const fail = (problem: string): Ending => ({
    outcome: 'failed',
    reason: 'answer_invalid',
    message: `the final answer does not fit the output schema: ${problem}`.slice(0, limits.textMaxChars),
    summary: ending.summary,
  })
  let value: unknown
  try {
    value = JSON.parse(ending.summary)
  } catch (error) {
    return fail(`it is no JSON (${errorMessage(error)})`)
  }
  const opened = await openSchema(schema)
  const checked = opened.ok ? opened.value.check(value) : opened
  // Written again: where a name is there twice, everybody reads the value that was checked.
  return checked.ok ? { ...ending, summary: JSON.stringify(value), structured: true } : fail(checked.error)
}

/** The ending of a workflow: its answer counts as structured where it is an object or a list. */
export function readResult(ending: Ending): Ending {
  if (ending.outcome !== 'completed' || !/^[[{]/.test(ending.summary)) return ending
  try {
    return { ...ending, summary: JSON.stringify(JSON.parse(ending.summary)), structured: true }
  } catch {
    return ending
  }
}

const types = ['array', 'boolean', 'integer', 'null', 'number', 'object', 'string'] as const
const oneType = z.enum(types)
const count = z.int().min(0)
const pattern = z.string().refine(isPattern, 'expected a regular expression')
const keywordsMissing = 'expected a JSON schema, with a keyword such as "type" or "properties"'

/** The form of a JSON schema: keywords that are known have values that they can have. Others are ignored, as JSON Schema says. */
function formOf(root: AnswerForm): z.ZodType {
  const schema: z.ZodType = z.lazy(() =>
    z.preprocess((value) => (typeof value === 'boolean' ? {} : value), node),
  )
  const schemas = z.array(schema).min(1)
  const byName = z.record(z.string(), schema)
  const reference = z
    .string()
    .refine((text) => isReference(root, text), 'expected a part of this schema, such as "#/$defs/NAME"')
  const node = z
    .looseObject({
      $ref: reference,
      $defs: byName,
      definitions: byName,
      type: z.union([oneType, z.array(oneType).min(1)], {
        error: `expected ${types.join(', ')}, or a list of them`,
      }),
      enum: z.array(z.unknown()).min(1),
      properties: byName,
      patternProperties: z.record(pattern, schema),
      additionalProperties: schema,
      propertyNames: schema,
      required: z.array(z.string()),
      minProperties: count,
      maxProperties: count,
      items: schema,
      prefixItems: schemas,
      contains: schema,
      minItems: count,
      maxItems: count,
      uniqueItems: z.boolean(),
      minLength: count,
      maxLength: count,
      pattern,
      format: z.string(),
      minimum: z.number(),
      maximum: z.number(),
      exclusiveMinimum: z.number(),
      exclusiveMaximum: z.number(),
      multipleOf: z.number().positive(),
      allOf: schemas,
      anyOf: schemas,
      oneOf: schemas,
      not: schema,
      if: schema,
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      then: schema,
      else: schema,
      dependentRequired: z.record(z.string(), z.array(z.string())),
      dependentSchemas: byName,
    })
    .partial()
  const known = new Set([...Object.keys(node.shape), 'const'])
  return node.refine((value) => Object.keys(value).some((name) => known.has(name)), keywordsMissing)
}

function isPattern(text: string): boolean {
  try {
    new RegExp(text, 'u')
    return true
  } catch {
    return false
  }
}

/** Whether `#`, or a JSON pointer into the schema. */
function isReference(root: AnswerForm, text: string): boolean {
  if (text === '#') return true
  if (!text.startsWith('#/')) return false
  let at: unknown = root
  for (const part of text.slice(2).split('/')) {
    const name = decode(part).replaceAll('~1', '/').replaceAll('~0', '~')
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, name)) return false
    at = (at as Record<string, unknown>)[name]
  }
  return typeof at === 'boolean' || (typeof at === 'object' && at !== null && !Array.isArray(at))
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
