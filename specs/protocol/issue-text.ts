/**
 * Schema errors as text for people: `limits.maxTurns: must be 1 or more, got -1`. A schema's own message stays
 * unchanged.
 */
import type * as z from 'zod'

/** For longer text only the length is shown. */
const SHOWN_MAX_CHARS = 40
const PATH_MAX_CHARS = 200

export interface DescribeOptions {
  /** Name of the whole value in messages; absent: `the value`. */
  readonly root?: string
  /** Maximum problems listed, the rest are counted; absent: 3. */
  readonly max?: number
}

/** For `parse` and `safeParse`: produces messages for people. */
export const plainMessages: z.core.ParseContext<z.core.$ZodIssue> = {
  error: (issue) => wordIssue(issue, false),
}

/**
 * The same for values that may be secrets: repeats no text and no value of a wrong type, only numbers out of range.
 */
export const plainMessagesWithoutValues: z.core.ParseContext<z.core.$ZodIssue> = {
  error: (issue) => wordIssue(issue, true),
}

/** The same, but a short word in the place of one of several choices is repeated: it is no key. */
export const plainMessagesWithChoices: z.core.ParseContext<z.core.$ZodIssue> = {
  error: (issue) => wordIssue(issue, !isShortChoice(issue)),
}

function isShortChoice({ code, input }: RawIssue): boolean {
  return code === 'invalid_value' && typeof input === 'string' && /^[\w.-]{1,16}$/.test(input)
}

