/**
 * Converts the guest's call arguments to canonical form before they are shown, judged, journaled and executed.
 * Ambiguous JSON (huge numbers, duplicate keys) must not mean one thing to a person and another to a tool.
 */
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { parseJson } from '../files/json.ts'

interface CallArguments {
  /** Canonical JSON, at most as long as the journal takes: short numbers can be long there. */
  readonly text: string
  /** What the text says. */
  readonly value: Readonly<Record<string, unknown>>
}

/** The error is for the model, to be read behind what the arguments are of. */
export function parseToolArguments(json: string): Result<CallArguments, string> {
  const given = parseJson(json)
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    return { ok: false, error: 'expected a JSON object' }
  const text = spell(given)
  if (text === null) return { ok: false, error: 'expected arguments that are not nested so deep' }
  if (text.length > limits.documentMaxChars)
    return { ok: false, error: `expected at most ${limits.documentMaxChars} characters, saw ${text.length}` }
  return { ok: true, value: { text, value: parseJson(text) as Record<string, unknown> } }
}

/** Null for what is nested deeper than this process can follow. */
function spell(value: object): string | null {
  try {
    return toCanonicalJson(value)
  } catch (error) {
    if (error instanceof RangeError) return null
    throw error
  }
}
