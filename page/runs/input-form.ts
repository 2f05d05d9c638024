/** The input of a workflow as fields, where its JSON schema is simple; what is typed into them as JSON. Pure. */

export interface InputField {
  readonly name: string
  readonly kind: 'text' | 'number' | 'integer' | 'boolean' | 'choice'
  /** Of a choice. */
  readonly options: readonly string[]
  readonly isRequired: boolean
  readonly description: string
  /** What is in it at first. */
  readonly initial: string
}

export type InputValues = Readonly<Record<string, string>>
type Read = { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly error: string }

const fieldsMaxCount = 20
/** With one of these a schema says more than its properties do. */
const further = ['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'if', 'patternProperties', 'dependentSchemas']

/** Undefined: JSON has to be typed. */
export function fieldsOf(schema: unknown): readonly InputField[] | undefined {
  if (!isObject(schema) || schema.type !== 'object' || !isObject(schema.properties)) return undefined
  if (further.some((name) => Object.hasOwn(schema, name))) return undefined
  const required: readonly unknown[] = Array.isArray(schema.required) ? schema.required : []
  const properties = Object.entries(schema.properties)
  if (
    properties.length > fieldsMaxCount ||
    required.some((name) => !Object.hasOwn(schema.properties as object, String(name)))
  )
    return undefined
  const fields = properties.map(([name, property]) => fieldOf(name, property, required.includes(name)))
  return fields.every((field) => field !== undefined) ? fields : undefined
}

function fieldOf(name: string, property: unknown, isRequired: boolean): InputField | undefined {
  if (!isObject(property) || further.some((word) => Object.hasOwn(property, word))) return undefined
  const { type, enum: choices, default: given, description } = property
  const options = Array.isArray(choices) ? choices.filter((one) => typeof one === 'string') : []
  const kind = kindOf(type, choices, options)
  if (kind === undefined) return undefined
  const isShown = ['string', 'number', 'boolean'].includes(typeof given)
  return {
    ...{ name, kind, options, isRequired },
    description: typeof description === 'string' ? description : '',
    initial: isShown ? String(given) : kind === 'choice' && isRequired ? (options[0] ?? '') : '',
  }
}

function kindOf(type: unknown, choices: unknown, options: readonly string[]): InputField['kind'] | undefined {
  if (Array.isArray(choices))
    return options.length === choices.length && options.length > 0 ? 'choice' : undefined
  if (type === 'string') return 'text'
  return type === 'number' || type === 'integer' || type === 'boolean' ? type : undefined
}

/** A field that is empty and not required is left out. */
export function inputOf(fields: readonly InputField[], values: InputValues): Read {
  const input: [string, unknown][] = []
  for (const { name, kind, isRequired, initial } of fields) {
    const typed = values[name] ?? initial
    if (kind === 'boolean') {
      if (isRequired || typed !== '') input.push([name, typed === 'true'])
      continue
    }
    if (typed === '' && !isRequired) continue
    if (kind !== 'number' && kind !== 'integer') {
      input.push([name, typed])
      continue
    }
    const number = typed.trim() === '' ? Number.NaN : Number(typed)
    if (!Number.isFinite(number) || (kind === 'integer' && !Number.isInteger(number)))
      return { ok: false, error: `${name}: expected ${kind === 'integer' ? 'a whole number' : 'a number'}` }
    input.push([name, number])
  }
  return { ok: true, value: Object.fromEntries(input) }
}

/** Nothing typed is no input. */
export function inputOfJson(text: string): Read {
  if (text.trim() === '') return { ok: true, value: undefined }
  try {
    return { ok: true, value: JSON.parse(text) }
  } catch (error) {
    return {
      ok: false,
      error: `The input is not JSON: ${error instanceof Error ? error.message : String(error)}`,
    }
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
