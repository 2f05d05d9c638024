/** The gateway's own words for what it refuses or cannot do, and the one JSON form in which the guest gets any error. */

/** Codes that the gateway itself gives; those of an upstream are kept beside them as they come. */
export const gatewayErrorCodes = [
  /** Not the model route, and there is no policy that would allow it. */
  'egress_denied',
  'not_found',
  'method_not_allowed',
  'invalid_request',
  'request_too_large',
  /** What the run may spend is spent; asking again cannot help. */
  'limit_requests',
  'limit_tokens',
  'limit_cost',
  /** The server takes requests for the model again only after a long time, which the message names. */
  'limit_model',
  /** Too many requests of this run are open at once. */
  'limit_concurrency',
  /** A hook of the user said no; asking again cannot help. */
  'hook_denied',
  /** The run has proposed as many notes as it may. */
  'limit_notes',
  'upstream_unreachable',
  'upstream_timeout',
  'upstream_redirect',
  'upstream_broken',
  'upstream_pending',
  /** The turn at the provider did not come in time. */
  'upstream_busy',
  'response_too_large',
  /** The server's certificate is not trusted; nothing was sent. */
  'upstream_untrusted',
  /** Neither HTML, JSON nor text, or not to be read. */
  'unsupported_content',
  /** A placeholder of a secret that this request may not carry; nothing was sent. */
  'secret_refused',
  /** The server refused a token, which the host has renewed: the same request can succeed now. */
  'token_renewed',
  /** The user has not set up what was asked for. */
  'not_configured',
  /** The run repeats a recording, which has no answer for this. */
  'not_recorded',
  'closed',
] as const
export type GatewayErrorCode = (typeof gatewayErrorCodes)[number]

/** An error as the guest gets it: a status and the body `{"error":{message,type,code}}`. */
export interface WireError {
  readonly status: number
  /** For a model and for people: what happened and what to do next. */
  readonly message: string
  /** `gateway_error`, or the upstream's word. */
  readonly type: string
  readonly code: string
  /** Milliseconds until a retry can succeed. Absent: unknown. */
  readonly retryAfterMs?: number | undefined
}

/** Longest message that is passed on, in characters. */
const messageMaxChars = 2_000

const statusOf: Record<GatewayErrorCode, number> = {
  egress_denied: 403,
  not_found: 404,
  method_not_allowed: 405,
  invalid_request: 400,
  request_too_large: 413,
  limit_requests: 429,
  limit_tokens: 429,
  limit_cost: 429,
  limit_model: 429,
  limit_concurrency: 429,
  hook_denied: 403,
  // 403: asking again cannot help.
  limit_notes: 403,
  upstream_unreachable: 502,
  upstream_timeout: 504,
  // 421 and 413: asking again cannot help.
  upstream_redirect: 421,
  upstream_broken: 502,
  upstream_pending: 503,
  upstream_busy: 503,
  response_too_large: 413,
  upstream_untrusted: 421,
  unsupported_content: 415,
  secret_refused: 403,
  token_renewed: 409,
  not_configured: 400,
  // 400: asking again cannot help.
  not_recorded: 400,
  closed: 503,
}

/** An error of the gateway's own. */
export function gatewayError(code: GatewayErrorCode, message: string): WireError {
  return { status: statusOf[code], message: boundMessage(message), type: 'gateway_error', code }
}

/** The JSON body for an error; control characters stay as JSON escapes. */
export function errorBody(error: WireError): string {
  return JSON.stringify({ error: { message: error.message, type: error.type, code: error.code } })
}

/** `text` cut at the bound of a message, with a mark where it was cut. */
export function boundMessage(text: string): string {
  const whole = text.toWellFormed()
  return whole.length <= messageMaxChars ? whole : `${whole.slice(0, messageMaxChars - 2).toWellFormed()} …`
}