/** The problems of a value checked with {@link plainMessages}, in one line, each with its path. */
export function describeIssues(
  { issues }: z.ZodError,
  { root = 'the value', max = 3 }: DescribeOptions = {},
): string {
  const told = issues.slice(0, max).map(({ path, message }) => `${placeOf(path) || root}: ${message}`)
  const more = issues.length - told.length
  return `${told.join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}

function placeOf(path: readonly PropertyKey[]): string {
  return path.map(String).join('.').slice(0, PATH_MAX_CHARS)
}

type RawIssue = z.core.$ZodRawIssue

function wordIssue(issue: RawIssue, hidesValues: boolean): string {
  const { input } = issue
  const got = describeGot(input, hidesValues)
  switch (issue.code) {
    case 'invalid_type':
    case 'invalid_value':
      return mustBe(expectedOf(issue) ?? 'something else', input, got)
    case 'too_small':
      return wordBound(issue, {
        bound: issue.minimum,
        more: 'or more',
        strictly: 'more than',
        least: 'at least',
      })
    case 'too_big':
      return wordBound(issue, {
        bound: issue.maximum,
        more: 'or less',
        strictly: 'less than',
        least: 'at most',
      })
    case 'invalid_format':
      return `must ${wordFormat(issue)}, got ${got}`
    case 'not_multiple_of':
      return `must be a multiple of ${issue.divisor}, got ${String(input)}`
    case 'unrecognized_keys': {
      const names = issue.keys.slice(0, 8).map((key) => JSON.stringify(key.slice(0, 64)))
      return `unknown ${names.length === 1 ? 'field' : 'fields'} ${names.join(', ')}`
    }
    case 'invalid_key':
      return wordName(wordFirst(issue.issues))
    case 'invalid_element':
      return `has an entry that is not allowed: ${wordFirst(issue.issues)}`
    case 'invalid_union':
      return wordUnion(issue, hidesValues)
    default:
      return `is not valid, got ${got}`
  }
}

/** A name schema's own message states that it concerns a name. */
function wordName(words: string): string {
  return words.startsWith('must ') ? `its name ${words}` : words
}

function mustBe(expected: string, input: unknown, got: string): string {
  return input === undefined ? `is missing; must be ${expected}` : `must be ${expected}, got ${got}`
}

/** What an issue about type or value expects; undefined for other issues. */
function expectedOf(issue: z.core.$ZodIssue | RawIssue): string | undefined {
  if (issue.code === 'invalid_type') return typeNames[issue.expected] ?? issue.expected
  if (issue.code !== 'invalid_value') return undefined
  const values = issue.values.map((value) =>
    typeof value === 'string' ? JSON.stringify(value) : String(value),
  )
  return values.length === 1 ? values[0] : `one of ${values.join(', ')}`
}

const typeNames: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  bigint: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  tuple: 'a list',
  set: 'a list',
  object: 'an object',
  record: 'an object',
  map: 'an object',
  function: 'a function',
  date: 'a date',
  nan: 'no number',
  undefined: 'absent',
  void: 'absent',
  never: 'absent',
}

/** The value received. May contain untrusted text: escape it for a terminal. */
function describeGot(input: unknown, hidesValues: boolean): string {
  if (input === null) return 'null'
  if (Array.isArray(input)) return 'a list'
  if (input instanceof Date) return 'a date'
  switch (typeof input) {
    case 'undefined':
      return 'nothing'
    case 'string':
      if (hidesValues) return 'text'
      return input.length > SHOWN_MAX_CHARS ? `text of ${input.length} characters` : JSON.stringify(input)
    case 'number':
    case 'bigint':
      return hidesValues ? 'a number' : String(input)
    case 'boolean':
      return hidesValues ? 'true or false' : String(input)
    case 'object':
      return 'an object'
    default:
      return `a ${typeof input}`
  }
}

interface Bound {
  readonly bound: number | bigint
  readonly more: string
  readonly strictly: string
  readonly least: string
}

function wordBound(
  { origin, inclusive, exact, input }: Extract<RawIssue, { code: 'too_small' | 'too_big' }>,
  { bound, more, strictly, least }: Bound,
): string {
  const unit = units[origin]
  if (unit === undefined) {
    const limit = origin === 'date' ? new Date(Number(bound)).toISOString() : String(bound)
    const got = input instanceof Date ? input.toISOString() : String(input)
    return inclusive === false
      ? `must be ${strictly} ${limit}, got ${got}`
      : `must be ${limit} ${more}, got ${got}`
  }
  const size = sizeOf(input)
  if (size === 0) return 'must not be empty'
  const how = exact === true ? 'exactly' : inclusive === false ? strictly : least
  const counted = `must have ${how} ${bound} ${Number(bound) === 1 ? unit.one : unit.many}`
  return size === undefined ? counted : `${counted}, has ${size}`
}

const units: Readonly<Record<string, { readonly one: string; readonly many: string }>> = {
  string: { one: 'character', many: 'characters' },
  array: { one: 'entry', many: 'entries' },
  set: { one: 'entry', many: 'entries' },
  map: { one: 'entry', many: 'entries' },
  record: { one: 'entry', many: 'entries' },
  object: { one: 'field', many: 'fields' },
  file: { one: 'byte', many: 'bytes' },
}

function sizeOf(input: unknown): number | undefined {
  if (typeof input === 'string' || Array.isArray(input)) return input.length
  if (input instanceof Map || input instanceof Set) return input.size
  return typeof input === 'object' && input !== null ? Object.keys(input).length : undefined
}

function wordFormat(issue: Extract<RawIssue, { code: 'invalid_format' }>): string {
  const { format, pattern, prefix, suffix, includes } = issue as typeof issue & Record<string, unknown>
  if (format === 'regex') return `match the pattern ${String(pattern).replace(/^\/(.*)\/[a-z]*$/s, '$1')}`
  if (format === 'starts_with') return `begin with ${JSON.stringify(prefix)}`
  if (format === 'ends_with') return `end with ${JSON.stringify(suffix)}`
  if (format === 'includes') return `contain ${JSON.stringify(includes)}`
  if (format === 'lowercase' || format === 'uppercase') return `be in ${format} letters`
  return `be ${formatNames[format] ?? `of the form ${format}`}`
}

const formatNames: Readonly<Record<string, string>> = {
  email: 'an email address',
  url: 'a URL',
  uuid: 'a UUID',
  guid: 'a UUID',
  datetime: 'a date and time such as 2026-01-31T12:00:00Z',
  date: 'a date such as 2026-01-31',
  time: 'a time such as 12:00:00',
  duration: 'a duration such as PT1H',
  ipv4: 'an IPv4 address',
  ipv6: 'an IPv6 address',
  cidrv4: 'an IPv4 range such as 10.0.0.0/8',
  cidrv6: 'an IPv6 range such as fd00::/8',
  base64: 'base64',
  base64url: 'base64url',
  json_string: 'JSON',
}

/** A branch of the value's kind gives the best message; without one, all alternatives are listed. */
function wordUnion(issue: Extract<RawIssue, { code: 'invalid_union' }>, hidesValues: boolean): string {
  const { input, discriminator, options } = issue as typeof issue & {
    readonly discriminator?: string
    readonly options?: readonly unknown[]
  }
  if (options !== undefined && discriminator !== undefined) {
    const given = typeof input === 'object' && input !== null ? Reflect.get(input, discriminator) : input
    const values = options.map((option) => JSON.stringify(option) ?? String(option))
    return mustBe(`one of ${values.join(', ')}`, given, describeGot(given, hidesValues))
  }
  const branches = issue.errors.filter((issues) => issues.length > 0)
  const near = branches.filter(
    (issues) => !issues.some((one) => one.path.length === 0 && expectedOf(one) !== undefined),
  )
  const [first, ...others] = near
  if (first !== undefined)
    return wordFirst(others.reduce((best, issues) => (issues.length < best.length ? issues : best), first))
  const expected = branches.flatMap((issues) => {
    const one = issues.find(
      ({ path, ...rest }) => path.length === 0 && expectedOf(rest as (typeof issues)[number]) !== undefined,
    )
    return (one && expectedOf(one)) ?? []
  })
  const got = describeGot(input, hidesValues)
  return expected.length === 0
    ? `is not valid, got ${got}`
    : mustBe([...new Set(expected)].join(' or '), input, got)
}

/** The first issue below a value, with its path. */
function wordFirst(issues: readonly z.core.$ZodIssue[]): string {
  const [first] = issues
  if (first === undefined) return 'is not valid'
  const place = placeOf(first.path)
  return place === '' ? first.message : `${place} ${first.message}`
}
