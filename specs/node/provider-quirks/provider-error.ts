/**
 * Reads a model provider's error in any form: OpenAI's `error`, vLLM's flat form, Anthropic's events, Google's status
 * words, problem+json, MiniMax's `base_resp`, plain text, a proxy's HTML page. Holds no state and trusts no field.
 */
import {
  broadWords,
  contextPhrases,
  exactWords,
  keyPhrases,
  overloadPhrases,
  overloadWords,
  type ProviderFailure,
  paymentPhrases,
  ratePhrases,
  statusFailures,
  timeoutPhrases,
  tooLargeForRate,
} from './error-words.ts'

/** The fields of an error. Missing text is empty. */
export interface ProviderError {
  readonly message: string
  readonly type: string
  readonly code: string
  /** Google's status, such as `RESOURCE_EXHAUSTED`. */
  readonly status: string
  /** The requested delay; null when there is none. */
  readonly retryAfterMs: number | null
}

const exactFailures = indexWords(exactWords)
const broadFailures = indexWords(broadWords)

/** Maximum characters of a text that are analyzed. */
const wordsMaxChars = 4_000
/** Maximum characters of a web page that are analyzed. */
const pageMaxChars = 8_192
const pageTags = /<\s*(!doctype|html|head|body|title)/i
const retryMaxMs = 24 * 3_600_000
const headerMaxMs = 366 * 24 * 3_600_000
const depthMax = 6

/** Parses an error, as text or as JSON of any dialect. */
export function readProviderError(value: unknown, depth = 0): ProviderError {
  if (typeof value === 'string') return said({ message: value.slice(0, wordsMaxChars) })
  if (depth > depthMax) return said({})
  if (Array.isArray(value)) return readProviderError(isRecord(value[0]) ? value[0] : {}, depth + 1)
  if (!isRecord(value)) return said({})
  if (isRecord(value.error)) return readProviderError(value.error, depth + 1)
  if (isRecord(value.base_resp)) {
    const { status_code: code, status_msg: message } = value.base_resp
    return said({ message: firstText(message), code: word(code) })
  }
  const title = firstText(value.title, value.error, value.reason)
  const detail = firstText(value.message, value.detail) || listText(value.detail)
  const message = [title, detail].filter((part) => part !== '').join(': ')
  const { code, status } = value
  return said({
    message,
    type: firstText(value.type),
    code: word(code ?? status),
    status: typeof status === 'string' ? status.slice(0, 100) : '',
    retryAfterMs: readRetryInfo(value.details) ?? readPause(message),
  })
}

/** Parses the body of an answer that is an error, from its first bytes as text. */
export function readErrorBody(body: string): ProviderError {
  const value = parseJson(body)
  const text =
    value === undefined && pageTags.test(body.slice(0, pageMaxChars)) ? describePage(body) : body.trim()
  const error = readProviderError(value ?? text)
  return error.message === '' ? { ...error, message: text.slice(0, 1_000) } : error
}

/** Whether the text is a web page instead of a model's answer. */
export function isHtml(text: string): boolean {
  return /^\s*<(!doctype|html|head|body|\?xml)/i.test(text)
}

/** Identifies a web page by its title, else by its text. For people only, so tags are removed roughly. */
export function describePage(text: string): string {
  const page = text.slice(0, pageMaxChars)
  const title = /<title[^>]*>([^<]*)/i.exec(page)?.[1]?.trim() ?? ''
  const words = page.replaceAll(/<(script|style)[\s\S]*?(<\/\1>|$)/gi, ' ').replaceAll(/<[^>]*>?/g, ' ')
  const shown = (title === '' ? words : title).replaceAll(/\s+/g, ' ').trim().slice(0, 300)
  const named = shown === '' ? '' : ` ("${shown}")`
  return `an HTML page${named}, not a model's answer; check the address of the model's server`
}

