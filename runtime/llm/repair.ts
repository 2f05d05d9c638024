/**
 * Parses JSON that a model wrote. Strict first; then only certain repairs, each recorded: a code fence, prose around
 * one object, and jsonrepair results with unchanged content. No character of a call's arguments is dropped. Refuses
 * truncated JSON (except missing closing braces on request), duplicate keys, and numbers that would be rounded.
 */
import { jsonrepair } from 'jsonrepair'
import { closeObjects, findLoss, saysTheSame } from '#specs/node/model-protocols/json-tokens.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'

export interface ParsedJson {
  readonly value: unknown
  /** What had to be repaired, in words; empty when nothing was. */
  readonly corrections: readonly string[]
}

export interface RepairOptions {
  /**
   * Whether the text is a call's arguments: then no possible content is dropped, neither prose nor comments, only a
   * fence around all of it. Default false.
   */
  readonly lossless?: boolean
  /** Whether missing closing braces after a complete value may be added; default false. */
  readonly closeObjects?: boolean
}

/** Longer text is not repaired; strict JSON of any bounded size is parsed. */
const repairMaxChars = 1024 * 1024

/**
 * Maximum product of quotation marks and characters for a repair: jsonrepair searches for a string's end from each
 * possible start. A few seconds of one processor.
 */
const repairMaxWork = { double: 2e9, other: 4e9 } as const

/** The JSON value in `text`, or an error sentence. */
export function parseModelJson(text: string, options: RepairOptions = {}): Result<ParsedJson, string> {
  const trimmed = text.trim().replace(/^\uFEFF/, '')
  if (trimmed === '') return failure('expected JSON, got nothing')
  const strict = parseStrict(trimmed)
  if (strict.ok) return { ok: true, value: { value: strict.value, corrections: [] } }
  if (strict.error !== 'syntax') return failure(strict.error)
  if (trimmed.length > repairMaxChars) return failure('the text is not JSON and too long to repair')

  const corrections: string[] = []
  const lossless = options.lossless === true
  const chosen = lossless ? withoutFence(trimmed, corrections) : withoutProse(trimmed, corrections)
  if (!chosen.ok) return chosen
  const bare = chosen.value
  const inner = parseStrict(bare)
  if (inner.ok) return { ok: true, value: { value: inner.value, corrections } }
  if (inner.error !== 'syntax') return failure(inner.error)
  const repaired = repairSyntax(bare, corrections, lossless)
  const closed = repaired.ok || options.closeObjects !== true ? null : closeObjects(bare, !lossless)
  if (closed === null) return repaired
  const withBraces = [...corrections, 'braces missing at the end were added']
  const whole = parseStrict(closed)
  return whole.ok
    ? { ok: true, value: { value: whole.value, corrections: withBraces } }
    : repairSyntax(closed, withBraces, lossless)
}

function failure(error: string): { ok: false; error: string } {
  return { ok: false, error }
}

/**
 * The only JSON object in a text, whatever other brackets its prose has; else its first list. If no bracket closes,
 * everything from the first on.
 */
