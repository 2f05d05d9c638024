/** What makes two calls the same call: the tool and its arguments, whatever the order of their keys. */
import { hash } from 'node:crypto'

/** Arguments of JSON in one spelling: keys sorted, no blanks. Others, and such as nest too deep, as they are. */
export function normalizeArguments(text = ''): string {
  const trimmed = text.trim()
  if (trimmed === '') return '{}'
  try {
    const sorted = stringifySorted(JSON.parse(trimmed))
    // One text in memory where both are the same.
    return sorted === text ? text : sorted
  } catch {
    return trimmed
  }
}

/** `text`, or a digest in place of a long one. */
export function shorten(text: string): string {
  return text.length <= 200 ? text : `sha256-${hash('sha256', text, 'base64url')}`
}

function stringifySorted(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(stringifySorted).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, entry]) => `${JSON.stringify(key)}:${stringifySorted(entry)}`).join(',')}}`
}
