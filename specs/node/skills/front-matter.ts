/**
 * Parses the front matter of a SKILL.md, between two `---` lines, and the text after it. Never throws: an invalid
 * front matter is reported as text.
 */
import { parseDocument } from 'yaml'

export interface SkillText {
  readonly name: string | null
  readonly description: string | null
  /** The text after the front matter; the whole text without one. */
  readonly instructions: string
  /** Why the front matter is unreadable; null if it is readable or missing. */
  readonly problem: string | null
}

/** Parsing hostile YAML takes quadratic time. */
const headMaxChars = 8 * 1024
const head = /^---[ \t]*\r?\n((?:[\s\S]*?\n)?)---[ \t]*(?:\r?\n|$)/

export function readSkillText(source: string): SkillText {
  const text = source.replace(/^\uFEFF/, '')
  const none = { name: null, description: null, instructions: text.trim() }
  if (!/^---[ \t]*\r?\n/.test(text)) return { ...none, problem: null }
  const found = head.exec(text.slice(0, headMaxChars))
  if (found === null)
    return { ...none, problem: `the front matter does not end within ${headMaxChars} characters` }
  const instructions = text.slice(found[0].length).trim()
  try {
    // Aliases are not needed here, and can expand a small text enormously.
    const document = parseDocument(found[1] ?? '', { schema: 'core', merge: false, logLevel: 'silent' })
    const [error] = document.errors
    if (error !== undefined) {
      const problem = `the front matter: ${firstLine(error.message)}`
      return { ...readPlainLines(found[1] ?? ''), instructions, problem }
    }
    const values: unknown = document.toJS({ maxAliasCount: 0 })
    if (values !== null && !isRecord(values))
      return { ...none, instructions, problem: 'the front matter is no mapping of names to values' }
    return {
      name: textOf(values?.name),
      description: textOf(values?.description),
      instructions,
      problem: null,
    }
  } catch (cause) {
    const words = cause instanceof Error ? firstLine(cause.message) : 'it could not be read'
    return { ...none, instructions, problem: `the front matter: ${words}` }
  }
}

/** Accepts lines that YAML rejects, such as a description with a colon: the rest of the line. */
function readPlainLines(lines: string): Pick<SkillText, 'name' | 'description'> {
  const plainLine = (key: string) => textOf(new RegExp(`^${key}:[ \\t]*(\\S.*)$`, 'm').exec(lines)?.[1])
  return { name: plainLine('name'), description: plainLine('description') }
}

function textOf(value: unknown): string | null {
  const text = typeof value === 'string' ? value : typeof value === 'number' ? String(value) : ''
  const flat = text.replaceAll(/\s+/g, ' ').trim().toWellFormed()
  return flat === '' ? null : flat
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0]?.slice(0, 300) ?? ''
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