/** The delay in a header Retry-After, seconds or a date (RFC 9110 10.2.3), at most a year; null without one. */
export function parseRetryAfter(
  header: string | null | undefined,
  nowMs: number = Date.now(),
): number | null {
  if (header === null || header === undefined || header.trim() === '') return null
  const seconds = Number(header)
  const waitMs = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header) - nowMs
  return Number.isFinite(waitMs) ? Math.min(Math.max(0, waitMs), headerMaxMs) : null
}

/** Whether an error rejects streaming, or the absence of streaming; null for neither. */
export function readStreamRejection(message: string): 'stream_refused' | 'stream_required' | null {
  if (!/\bstream(ing|ed|s)?\b/i.test(message) || /stream_options|include_usage/i.test(message)) return null
  if (
    /only\b.{0,40}\bstream|stream\w{0,5}\b.{0,40}\b(must be (set to )?true|is required)|non-?stream/i.test(
      message,
    )
  )
    return 'stream_required'
  const rejected =
    /not (supported|support|allowed|permitted|available|implemented|enabled)|n't support|unsupported|must be (set to )?false|disabled|extra (inputs|fields)|unknown|unrecogni[sz]ed/i
  return rejected.test(message) ? 'stream_refused' : null
}

/** The error in a chunk or complete answer with status 200; undefined without one. */
export function errorWithin(chunk: unknown): unknown {
  if (!isRecord(chunk)) return undefined
  if (chunk.object === 'error' || (chunk.type === 'error' && chunk.error === undefined)) return chunk
  const { error, base_resp: base } = chunk
  if (typeof error === 'string') return error === '' ? undefined : error
  if (isRecord(error)) return Object.keys(error).length > 0 ? error : undefined
  const isRefused = isRecord(base) && typeof base.status_code === 'number' && base.status_code !== 0
  return isRefused ? chunk : undefined
}

/**
 * Classifies the error.
 * @param status of the HTTP answer; null for an error inside an answer of status 200
 */
export function classifyProviderError(error: ProviderError, status: number | null): ProviderFailure {
  const { message, type, code } = error
  if (overloadWords.test(`${type} ${code} ${message}`)) return 'overloaded'
  const known = status ?? statusWithin(code)
  if (known === null) return fromWords(error)
  if (known === 429) return classifyTooMany(error)
  const mayBeLong = known === 400 || known === 413 || known === 422 || known === 501 || known >= 500
  if (mayBeLong && isTooLong(error)) return 'context_exceeded'
  if (known === 400 && paymentPhrases.test(message)) return 'payment_required'
  // A proxy's 500 often wraps the provider's error.
  if (known === 500 && (exactOf(error) ?? phraseOf(message)) === 'rate_limited') return 'rate_limited'
  const byStatus = Object.hasOwn(statusFailures, known) ? statusFailures[known] : undefined
  if (byStatus !== undefined) return byStatus
  if (known >= 500) return 'server_error'
  return known >= 400 ? 'refused' : 'not_a_model'
}

function classifyTooMany(error: ProviderError): ProviderFailure {
  const { message, retryAfterMs } = error
  if (tooLargeForRate.test(message)) return 'context_exceeded'
  const exact = exactOf(error)
  if (exact === 'payment_required' || exact === 'rate_limited') return exact
  // A quota that resets soon is a rate limit; one without a time is an exhausted account.
  if (retryAfterMs !== null) return 'rate_limited'
  const isSpent = paymentPhrases.test(message) || /\b(?:quota|credits?|billing)\b/i.test(message)
  return isSpent && !/\bper (?:second|minute|hour|day)\b/i.test(message) ? 'payment_required' : 'rate_limited'
}

function fromWords(error: ProviderError): ProviderFailure {
  if (tooLargeForRate.test(error.message)) return 'context_exceeded'
  const exact = exactOf(error)
  return (
    exact ??
    (isTooLong(error) ? 'context_exceeded' : (phraseOf(error.message) ?? broadOf(error) ?? 'server_error'))
  )
}

