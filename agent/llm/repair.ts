/**
 * JSON out of what a model wrote. Strict first; then only repairs whose result is certain, each recorded: a fenced block,
 * prose around one object, and what jsonrepair mends (quotes, commas, comments). Cut-off JSON is never completed:
 * what a model did not write is not guessed.
 */
import { jsonrepair } from 'jsonrepair'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'

export interface ParsedJson {
  readonly value: unknown
  /** What had to be mended, in words; empty when nothing was. */
  readonly corrections: readonly string[]
}

/** Text beyond this is not repaired; strict JSON of any bounded size is read. */
const repairMaxChars = 1024 * 1024

/** The JSON value in `text`, or a sentence that says why there is none. */
export function parseModelJson(text: string): Result<ParsedJson, string> {
  const trimmed = text.trim().replace(/^\uFEFF/, '')
  if (trimmed === '') return { ok: false, error: 'expected JSON, got nothing' }
  const strict = parseStrict(trimmed)
  if (strict.ok) return { ok: true, value: { value: strict.value, corrections: [] } }
  if (strict.error !== 'syntax') return { ok: false, error: strict.error }
  if (trimmed.length > repairMaxChars)
    return { ok: false, error: 'the text is not JSON and too long to repair' }

  const corrections: string[] = []
  const fenced = insideFence(trimmed)
  const candidate = fenced ?? trimmed
  if (fenced !== null) corrections.push('taken out of a fenced block')
  const found = findBrackets(candidate)
  if (found === null) return { ok: false, error: 'found no whole JSON object; it may be cut off' }
  if (found.rest) corrections.push('text around the JSON was dropped')
  const inner = parseStrict(found.text)
  if (inner.ok) return { ok: true, value: { value: inner.value, corrections } }
  if (inner.error !== 'syntax') return { ok: false, error: inner.error }
  return mend(found.text, corrections)
}

/** What stands between the first fence, with its language word, and the last; null without two fences. */
function insideFence(text: string): string | null {
  const open = text.indexOf('```')
  const close = text.lastIndexOf('```')
  if (open < 0 || close <= open + 3) return null
  const inner = text.slice(open + 3, close)
  return inner.slice(/^[a-zA-Z0-9]{0,16}/.exec(inner)?.[0].length ?? 0).trim()
}

function mend(text: string, corrections: readonly string[]): Result<ParsedJson, string> {
  try {
    const mended = parseStrict(jsonrepair(text))
    if (!mended.ok) return { ok: false, error: mended.error }
    return { ok: true, value: { value: mended.value, corrections: [...corrections, 'JSON syntax mended'] } }
  } catch (error) {
    return {
      ok: false,
      error: `not JSON: ${error instanceof Error ? error.message : 'syntax error'}`.slice(0, 300),
    }
  }
}

/** Strict JSON within the bound of depth and without `__proto__`; the error `syntax` means that it is not JSON. */
function parseStrict(text: string): Result<unknown, string> {
  if (depthOf(text) > limits.jsonMaxDepth) {
    return { ok: false, error: `JSON nested deeper than ${limits.jsonMaxDepth} levels` }
  }
  try {
    return { ok: true, value: JSON.parse(text, refuseProto) }
  } catch (error) {
    return { ok: false, error: error instanceof ForbiddenKey ? error.message : 'syntax' }
  }
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

/** The text from the first opening bracket to the one that closes it; null when it never closes. */
function findBrackets(text: string): { text: string; rest: boolean } | null {
  let from = -1
  let depth = 0
  for (const { at, open } of brackets(text, text.search(/[{[]/))) {
    if (from < 0) from = at
    depth += open ? 1 : -1
    if (depth === 0) {
      const rest = from > 0 || text.slice(at + 1).trim() !== ''
      return { text: text.slice(from, at + 1), rest }
    }
  }
  return null
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
