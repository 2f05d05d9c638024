/**
 * What can go wrong with a model, as one value. Each code has one row in {@link modelFailures}: how often a request is made,
 * after which pause, and the reason with which a run ends when it is final. How a failure is read off an answer is in `dialects.ts`.
 */
import type { RunReason } from '#specs/protocol/error.ts'

interface Rule {
  /** Requests for one turn, the first included; 1 where asking again cannot help. */
  readonly attempts: number
  /** The first pause; doubled for each further one. */
  readonly firstDelayMs: number
  readonly reason: RunReason
}

const never = (reason: RunReason): Rule => ({ attempts: 1, firstDelayMs: 0, reason })
const often = (reason: RunReason, firstDelayMs = 1_000): Rule => ({ attempts: 5, firstDelayMs, reason })

export const modelFailures = {
  /** No connection, or one that broke before an answer. */
  unreachable: often('model_unreachable'),
  /** Silence beyond the time-out, here or at the provider (408, 504). */
  timed_out: { attempts: 3, firstDelayMs: 1_000, reason: 'model_unreachable' },
  /** The provider put the request into a queue (202). */
  pending: often('model_unreachable', 2_000),
  /** 400: this request will never be right. */
  invalid_request: never('model_refused'),
  /** The conversation is longer than the model's context. */
  context_exceeded: never('model_refused'),
  /** 401: no key, or a wrong one. */
  unauthorized: never('model_refused'),
  /** 402, or a quota that is spent. */
  payment_required: never('model_refused'),
  /** 403: the key may not use this model. */
  forbidden: never('model_refused'),
  /** 404: no such model for this account, or a wrong address. */
  not_found: never('model_refused'),
  /** 410: the model was retired. */
  gone: never('model_refused'),
  /** 413: the request is too large. */
  request_too_large: never('model_refused'),
  /** 422: a field that the provider does not take. */
  unprocessable: never('model_refused'),
  /** Other statuses below 500. */
  refused: never('model_refused'),
  rate_limited: often('model_unreachable', 2_000),
  /** 409, 425: in conflict with another request. */
  conflict: often('model_unreachable'),
  /** 500: may be an accident, may come of this very request. */
  server_error: { attempts: 3, firstDelayMs: 1_000, reason: 'model_unreachable' },
  /** 502 and the like: a proxy that did not reach the model. */
  bad_gateway: often('model_unreachable'),
  /** 503, 529, and what providers say in its place. */
  overloaded: often('model_unreachable', 2_000),
  /** 501, 505. */
  unsupported: never('model_refused'),

  /** The server takes no streamed requests, or only such: the other form is tried at once. */
  stream_refused: never('model_refused'),
  stream_required: never('model_refused'),
  /** An answer that is not the protocol's. */
  broken: often('model_broken'),
  /** An answer that stopped without saying that it was finished. */
  truncated: often('model_broken'),
  /** A whole answer with nothing in it. */
  empty: often('model_broken'),
  /** Arguments of a call that stop in the middle of an answer said to be finished. */
  cut_arguments: { attempts: 3, firstDelayMs: 0, reason: 'model_broken' },
  /** A call without the name of its tool. */
  nameless_call: { attempts: 3, firstDelayMs: 0, reason: 'model_broken' },
  /** A web page, or JSON of another kind: no model lives at this address. */
  not_a_model: never('model_broken'),
  answer_too_large: never('model_broken'),

  /** The run's budgets, kept by the host. */
  limit_tokens: never('limit_tokens'),
  limit_requests: never('limit_requests'),
  limit_cost: never('limit_cost'),
  /** A hook of the host's user said no to the request, or to its answer. */
  hook_denied: never('denied'),
  /** The host has closed the run's way to the model. */
  closed: never('model_unreachable'),
  cancelled: never('cancelled'),
} as const satisfies Readonly<Record<string, Rule>>

export type ModelErrorCode = keyof typeof modelFailures

export interface ModelError {
  readonly code: ModelErrorCode
  /** HTTP status; null when there was no answer, or the failure lay within a stream. */
  readonly status: number | null
  readonly message: string
  /** Whether the same request may succeed later. */
  readonly retryable: boolean
  /** The server's own wish for a pause; null when it gave none. */
  readonly retryAfterMs: number | null
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

/** The reason with which a run ends when this failure is final. */
export function reasonOf(error: ModelError): RunReason {
  return modelFailures[error.code].reason
}

function cutMessage(message: string): string {
  const flat = message.replaceAll(/\s+/g, ' ').trim().toWellFormed()
  return flat.length <= messageMaxChars ? flat : `${flat.slice(0, messageMaxChars - 1)}…`
}