function phraseOf(message: string): ProviderFailure | null {
  if (paymentPhrases.test(message) && readPause(message) === null) return 'payment_required'
  if (ratePhrases.test(message)) return 'rate_limited'
  if (overloadPhrases.test(message)) return 'overloaded'
  if (keyPhrases.test(message)) return 'unauthorized'
  return timeoutPhrases.test(message) ? 'timed_out' : null
}

function isTooLong(error: ProviderError): boolean {
  if (exactOf(error) === 'context_exceeded' || tooLargeForRate.test(error.message)) return true
  return !ratePhrases.test(error.message) && contextPhrases.some((phrase) => phrase.test(error.message))
}

function exactOf(error: ProviderError): ProviderFailure | null {
  return lookUp(exactFailures, error)
}

function broadOf(error: ProviderError): ProviderFailure | null {
  return lookUp(broadFailures, error)
}

function lookUp(
  words: ReadonlyMap<string, ProviderFailure>,
  { code, type, status }: ProviderError,
): ProviderFailure | null {
  for (const one of [code, type, status]) {
    const known = words.get(plainWord(one))
    if (known !== undefined) return known
  }
  return null
}

function indexWords(
  table: Readonly<Partial<Record<ProviderFailure, readonly string[]>>>,
): ReadonlyMap<string, ProviderFailure> {
  const entries = Object.entries(table) as [ProviderFailure, readonly string[]][]
  return new Map(
    entries.flatMap(([failure, words]) => words.map((one) => [plainWord(one), failure] as const)),
  )
}

function plainWord(text: string): string {
  return text.toLowerCase().replaceAll(/[^a-z0-9]/g, '')
}

function statusWithin(code: string): number | null {
  const status = Number(code)
  return Number.isInteger(status) && status >= 400 && status < 600 ? status : null
}

/** Google's retry delay: `{ "@type": "…/google.rpc.RetryInfo", "retryDelay": "34.07s" }`. */
function readRetryInfo(details: unknown): number | null {
  if (!Array.isArray(details)) return null
  for (const detail of details.slice(0, 20)) {
    if (!isRecord(detail) || typeof detail.retryDelay !== 'string') continue
    const seconds = /^(\d{1,9}(?:\.\d{1,9})?)s$/.exec(detail.retryDelay)?.[1]
    if (seconds !== undefined) return bounded(Number(seconds) * 1_000)
  }
  return null
}

/** A delay in text: "Please try again in 1m6.2s", "retry in 34.07s", "try again in 20ms", "try again in 5 hours". */
function readPause(message: string): number | null {
  const found =
    /\b(?:retry|try again) (?:in|after) (?:(\d{1,4}) ?h(?:(?:ou)?rs?)? ?)?(?:(\d{1,4}) ?m(?:in(?:ute)?s?)?(?!s) ?)?(?:(\d{1,9}(?:\.\d{1,9})?) ?(ms|s(?:ec(?:ond)?s?)?)\b)?/i.exec(
      message,
    )
  if (found === null) return null
  const [, hours, minutes, amount, unit] = found
  if (hours === undefined && minutes === undefined && amount === undefined) return null
  const rest = Number(amount ?? 0) * (unit?.toLowerCase() === 'ms' ? 1 : 1_000)
  return bounded((Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * 60_000 + rest)
}

function bounded(ms: number): number {
  return Math.min(Math.ceil(ms), retryMaxMs)
}

function said(fields: Partial<ProviderError>): ProviderError {
  const { message = '', type = '', code = '', status = '' } = fields
  return { message, type, code, status, retryAfterMs: fields.retryAfterMs ?? readPause(message) }
}

function firstText(...values: unknown[]): string {
  for (const value of values)
    if (typeof value === 'string' && value.trim() !== '') return value.trim().slice(0, wordsMaxChars)
  return ''
}

/** A list of problems, as FastAPI gives it. */
function listText(value: unknown): string {
  return typeof value === 'object' && value !== null ? JSON.stringify(value).slice(0, wordsMaxChars) : ''
}

function word(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, 100) : typeof value === 'number' ? String(value) : ''
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Undefined for text that is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