function withoutProse(text: string, corrections: string[]): Result<string, string> {
  const fenced = insideFence(text)
  if (fenced !== null) corrections.push('taken out of a fenced block')
  const candidate = fenced ?? text
  const groups = findGroups(candidate)
  const objects = groups.filter(({ from }) => candidate.charAt(from) === '{')
  const whole = objects.filter(({ from, end }) => parseStrict(candidate.slice(from, end)).ok)
  const [found = groups[0], another] = whole.length === 1 ? whole : objects
  if (another !== undefined) return failure('found more than one JSON object; one is expected')
  if (found === undefined) return { ok: true, value: candidate.slice(Math.max(0, candidate.search(/[{[]/))) }
  const rest = candidate.slice(0, found.from).trim() + candidate.slice(found.end).trim()
  if (rest !== '') corrections.push('text around the JSON was dropped')
  return { ok: true, value: candidate.slice(found.from, found.end) }
}

/** The text inside a fence around all of it. */
function withoutFence(text: string, corrections: string[]): { ok: true; value: string } {
  const inner = text.startsWith('```') && text.endsWith('```') ? insideFence(text) : null
  if (inner !== null) corrections.push('taken out of a fenced block')
  return { ok: true, value: inner ?? text }
}

/** The text between the first fence, with its language, and the last; null without two fences. */
function insideFence(text: string): string | null {
  const open = text.indexOf('```')
  const close = text.lastIndexOf('```')
  if (open < 0 || close <= open + 3) return null
  const inner = text.slice(open + 3, close)
  return inner.slice(/^[a-zA-Z0-9]{0,16}/.exec(inner)?.[0].length ?? 0).trim()
}

/** Accepts the result of jsonrepair only if the content is unchanged: guessed text and values are refused. */
function repairSyntax(
  text: string,
  corrections: readonly string[],
  lossless: boolean,
): Result<ParsedJson, string> {
  if (isTooMuchWork(text)) return failure('the text is not JSON and has too many quotation marks to repair')
  let candidate: string
  try {
    candidate = jsonrepair(text)
  } catch (error) {
    return failure(`not JSON: ${error instanceof Error ? error.message : 'syntax error'}`.slice(0, 300))
  }
  const repaired = parseStrict(candidate)
  if (!repaired.ok) return failure(repaired.error === 'syntax' ? 'not JSON' : repaired.error)
  if (!saysTheSame(text, candidate, !lossless)) {
    return failure(
      `not JSON (${syntaxProblem(text)}), and it is not certain what was meant; it may be cut off`,
    )
  }
  return { ok: true, value: { value: repaired.value, corrections: [...corrections, 'JSON syntax repaired'] } }
}

function isTooMuchWork(text: string): boolean {
  const count = (marks: RegExp): number => text.match(marks)?.length ?? 0
  return (
    count(/(?<!\\)"/g) * text.length > repairMaxWork.double ||
    count(/['`\u2018\u2019\u201c\u201d\u00b4]/g) * text.length > repairMaxWork.other
  )
}

/** V8's error message without its sample of the text. */
function syntaxProblem(text: string): string {
  try {
    JSON.parse(text)
    return 'syntax error'
  } catch (error) {
    const words = error instanceof Error ? error.message : 'syntax error'
    return words.replace(/, ?(\.\.\.)?".*$/s, '').slice(0, 200)
  }
}

/**
 * Strict JSON within the depth limit, without `__proto__` and without losses; the error `syntax` means that it is not
 * JSON.
 */
export function parseStrict(text: string): Result<unknown, string> {
  if (depthOf(text) > limits.jsonMaxDepth) {
    return { ok: false, error: `JSON nested deeper than ${limits.jsonMaxDepth} levels` }
  }
  let value: unknown
  try {
    value = JSON.parse(text, refuseProto)
  } catch (error) {
    return { ok: false, error: error instanceof ForbiddenKey ? error.message : 'syntax' }
  }
  const loss = findLoss(text)
  return loss === null ? { ok: true, value } : failure(loss)
}

class ForbiddenKey extends Error {}

function refuseProto(key: string, value: unknown): unknown {
  if (key === '__proto__') throw new ForbiddenKey('the key "__proto__" is not allowed')
  return value
}

function depthOf(text: string): number {
  let depth = 0
  let deepest = 0
  for (const { open } of brackets(text)) {
    depth += open ? 1 : -1
    deepest = Math.max(deepest, depth)
    if (deepest > limits.jsonMaxDepth) break
  }
  return deepest
}

/** The outermost closed brackets, in order. */
function findGroups(text: string): { from: number; end: number }[] {
  const groups: { from: number; end: number }[] = []
  let from = -1
  let depth = 0
  for (const { at, open } of brackets(text, text.search(/[{[]/))) {
    // A closing bracket in prose closes nothing.
    if (depth === 0 && !open) continue
    if (depth === 0) from = at
    depth += open ? 1 : -1
    if (depth === 0) groups.push({ from, end: at + 1 })
  }
  return groups
}

/** Offset after the bracket that closes the one at `from`; -1 when none does. */
export function endOfGroup(text: string, from: number): number {
  let depth = 0
  for (const { at, open } of brackets(text, from)) {
    depth += open ? 1 : -1
    if (depth <= 0) return at + 1
  }
  return -1
}

/** Brackets outside of double-quoted strings. */
function* brackets(text: string, start = 0): Generator<{ at: number; open: boolean }> {
  let inString = false
  for (let at = Math.max(0, start); at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (inString) {
      if (code === 0x5c) at++
      else if (code === 0x22) inString = false
    } else if (code === 0x22) inString = true
    else if (code === 0x7b || code === 0x5b) yield { at, open: true }
    else if (code === 0x7d || code === 0x5d) yield { at, open: false }
  }
}

/**
 * The value, or why there is none.
 * @param readOnly whether the tool only reads: then missing braces at the very end are added
 * @param corrections receives descriptions of the repairs
 */
export function readArgumentsJson(
  argumentsText: string,
  readOnly: boolean,
  corrections: string[],
): Result<unknown, string> {
  const text = argumentsText.trim()
  const options = { lossless: true, closeObjects: readOnly }
  const parsed = parseModelJson(text === '' || text === 'null' ? '{}' : text, options)
  if (!parsed.ok) return parsed
  corrections.push(...parsed.value.corrections)
  const { value } = parsed.value
  // Some servers encode the object twice.
  const inner: Result<ParsedJson, string> | null =
    typeof value === 'string' ? parseModelJson(value, options) : null
  if (inner?.ok !== true) return { ok: true, value }
  corrections.push('arguments were JSON in a string', ...inner.value.corrections)
  return { ok: true, value: inner.value.value }
}
