/** Checks what an application passes against a schema; the error names each field that is wrong. */
import * as z from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { plainMessages } from '#specs/protocol/issue-text.ts'

/** Options that cannot be used. */
export class OptionsError extends CaissonError {
  override readonly name = 'OptionsError'
  /** The fields that are wrong, such as `limits.maxTokens`. */
  readonly fields: readonly string[]

  constructor(what: string, problems: readonly Problem[], cause?: unknown) {
    super(
      'invalid_options',
      `${what}: ${problems.map(({ field, message }) => (field === '' ? message : `${field}: ${message}`)).join('; ')}`,
      { cause },
    )
    this.fields = problems.map(({ field }) => field)
  }
}

interface Problem {
  readonly field: string
  readonly message: string
}

/** Names that there are, by the place of an object. */
export type Names = Readonly<Record<string, readonly string[]>>

const problemsMaxCount = 8

/** Options of many calls. */
export const SignalOption = z
  .custom<AbortSignal>((value) => value instanceof AbortSignal, 'expected an AbortSignal')
  .optional()
export const FunctionOption = z
  .custom((value) => typeof value === 'function', 'expected a function')
  .optional()

/** The value as the schema reads it. @throws {OptionsError} naming every field that is wrong */
export function checkArguments<T>(what: string, schema: z.ZodType<T>, value: unknown, names: Names = {}): T {
  const parsed = readOptions(what, () => schema.safeParse(value, plainMessages))
  if (parsed.success) return parsed.data
  throw new OptionsError(what, problemsOf(parsed.error, names))
}

/** What `read` returns; options may throw when they are read, as a getter can. @throws {OptionsError} */
export function readOptions<T>(what: string, read: () => T): T {
  try {
    return read()
  } catch (cause) {
    if (cause instanceof CaissonError) throw cause
    throw new OptionsError(
      what,
      [{ field: '', message: `reading them failed: ${errorMessage(cause)}` }],
      cause,
    )
  }
}

/** Levels of {@link copyOptions}: the options, a group of them, a list or map in that. */
const copiedDepth = 3

/**
 * A copy whose fields cannot change between check and use. Functions, class instances and the values of lists and maps
 * in a group stay the caller's own.
 */
export function copyOptions<T>(value: T, depth = copiedDepth): T {
  if (depth === 0 || typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map((item: unknown) => copyOptions(item, depth - 1)) as T
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return value
  const copy = Object.entries(value).map(([name, item]) => [name, copyOptions(item, depth - 1)])
  return Object.fromEntries(copy)
}

/** Each problem with its field. */
export function problemsOf({ issues }: z.ZodError, names: Names): Problem[] {
  return issues.slice(0, problemsMaxCount).flatMap((issue) => {
    const field = issue.path.join('.')
    if (issue.code !== 'unrecognized_keys') return [{ field, message: issue.message }]
    const known = names[field.replace(/\.?\d+$/, '')]
    const among = known === undefined ? '' : `; the names are ${known.join(', ')}`
    return issue.keys.map((key) => ({
      field: field === '' ? key : `${field}.${key}`,
      message: `no option has this name${among}`,
    }))
  })
}
