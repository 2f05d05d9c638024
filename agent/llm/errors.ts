/**
 * What can go wrong with a model, as one value: made from a status and body in any of the known dialects
 * (OpenAI and vLLM `error`, problem+json `title` and `detail`, plain text or HTML), or from a broken stream.
 */
import type { RunReason } from '#specs/protocol/error.ts'

export interface ModelError {
  readonly code:
    | 'unreachable'
    | 'timed_out'
    | 'rate_limited'
    | 'overloaded'
    | 'refused'
    | 'broken'
    | 'too_large'
    | 'limit_tokens'
    | 'cancelled'
  /** HTTP status; null when there was no answer, or the failure lay within a stream. */
  readonly status: number | null
  readonly message: string
  /** Whether the same request may succeed later. */
  readonly retryable: boolean
  /** The server's own wish for a pause; null when it gave none. */
  readonly retryAfterMs: number | null
}

const messageMaxChars = 1_000

/** A failure that has no HTTP answer of its own. */
export function modelError(
  code: ModelError['code'],
  message: string,
  retryable: boolean,
  status: number | null = null,
): ModelError {
  return { code, status, message: cutMessage(message), retryable, retryAfterMs: null }
}

/** The failure that an answer other than 200 means. `retryAfter` is that header, seconds or a date. */
export function errorFromResponse(
  status: number,
  body: string,
  retryAfter: string | null,
  nowMs: number = Date.now(),
): ModelError {
  const said = readErrorBody(body)
  const text = said.message === '' ? `the model's server answered ${status}` : said.message
  const message = cutMessage(`${status}: ${text}`)
  const retryAfterMs = parseRetryAfter(retryAfter, nowMs)
  const { code, retryable } = classify(status, said)
  return { code, status, message, retryable, retryAfterMs }
}

/** The failure that an error object within a stream of status 200 means. */
export function errorFromStream(error: unknown): ModelError {
  const said = readErrorValue(error)
  const status = typeof said.code === 'number' && said.code >= 400 && said.code < 600 ? said.code : 500
  const { code, retryable } = classify(status, said)
  const text = said.message === '' ? 'the model reported an error without words' : said.message
  return { code, status: null, message: cutMessage(`in the stream: ${text}`), retryable, retryAfterMs: null }
}

/** The reason with which a run ends when this failure is final. */
export function reasonOf(error: ModelError): RunReason {
  switch (error.code) {
    case 'refused':
      return 'model_refused'
    case 'broken':
    case 'too_large':
      return 'model_broken'
    case 'limit_tokens':
      return 'limit_tokens'
    case 'cancelled':
      return 'cancelled'
    default:
      return 'model_unreachable'
  }
}

interface SaidError {
  readonly message: string
  readonly type: string
  readonly code: unknown
}

function classify(status: number, said: SaidError): Pick<ModelError, 'code' | 'retryable'> {
  const words = `${said.type} ${String(said.code)} ${said.message}`
  if (/\blimit_tokens\b/.test(words)) return { code: 'limit_tokens', retryable: false }
  if (/DEGRADED|ResourceExhausted|overloaded/i.test(words)) return { code: 'overloaded', retryable: true }
  if (status === 429) return { code: 'rate_limited', retryable: !/quota|credits/i.test(words) }
  if (status === 408 || status === 504) return { code: 'timed_out', retryable: true }
  if (status === 202 || status === 409 || status === 425) return { code: 'overloaded', retryable: true }
  if (status === 501 || status === 505) return { code: 'refused', retryable: false }
  if (status >= 500) return { code: 'overloaded', retryable: true }
  if (status < 400) return { code: 'broken', retryable: false }
  return { code: 'refused', retryable: false }
}

function readErrorBody(body: string): SaidError {
  const text = body.trim()
  if (text === '') return { message: '', type: '', code: null }
  if (/^<(!doctype|html|\?xml)/i.test(text)) {
    const title = /<title[^>]*>([^<]{0,200})/i.exec(text)?.[1]?.trim() ?? ''
    return {
      message: `an HTML page${title === '' ? '' : ` ("${title}")`}, not a model's answer`,
      type: '',
      code: null,
    }
  }
  try {
    return readErrorValue(JSON.parse(text))
  } catch {
    return { message: text, type: '', code: null }
  }
}

function readErrorValue(value: unknown): SaidError {
  if (typeof value === 'string') return { message: value, type: '', code: null }
  if (!isRecord(value)) return { message: '', type: '', code: null }
  if (isRecord(value.error)) return readErrorValue(value.error)
  const title = firstText(value.title, value.error, value.reason)
  const detail = firstText(value.message, value.detail)
  const message = [title, detail].filter((part) => part !== '').join(': ')
  return { message, type: firstText(value.type), code: value.code ?? value.status ?? null }
}

function firstText(...values: unknown[]): string {
  for (const value of values) if (typeof value === 'string' && value.trim() !== '') return value.trim()
  return ''
}

function parseRetryAfter(header: string | null, nowMs: number): number | null {
  if (header === null || header.trim() === '') return null
  const seconds = Number(header)
  const waitMs = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header) - nowMs
  return Number.isFinite(waitMs) ? Math.max(0, Math.min(waitMs, 10 * 60_000)) : null
}

function cutMessage(message: string): string {
  const flat = message.replaceAll(/\s+/g, ' ').trim().toWellFormed()
  return flat.length <= messageMaxChars ? flat : `${flat.slice(0, messageMaxChars - 1)}…`
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
