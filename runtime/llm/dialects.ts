/**
 * A failure out of what a server says: its status first, then the few words that mean more than their status. Reads OpenAI's
 * and vLLM's `error`, problem+json, lists, plain text, HTML pages, and the gateway's own codes.
 */

import { type ModelError, type ModelErrorCode, modelError } from './errors.ts'
import { isRecord } from './json-schema.ts'

/** What a status means when no word says otherwise; others by their hundred. */
export const statusCodes: Readonly<Record<number, ModelErrorCode>> = {
  202: 'pending',
  400: 'invalid_request',
  401: 'unauthorized',
  402: 'payment_required',
  403: 'forbidden',
  404: 'not_found',
  408: 'timed_out',
  409: 'conflict',
  410: 'gone',
  413: 'request_too_large',
  422: 'unprocessable',
  425: 'conflict',
  429: 'rate_limited',
  500: 'server_error',
  501: 'unsupported',
  502: 'bad_gateway',
  503: 'overloaded',
  504: 'timed_out',
  505: 'unsupported',
  520: 'bad_gateway',
  522: 'timed_out',
  524: 'timed_out',
  529: 'overloaded',
}

/** The gateway's words (`type` is `gateway_error`); the status says enough for the rest of them. */
export const gatewayCodes: Readonly<Record<string, ModelErrorCode>> = {
  limit_tokens: 'limit_tokens',
  limit_requests: 'limit_requests',
  limit_cost: 'limit_cost',
  hook_denied: 'hook_denied',
  limit_concurrency: 'rate_limited',
  request_too_large: 'request_too_large',
  response_too_large: 'answer_too_large',
  upstream_unreachable: 'bad_gateway',
  upstream_timeout: 'timed_out',
  upstream_broken: 'truncated',
  upstream_pending: 'pending',
  upstream_busy: 'rate_limited',
  upstream_redirect: 'refused',
  upstream_untrusted: 'refused',
  not_recorded: 'refused',
  closed: 'closed',
}

/** Words of `type` and `code` in errors of providers. */
const providerCodes: Readonly<Record<string, ModelErrorCode>> = {
  rate_limit_error: 'rate_limited',
  rate_limit_exceeded: 'rate_limited',
  insufficient_quota: 'payment_required',
  authentication_error: 'unauthorized',
  invalid_api_key: 'unauthorized',
  permission_error: 'forbidden',
  not_found_error: 'not_found',
  model_not_found: 'not_found',
  invalid_request_error: 'invalid_request',
  BadRequestError: 'invalid_request',
  context_length_exceeded: 'context_exceeded',
  exceed_context_size_error: 'context_exceeded',
  overloaded_error: 'overloaded',
  ResourceExhausted: 'overloaded',
}

/** The failure that an answer other than 200 means. `retryAfter` is that header, seconds or a date. */
export function errorFromResponse(
  status: number,
  body: string,
  retryAfter: string | null,
  nowMs: number = Date.now(),
): ModelError {
  const said = readErrorBody(body)
  const text = said.message === '' ? `the model's server answered ${status} without a reason` : said.message
  const code = classify(status, said)
  return modelError(code, `${status}: ${text}`, status, parseRetryAfter(retryAfter, nowMs))
}

/** The failure that an error object within an answer of status 200 means. */
export function errorFromStream(error: unknown): ModelError {
  const said = readErrorValue(error)
  const text = said.message === '' ? 'the model reported an error without words' : said.message
  return modelError(classify(statusWithin(said), said), `in the answer: ${text}`)
}

interface SaidError {
  readonly message: string
  readonly type: string
  readonly code: string
}

function statusWithin({ code }: SaidError): number | null {
  const status = Number(code)
  return Number.isInteger(status) && status >= 400 && status < 600 ? status : null
}

