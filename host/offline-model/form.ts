/**
 * The offline model's answer in the form of a schema: an object with at most one text, one list of texts and one number,
 * from the words of the answer before. It says so where a schema needs more.
 */
import { type CompletionRequest, contentText } from '#specs/protocol/completion-request.ts'
import { type OfflineReply, offlineLabel, sayNotDone } from './reply.ts'

type Schema = Readonly<Record<string, unknown>>

const reasoning = 'The answer is requested in the form of a JSON schema.'

/** The answer to a request for JSON; null for any other request. @param results answers of the steps before */
export function answerInForm(request: CompletionRequest, results: readonly string[]): OfflineReply | null {
  const form = request.response_format
  if (form?.type !== 'json_schema') return null
  const said = request.messages.findLast(
    (message) => message.role === 'assistant' && (message.content ?? '') !== '',
  )
  const words = (said === undefined ? results.join('\n') : contentText(said.content))
    .replaceAll(`${offlineLabel} `, '')
    .trim()
  const filled = fill(form.json_schema.schema, words)
  if (typeof filled !== 'string') return { reasoning, text: JSON.stringify(filled), calls: [] }
  return sayNotDone(
    `I am a set of rules and cannot give an answer of this form: ${filled}. I can fill in an object with one text, one list ` +
      'of texts and one number. Set a model key for other schemas.',
    reasoning,
  )
}

/** The object, or why it cannot be made. */
function fill({ type, properties, required }: Schema, words: string): Record<string, unknown> | string {
  if (type !== 'object' || !isRecord(properties)) return 'it is no object with properties'
  const names =
    Array.isArray(required) && required.length > 0 ? required.map(String) : Object.keys(properties)
  const taken = new Set<string>()
  const entries: [string, unknown][] = []
  for (const name of names) {
    const schema = Object.hasOwn(properties, name) ? properties[name] : undefined
    const kind = isRecord(schema) ? kindOf(schema) : undefined
    const value = kind === undefined ? undefined : pick(kind, words)
    if (kind === undefined || value === undefined) return `I have nothing for ${JSON.stringify(name)}`
    if (taken.has(kind)) return `it has more than one ${kind}`
    taken.add(kind)
    entries.push([name, value])
  }
  return Object.fromEntries(entries)
}

type Kind = 'text' | 'list' | 'number'

/** Keywords that say nothing about the value. */
const notes: ReadonlySet<string> = new Set(['type', 'title', 'description', 'items'])

function kindOf(schema: Schema): Kind | undefined {
  if (Object.keys(schema).some((name) => !notes.has(name))) return undefined
  const { type, items } = schema
  if (type === 'string') return 'text'
  if (type === 'number' || type === 'integer') return 'number'
  return type === 'array' && isRecord(items) && kindOf(items) === 'text' ? 'list' : undefined
}

function pick(kind: Kind, words: string): unknown {
  if (kind === 'text') return words
  if (kind === 'list') return words.split('\n').filter((line) => line.trim() !== '')
  const numbers = words.match(/(?<![\w.-])-?\d+(?![\w.-]*\w)/g) ?? []
  return numbers.length === 1 ? Number(numbers[0]) : undefined
}

function isRecord(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
