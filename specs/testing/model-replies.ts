/**
 * Well-formed replies of a model server: streams like vLLM's with the complete completion, and errors in each
 * dialect. The parts are exported to build malformed ones.
 */
import type { ServerReply } from './model-server.ts'

/** One event of the stream. */
export function event(chunk: unknown): string {
  return `data: ${typeof chunk === 'string' ? chunk : JSON.stringify(chunk)}\n\n`
}

/** The event that ends a stream. */
export const done = event('[DONE]')

/** A chunk with this delta. */
export function delta(fields: unknown, finishReason: string | null = null): string {
  return event(chunkOf({ choices: [{ index: 0, delta: fields, finish_reason: finishReason }] }))
}

/** A chunk with these entries of `tool_calls`. */
export function toolDelta(...calls: unknown[]): string {
  return delta({ tool_calls: calls })
}

export interface PlainReply {
  /** A list is streamed in pieces. */
  readonly text?: string | readonly string[]
  readonly reasoning?: string
  readonly calls?: readonly { id?: string; name: string; arguments: unknown }[]
  readonly finishReason?: string
  readonly usage?: {
    prompt_tokens: number
    completion_tokens: number
    completion_tokens_details?: { reasoning_tokens: number }
  }
  /** Omits the end markers of the stream. */
  readonly open?: boolean
}

const someUsage = { prompt_tokens: 10, completion_tokens: 5 }
const head = { id: 'chatcmpl-1', created: 1_700_000_000, model: 'scripted' }

/** A well-formed reply, streamed or complete as requested. Text arguments are used unchanged. */
export function reply(content: PlainReply): ServerReply {
  return {
    body: streamOf(content, true),
    uncounted: streamOf(content, false),
    whole: JSON.stringify(completionOf(content)),
  }
}

function withTotal(usage: NonNullable<PlainReply['usage']> = someUsage): object {
  return { ...usage, total_tokens: usage.prompt_tokens + usage.completion_tokens }
}

function streamOf(
  { text = [], reasoning, calls = [], finishReason, usage, open }: PlainReply,
  isCounted: boolean,
): string {
  const parts = [delta({ role: 'assistant', content: '' })]
  if (reasoning !== undefined) parts.push(delta({ reasoning_content: reasoning }))
  for (const content of typeof text === 'string' ? [text] : text) parts.push(delta({ content }))
  calls.forEach((call, index) => {
    const all = argumentsText(call.arguments)
    const half = Math.ceil(all.length / 2)
    const first = { name: call.name, arguments: all.slice(0, half) }
    parts.push(toolDelta({ index, ...withId(call.id), type: 'function', function: first }))
    parts.push(toolDelta({ index, function: { arguments: all.slice(half) } }))
  })
  if (open === true) return parts.join('')
  parts.push(delta({}, finishReason ?? (calls.length > 0 ? 'tool_calls' : 'stop')))
  if (isCounted) parts.push(event(chunkOf({ choices: [], usage: withTotal(usage) })))
  parts.push(done)
  return parts.join('')
}

function completionOf({ text, reasoning, calls = [], finishReason, usage }: PlainReply): unknown {
  const toolCalls = calls.map((call) => ({
    ...withId(call.id),
    type: 'function',
    function: { name: call.name, arguments: argumentsText(call.arguments) },
  }))
  const message = {
    role: 'assistant',
    content: text === undefined || typeof text === 'string' ? (text ?? null) : text.join(''),
    ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
    ...(calls.length > 0 ? { tool_calls: toolCalls } : {}),
  }
  const finish = finishReason ?? (calls.length > 0 ? 'tool_calls' : 'stop')
  return {
    ...head,
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: finish }],
    usage: withTotal(usage),
  }
}

/** An error format of a server: the body that contains `message`. */
export const errorDialects = {
  openai: (status, message) =>
    JSON.stringify({ error: { message, type: 'error_type', param: null, code: status } }),
  /** Older vLLM. */
  flat: (status, message) =>
    JSON.stringify({ object: 'error', message, type: 'BadRequestError', param: null, code: status }),
  /** NVIDIA's cloud functions. */
  problem: (status, message) =>
    JSON.stringify({ type: 'urn:problem', title: 'Title', status, detail: message }),
  /** FastAPI, and proxies written with it. */
  detail: (_status, message) => JSON.stringify({ detail: message }),
  /** Ollama. */
  errorText: (_status, message) => JSON.stringify({ error: message }),
  /** Google's compatible server. */
  list: (status, message) => JSON.stringify([{ error: { code: status, message, status: 'WORD' } }]),
  text: (_status, message) => message,
  html: (_status, message) =>
    `<!doctype html>\n<html><head><title>${message}</title></head><body>nginx</body></html>`,
} as const satisfies Record<string, (status: number, message: string) => string>

export type ErrorDialect = keyof typeof errorDialects

/** An error with its own status; an empty `message` gives an empty body. */
export function failure(
  status: number,
  message = '',
  dialect: ErrorDialect = 'openai',
  headers: Readonly<Record<string, string>> = {},
): ServerReply {
  const types: Partial<Record<ErrorDialect, string>> = {
    problem: 'application/problem+json',
    text: 'text/plain',
    html: 'text/html; charset=utf-8',
  }
  const body = message === '' ? '' : errorDialects[dialect](status, message)
  return { status, body, headers: { 'content-type': types[dialect] ?? 'application/json', ...headers } }
}

function chunkOf(fields: object): object {
  return { ...head, object: 'chat.completion.chunk', ...fields }
}

function argumentsText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function withId(id: string | undefined): { id?: string } {
  return id === undefined ? {} : { id }
}
