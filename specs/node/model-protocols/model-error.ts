/**
 * Failures of a model request as one type. Each code has one row in {@link modelFailures}: number of requests, delay,
 * and the run's reason when it is final. A server's error is read as
 * `specs/node/provider-quirks/` does, with the gateway's own codes and refusals to stream or not to stream.
 */

import type { RunReason } from '../../protocol/error.ts'
import {
  classifyProviderError,
  type ProviderError,
  parseRetryAfter,
  readErrorBody,
  readProviderError,
  readStreamRejection,
} from '../provider-quirks/provider-error.ts'
import type { RequestRejection } from '../provider-quirks/rejection.ts'

interface Rule {
  /** Maximum requests per turn, including the first; 1 when a retry cannot help. */
  readonly attempts: number
  /** The first delay; doubles with each retry. */
  readonly firstDelayMs: number
  readonly reason: RunReason
}

const never = (reason: RunReason): Rule => ({ attempts: 1, firstDelayMs: 0, reason })
const often = (reason: RunReason, firstDelayMs = 1_000): Rule => ({ attempts: 5, firstDelayMs, reason })

export const modelFailures = {
  /** No connection, or one that broke before an answer. */
  unreachable: often('model_unreachable'),
  /** No data within the timeout, here or at the provider (408, 504). */
  timed_out: { attempts: 3, firstDelayMs: 1_000, reason: 'model_unreachable' },
  /** The provider queued the request (202). */
  pending: often('model_unreachable', 2_000),
  /** 400: no retry can succeed. */
  invalid_request: never('model_refused'),
  /** The conversation is longer than the model's context. */
  context_exceeded: never('model_refused'),
  /** 401: missing or invalid key. */
  unauthorized: never('model_refused'),
  /** 402, or an exhausted quota. */
  payment_required: never('model_refused'),
  /** 403: the key may not use this model. */
  forbidden: never('model_refused'),
  /** 404: the account has no such model, or the address is wrong. */
  not_found: never('model_refused'),
  /** 410: the model was retired. */
  gone: never('model_refused'),
  /** 413: the request is too large. */
  request_too_large: never('model_refused'),
  /** 422: a field that the provider rejects. */
  unprocessable: never('model_refused'),
  /** Other statuses below 500. */
  refused: never('model_refused'),
  rate_limited: often('model_unreachable', 2_000),
  /** 409, 425: conflicts with another request. */
  conflict: often('model_unreachable'),
  /** 500: transient, or caused by this request. */
  server_error: { attempts: 3, firstDelayMs: 1_000, reason: 'model_unreachable' },
  /** 502 and similar: a proxy did not reach the model. */
  bad_gateway: often('model_unreachable'),
  /** 503, 529, and equivalents. */
  overloaded: often('model_unreachable', 2_000),
  /** 501, 505. */
  unsupported: never('model_refused'),

  /** The server rejects streamed requests, or requires them: the other form is tried at once. */
  stream_refused: never('model_refused'),
  stream_required: never('model_refused'),
  /** An answer that violates the protocol. */
  broken: often('model_broken'),
  /** A truncated answer without an end marker. */
  truncated: often('model_broken'),
  /** A complete but empty answer. */
  empty: often('model_broken'),
  /** Truncated call arguments in an answer marked as finished. */
  cut_arguments: { attempts: 3, firstDelayMs: 0, reason: 'model_broken' },
  /** A call without a tool name. */
  nameless_call: { attempts: 3, firstDelayMs: 0, reason: 'model_broken' },
  /** A web page or other JSON: the address has no model server. */
  not_a_model: never('model_broken'),
  answer_too_large: never('model_broken'),

  /** The run's budgets, enforced by the host. */
  limit_tokens: never('limit_tokens'),
  limit_requests: never('limit_requests'),
  limit_cost: never('limit_cost'),
  /** The server takes requests again only after a long time: the host ends the run, which can be continued then. */
  limit_model: never('model_unreachable'),
  /** A hook of the host's user denied the request or its answer. */
  hook_denied: never('denied'),
  /** The host has closed the run's access to the model. */
  closed: never('model_unreachable'),
  cancelled: never('cancelled'),
} as const satisfies Readonly<Record<string, Rule>>

export type ModelErrorCode = keyof typeof modelFailures

export interface ModelError {
  readonly code: ModelErrorCode
  /** HTTP status; null without an answer, or when the failure was inside a stream. */
  readonly status: number | null
  readonly message: string
  /** Whether the same request may succeed later. */
  readonly retryable: boolean
  /** Delay requested by the server; null when it gave none. */
  readonly retryAfterMs: number | null
  /** What the server rejected of the request, if a changed one may succeed. */
  readonly rejection?: RequestRejection
}

const messageMaxChars = 1_000

export function modelError(
  code: ModelErrorCode,
  message: string,
  status: number | null = null,
  retryAfterMs: number | null = null,
): ModelError {
  const retryable = modelFailures[code].attempts > 1
  return { code, status, message: cutMessage(message), retryable, retryAfterMs }
}

/** The run's reason when this failure is final. */
export function reasonOf(error: ModelError): RunReason {
  return modelFailures[error.code].reason
}

function cutMessage(message: string): string {
  const flat = message.replaceAll(/\s+/g, ' ').trim().toWellFormed()
  return flat.length <= messageMaxChars ? flat : `${flat.slice(0, messageMaxChars - 1)}…`
}

/** The gateway's own codes (`type` is `gateway_error`); the status suffices for the others. */
export const gatewayCodes: Readonly<Record<string, ModelErrorCode>> = {
  limit_tokens: 'limit_tokens',
  limit_requests: 'limit_requests',
  limit_cost: 'limit_cost',
  hook_denied: 'hook_denied',
  limit_model: 'limit_model',
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
