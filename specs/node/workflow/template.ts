/** Text with `{{ EXPRESSION }}` parts, which are replaced by their values. `${{ … }}` belongs to other languages and is kept. */
import type { Result } from '#specs/protocol/error.ts'
import { type Expression, type ExpressionValues, parseExpression } from './expression.ts'

export interface Template {
  /** Text and expressions in order. */
  readonly parts: readonly (string | Expression)[]
  /** @returns the text, values that are not text as JSON, or what went wrong, in one line */
  readonly render: (values: ExpressionValues) => Result<string, string>
}

const expressionsMaxCount = 64

/** @returns the template, or what is wrong with it, in one line */
export function parseTemplate(text: string): Result<Template, string> {
  const parts: (string | Expression)[] = []
  let end = 0
  for (let place = findBraces(text, end); place !== null; place = findBraces(text, end)) {
    const read = parseExpression(text.slice(place.start + 2, place.end - 2).trim())
    if (!read.ok) return { ok: false, error: `${shorten(text.slice(place.start, place.end))}: ${read.error}` }
    parts.push(text.slice(end, place.start), read.value)
    end = place.end
    if (parts.length > 2 * expressionsMaxCount)
      return { ok: false, error: `has more than ${expressionsMaxCount} expressions` }
  }
  parts.push(text.slice(end))
  return { ok: true, value: { parts, render: (values) => render(parts, values) } }
}

/** The next `{{ … }}` that no `$` is before. A regular expression would take quadratic time for braces that nothing closes. */
function findBraces(text: string, from: number): { readonly start: number; readonly end: number } | null {
  let start = text.indexOf('{{', from)
  while (start > 0 && text[start - 1] === '$') start = text.indexOf('{{', start + 1)
  const close = start < 0 ? -1 : text.indexOf('}}', start + 2)
  return close < 0 ? null : { start, end: close + 2 }
}

function render(parts: Template['parts'], values: ExpressionValues): Result<string, string> {
  let text = ''
  for (const part of parts) {
    if (typeof part === 'string') {
      text += part
      continue
    }
    const result = part.evaluate(values)
    if (!result.ok) return { ok: false, error: `{{${shorten(part.source)}}}: ${result.error}` }
    text += typeof result.value === 'string' ? result.value : JSON.stringify(result.value)
  }
  return { ok: true, value: text }
}

const shownMaxChars = 80

function shorten(text: string): string {
  return text.length > shownMaxChars ? `${text.slice(0, shownMaxChars)}…`.toWellFormed() : text
}
