/** Converts an MCP server's answer to a call into bounded text for a model, never raw bytes. */
import { isRecord } from '../llm/json-schema.ts'

export interface McpResult {
  /** False when the server reports a failure or did not answer. */
  readonly ok: boolean
  readonly content: string
  /** Whether a failure is the server's own text; absent: it did not answer with a result. */
  readonly isServersWord?: true
}

const resultMaxChars = 256 * 1024

export function toMcpResult(result: Readonly<Record<string, unknown>>): McpResult {
  const { content, structuredContent, isError } = result
  const blocks = Array.isArray(content) ? content.map(toText) : []
  const text = blocks.filter((block) => block !== '').join('\n')
  const whole = text === '' && structuredContent !== undefined ? JSON.stringify(structuredContent) : text
  const words = cutResult(whole === '' ? '(no output)' : whole)
  return isError === true ? { ok: false, content: words, isServersWord: true } : { ok: true, content: words }
}

/** Content read at an address. */
export function toContentsResult({ contents }: Readonly<Record<string, unknown>>): McpResult {
  const blocks = Array.isArray(contents) ? contents.map(toResourceText) : []
  const text = blocks.filter((block) => block !== '').join('\n')
  return { ok: true, content: cutResult(text === '' ? '(nothing)' : text) }
}

/** The messages of a prompt, each after its role. */
export function toPromptResult({ messages }: Readonly<Record<string, unknown>>): McpResult {
  const all = Array.isArray(messages) ? messages.filter(isRecord) : []
  const lines = all.map(({ role, content }) => `${wordOf(role)}: ${toText(content)}`)
  return { ok: true, content: cutResult(lines.length === 0 ? '(nothing)' : lines.join('\n')) }
}

function toText(block: unknown): string {
  if (!isRecord(block)) return ''
  if (block.type === 'text' && typeof block.text === 'string') return block.text
  if (block.type === 'resource') return toResourceText(block.resource)
  if (block.type === 'resource_link') return `[resource ${wordOf(block.uri)}]`
  if (block.type === 'image' || block.type === 'audio')
    return `[${block.type} ${wordOf(block.mimeType)}: ${sizeOf(block.data)}]`
  return ''
}

function toResourceText(resource: unknown): string {
  if (!isRecord(resource)) return ''
  const { uri, text, blob } = resource
  return typeof text === 'string' ? text : `[resource ${wordOf(uri)}: ${sizeOf(blob)}]`
}

function wordOf(value: unknown): string {
  return typeof value === 'string' ? value : '?'
}

function sizeOf(base64: unknown): string {
  return typeof base64 === 'string' ? `${Math.floor((base64.length * 3) / 4)} bytes` : 'empty'
}

/** Keeps the head and the tail of a long text. */
export function cutResult(text: string): string {
  const whole = text.toWellFormed()
  if (whole.length <= resultMaxChars) return whole
  const half = resultMaxChars / 2
  const left = whole.length - resultMaxChars
  return `${whole.slice(0, half)}\n[… ${left} characters left out …]\n${whole.slice(-half)}`.toWellFormed()
}
