/** Text with `{{ EXPRESSION }}` parts, which are replaced by their values. `${{ … }}` belongs to other languages and is kept. */
import type { Result } from '#specs/protocol/error.ts'
import { type Expression, type ExpressionValues, parseExpression } from './expression.ts'

export interface Template {
  /** Text and expressions in order. */
  readonly parts: readonly (string | Expression)[]
  /** @returns the text, values that are not text as JSON, or what went wrong, in one line */
  readonly render: (values: ExpressionValues) => Result<string, string>
}

const form = /(?<!\$)\{\{([\s\S]*?)\}\}/g
const expressionsMaxCount = 64

/** @returns the template, or what is wrong with it, in one line */
export function parseTemplate(text: string): Result<Template, string> {
  const parts: (string | Expression)[] = []
  let end = 0
  for (const match of text.matchAll(form)) {
    const read = parseExpression((match[1] ?? '').trim())
    if (!read.ok) return { ok: false, error: `${shorten(match[0])}: ${read.error}` }
    parts.push(text.slice(end, match.index), read.value)
    end = match.index + match[0].length
    if (parts.length > 2 * expressionsMaxCount)
      return { ok: false, error: `has more than ${expressionsMaxCount} expressions` }
  }
  parts.push(text.slice(end))
  return { ok: true, value: { parts, render: (values) => render(parts, values) } }
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
