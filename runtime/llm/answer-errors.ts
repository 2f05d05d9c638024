/**
 * Turns a server's error into a failure: as `specs/node/provider-quirks/` reads it, with the gateway's own codes and
 * refusals to stream or not to stream.
 */

import {
  classifyProviderError,
  type ProviderError,
  parseRetryAfter,
  readErrorBody,
  readProviderError,
  readStreamRejection,
} from '#specs/node/provider-quirks/provider-error.ts'
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

const retryAfterMaxMs = 10 * 60_000

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
  const headerMs = parseRetryAfter(retryAfter, nowMs)
  const retryAfterMs = headerMs === null ? said.retryAfterMs : Math.min(headerMs, retryAfterMaxMs)
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
  return (mayBeForm ? readStreamRejection(message) : null) ?? failure
}
