/**
 * Parses a call's arguments as a model wrote them: valid JSON, JSON with one possible repair, JSON encoded twice, or
 * nothing.
 */
import type { Result } from '#specs/protocol/error.ts'
import { type ParsedJson, parseModelJson } from '../llm/repair.ts'

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