function classify(status: number | null, said: SaidError): ModelErrorCode {
  const { type, code, message } = said
  if (type === 'gateway_error') {
    const known = Object.hasOwn(gatewayCodes, code) ? gatewayCodes[code] : undefined
    if (known !== undefined) return known
  }
  if (/DEGRADED|ResourceExhausted|total request limit|overloaded/i.test(`${type} ${code} ${message}`))
    return 'overloaded'
  if (status === null) return fromWords(said) ?? 'server_error'
  if (status === 429)
    return /quota|credits|billing/i.test(`${type} ${code} ${message}`) ? 'payment_required' : 'rate_limited'
  if (status === 400 || status === 422 || status === 501) {
    const form = refusedForm(message)
    if (form !== null) return form
    if (isContextError(said)) return 'context_exceeded'
  }
  const known = Object.hasOwn(statusCodes, status) ? statusCodes[status] : undefined
  if (known !== undefined) return known
  if (status >= 500) return 'server_error'
  return status >= 400 ? 'refused' : 'not_a_model'
}

function fromWords({ type, code }: SaidError): ModelErrorCode | undefined {
  for (const word of [code, type]) if (Object.hasOwn(providerCodes, word)) return providerCodes[word]
  return undefined
}

/** Whether what was refused is that the answer be streamed, or that it be not. */
function refusedForm(message: string): 'stream_refused' | 'stream_required' | null {
  if (!/\bstream(ing|ed|s)?\b/i.test(message) || /stream_options|include_usage/i.test(message)) return null
  if (
    /only\b.{0,40}\bstream|stream\w{0,5}\b.{0,40}\b(must be (set to )?true|is required)|non-?stream/i.test(
      message,
    )
  )
    return 'stream_required'
  const refusal =
    /not (supported|support|allowed|permitted|available|implemented|enabled)|n't support|unsupported|must be (set to )?false|disabled|extra (inputs|fields)|unknown|unrecogni[sz]ed/i
  return refusal.test(message) ? 'stream_refused' : null
}

function isContextError(said: SaidError): boolean {
  if (fromWords(said) === 'context_exceeded') return true
  return /(context|prompt|input)\b.{0,40}\b(length|size|window|tokens?)\b.{0,80}\bexceed|exceed\w{0,5}\b.{0,60}\bcontext|maximum context length|too many tokens|prompt is too long/i.test(
    said.message,
  )
}

/** Characters of a text that are read for its words. */
const wordsMaxChars = 4_000

function readErrorBody(body: string): SaidError {
  const text = body.trim()
  if (text === '') return { message: '', type: '', code: '' }
  if (isHtml(text)) return { message: describePage(text), type: '', code: '' }
  try {
    return readErrorValue(JSON.parse(text))
  } catch {
    return { message: text.slice(0, wordsMaxChars), type: '', code: '' }
  }
}

/** Whether text that stands for an answer is a web page. */
export function isHtml(text: string): boolean {
  return /^\s*<(!doctype|html|head|body|\?xml)/i.test(text)
}

/** Names a web page by its title. */
export function describePage(text: string): string {
  const title = /<title[^>]*>([^<]{0,200})/i.exec(text.slice(0, wordsMaxChars))?.[1]?.trim() ?? ''
  return `an HTML page${title === '' ? '' : ` ("${title}")`}, not a model's answer; check the address of the model's server`
}

function readErrorValue(value: unknown): SaidError {
  if (typeof value === 'string') return { message: value.slice(0, wordsMaxChars), type: '', code: '' }
  if (Array.isArray(value) && isRecord(value[0])) return readErrorValue(value[0])
  if (!isRecord(value)) return { message: '', type: '', code: '' }
  if (isRecord(value.error)) return readErrorValue(value.error)
  const title = firstText(value.title, value.error, value.reason)
  const detail = firstText(value.message, value.detail)
  const message = [title, detail].filter((part) => part !== '').join(': ')
  return { message, type: firstText(value.type), code: word(value.code ?? value.status) }
}

function firstText(...values: unknown[]): string {
  for (const value of values)
    if (typeof value === 'string' && value.trim() !== '') return value.trim().slice(0, wordsMaxChars)
  return ''
}

function word(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, 100) : typeof value === 'number' ? String(value) : ''
}

function parseRetryAfter(header: string | null, nowMs: number): number | null {
  if (header === null || header.trim() === '') return null
  const seconds = Number(header)
  const waitMs = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header) - nowMs
  return Number.isFinite(waitMs) ? Math.max(0, Math.min(waitMs, 10 * 60_000)) : null
}
