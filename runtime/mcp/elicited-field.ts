/** One field of a form from a server: the question for the person and the constraints on the answer. */
import type { PrimitiveSchemaDefinition } from '@modelcontextprotocol/client'
import { limits } from '#specs/protocol/limits.ts'
import { isAnswerTo, type UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'

export interface FieldRule {
  readonly form: Omit<UserQuestion, 'question'>
  /** The server's question, with its constraints. */
  readonly words: string
  /** Error message for an answer of the right form; null: accepted. */
  problemOf(answer: UserAnswer): string | null
}

const optionsMaxCount = 20
const wordsMaxChars = 1_000

interface Option {
  readonly value: string
  readonly label?: string
}

/** A constraint on an answer and its description. */
type Check = readonly [holds: (answer: UserAnswer) => boolean, words: string]

/** The field, or why a person cannot be asked for it. */
export function readField(name: string, schema: PrimitiveSchemaDefinition): FieldRule | string {
  if (schema.type === 'boolean') return makeField(name, schema, { kind: 'confirm' }, [])
  if (schema.type === 'number' || schema.type === 'integer')
    return makeField(name, schema, { kind: 'number' }, numberChecks(schema))
  const options = readOptions(schema)
  if (options !== null) {
    const problem = problemOfOptions(options)
    if (problem !== null) return problem
    const kind = schema.type === 'array' ? 'choices' : 'choice'
    return makeField(name, schema, { kind, options: [...options] }, countChecks(schema))
  }
  return schema.type === 'string'
    ? makeField(name, schema, { kind: 'text' }, textChecks(schema))
    : 'a list without options'
}

function makeField(
  name: string,
  { title, description, default: given }: PrimitiveSchemaDefinition,
  form: FieldRule['form'],
  checks: readonly Check[],
): FieldRule {
  const called = title === undefined || title.trim() === '' ? name : title
  const told = description === undefined || description.trim() === '' ? '' : `: ${description}`
  const bounds = checks.length === 0 ? '' : ` (${checks.map(([, words]) => words).join(', ')})`
  const problemOf = (answer: UserAnswer) => checks.find(([holds]) => !holds(answer))?.[1] ?? null
  const isDefault = given !== undefined && isAnswerTo(form, given) && problemOf(given) === null
  const words = `${called}${told}`.slice(0, wordsMaxChars).toWellFormed() + bounds
  return { form: isDefault ? { ...form, defaultAnswer: given } : form, words, problemOf }
}

function readOptions(schema: PrimitiveSchemaDefinition): readonly Option[] | null {
  const titled = (all: readonly { const: string; title: string }[]) =>
    all.map((one) => ({ value: one.const, label: one.title }))
  if (schema.type === 'array')
    return 'anyOf' in schema.items
      ? titled(schema.items.anyOf)
      : schema.items.enum.map((value) => ({ value }))
  if ('oneOf' in schema) return titled(schema.oneOf)
  if (!('enum' in schema)) return null
  const names: readonly string[] = 'enumNames' in schema ? (schema.enumNames ?? []) : []
  return schema.enum.map((value, at) => {
    const label = names[at]
    return label === undefined ? { value } : { value, label }
  })
}

function problemOfOptions(options: readonly Option[]): string | null {
  if (options.length < 2 || options.length > optionsMaxCount)
    return `a person is given 2 to ${optionsMaxCount} options`
  const isShown = ({ value, label = value }: Option) =>
    value !== '' &&
    Math.max(value.length, label.length) <= limits.lineMaxChars &&
    (value + label).isWellFormed()
  const areOthers = new Set(options.map(({ value }) => value)).size === options.length
  return areOthers && options.every(isShown) ? null : 'a person can be shown no such options'
}

interface Bounds {
  readonly minimum?: number | undefined
  readonly maximum?: number | undefined
}

function numberChecks({ type, minimum, maximum }: Bounds & { readonly type: string }): Check[] {
  const checks: Check[] = []
  if (type === 'integer') checks.push([(answer) => Number.isSafeInteger(answer), 'a whole number'])
  return [...checks, ...rangeChecks(Number, { minimum, maximum }, '')]
}

function textChecks(schema: PrimitiveSchemaDefinition): Check[] {
  const { minLength, maxLength, format } = schema as {
    readonly minLength?: number
    readonly maxLength?: number
    readonly format?: string
  }
  const form = format === undefined ? undefined : formats[format]
  const bounds = { minimum: minLength, maximum: maxLength }
  const lengths = rangeChecks((answer) => [...String(answer)].length, bounds, ' characters')
  return form === undefined
    ? lengths
    : [...lengths, [(answer: UserAnswer) => form[0](String(answer)), form[1]]]
}

function countChecks(schema: PrimitiveSchemaDefinition): Check[] {
  if (schema.type !== 'array') return []
  const bounds = { minimum: schema.minItems, maximum: schema.maxItems }
  return rangeChecks((answer) => (Array.isArray(answer) ? answer.length : 0), bounds, ' of them')
}

function rangeChecks(
  sizeOf: (answer: UserAnswer) => number,
  { minimum, maximum }: Bounds,
  unit: string,
): Check[] {
  const checks: Check[] = []
  if (minimum !== undefined)
    checks.push([(answer) => sizeOf(answer) >= minimum, `at least ${minimum}${unit}`])
  if (maximum !== undefined) checks.push([(answer) => sizeOf(answer) <= maximum, `at most ${maximum}${unit}`])
  return checks
}

const formats: Readonly<Record<string, readonly [(text: string) => boolean, string]>> = {
  email: [(text) => /^[^\s@]+@[^\s@]+$/.test(text), 'an e-mail address'],
  uri: [(text) => URL.canParse(text), 'an address such as https://example.org'],
  date: [(text) => isDate(text), 'a date such as 2026-01-31'],
  'date-time': [
    (text) => /^\d{4}-\d\d-\d\d[Tt]/.test(text) && !Number.isNaN(Date.parse(text)),
    'a time such as 2026-01-31T12:00:00Z',
  ],
}

function isDate(text: string): boolean {
  const time = Date.parse(`${text}T00:00:00Z`)
  return (
    /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(time) && new Date(time).toISOString().startsWith(text)
  )
}
