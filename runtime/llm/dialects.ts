/**
 * Turns a server's answer into a failure. `specs/protocol/provider-failure.ts` defines the meaning of providers'
 * errors; this file adds the gateway's own codes, HTML pages, the header Retry-After, and refusals to stream or not
 * to stream.
 */

import {
  classifyProviderError,
  type ProviderError,
  readProviderError,
} from '#specs/protocol/provider-failure.ts'
import { type ModelError, type ModelErrorCode, modelError } from './errors.ts'

/** The gateway's own codes (`type` is `gateway_error`); the status suffices for the others. */
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

/** The failure of an answer with a status other than 200. `retryAfter` is that header, seconds or a date. */
export function errorFromResponse(
  status: number,
  body: string,
  retryAfter: string | null,
  nowMs: number = Date.now(),
): ModelError {
  const said = readErrorBody(body)
  const text = said.message === '' ? `the model's server answered ${status} without a reason` : said.message
  const code = classify(status, said)
  const retryAfterMs = parseRetryAfter(retryAfter, nowMs) ?? said.retryAfterMs
  return modelError(code, `${status}: ${text}`, status, retryAfterMs)
}

/** The failure of an error inside an answer with status 200. */
export function errorFromStream(error: unknown): ModelError {
  const said = readProviderError(error)
  const text = said.message === '' ? 'the model reported an error without words' : said.message
  return modelError(classify(null, said), `in the answer: ${text}`, null, said.retryAfterMs)
}

function classify(status: number | null, said: ProviderError): ModelErrorCode {
  const { type, code, message } = said
  if (type === 'gateway_error') {
    const known = Object.hasOwn(gatewayCodes, code) ? gatewayCodes[code] : undefined
    if (known !== undefined) return known
  }
  const failure = classifyProviderError(said, status)
  const mayBeForm = failure === 'invalid_request' || failure === 'unprocessable' || failure === 'unsupported'
  return (mayBeForm ? refusedForm(message) : null) ?? failure
}

/** Whether the server rejected streaming, or the absence of streaming. */
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

/** Maximum characters of a text that are analysed. */
const wordsMaxChars = 4_000

function readErrorBody(body: string): ProviderError {
  const text = body.trim()
  if (isHtml(text)) return readProviderError(describePage(text))
  try {
    return readProviderError(JSON.parse(text))
  } catch {
    return readProviderError(text)
  }
}

/** Whether the text is a web page instead of an answer. */
export function isHtml(text: string): boolean {
  return /^\s*<(!doctype|html|head|body|\?xml)/i.test(text)
}

/** Identifies a web page by its title. */
export function describePage(text: string): string {
  const title = /<title[^>]*>([^<]{0,200})/i.exec(text.slice(0, wordsMaxChars))?.[1]?.trim() ?? ''
  return `an HTML page${title === '' ? '' : ` ("${title}")`}, not a model's answer; check the address of the model's server`
}

function parseRetryAfter(header: string | null, nowMs: number): number | null {
  if (header === null || header.trim() === '') return null
  const seconds = Number(header)
  const waitMs = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header) - nowMs
  return Number.isFinite(waitMs) ? Math.max(0, Math.min(waitMs, 10 * 60_000)) : null
}
