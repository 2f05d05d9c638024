/** Identity of a call: the tool and its arguments, regardless of key order. */
import { hash } from 'node:crypto'

/** Normalised JSON arguments: sorted keys, no blanks. Invalid or too deeply nested ones are unchanged. */
export function normalizeArguments(text = ''): string {
  const trimmed = text.trim()
  if (trimmed === '') return '{}'
  try {
    const sorted = stringifySorted(JSON.parse(trimmed))
    // Share one string when both are equal.
    return sorted === text ? text : sorted
  } catch {
    return trimmed
  }
}

/** `text`, or a digest of a long one. */
export function shorten(text: string): string {
  return text.length <= 200 ? text : `sha256-${hash('sha256', text, 'base64url')}`
}

function stringifySorted(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(stringifySorted).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, entry]) => `${JSON.stringify(key)}:${stringifySorted(entry)}`).join(',')}}`
}
