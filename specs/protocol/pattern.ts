/** Patterns in rules, hooks and tool lists. */

/**
 * `*` matches any characters including line breaks; everything else matches itself; the whole text must match. Linear
 * in the text, which may be hostile; a regular expression with several stars would not be.
 */
export function matchesPattern(pattern: string, text: string): boolean {
  const parts = pattern.split('*')
  const first = parts[0] ?? ''
  const last = parts.at(-1) ?? ''
  if (parts.length === 1) return text === pattern
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last))
    return false
  let at = first.length
  for (const part of parts.slice(1, -1)) {
    const found = text.indexOf(part, at)
    if (found < 0) return false
    at = found + part.length
  }
  return at <= text.length - last.length
}
