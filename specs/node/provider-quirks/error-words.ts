/**
 * What codes, statuses and phrases of model providers mean: a closed list of failures and the tables that lead to them.
 * From the providers' documentation and reports; `provider-error.ts` applies them.
 */

export type ProviderFailure =
  | 'invalid_request'
  | 'context_exceeded'
  | 'unauthorized'
  | 'payment_required'
  | 'forbidden'
  | 'not_found'
  | 'gone'
  | 'request_too_large'
  | 'unprocessable'
  | 'refused'
  | 'rate_limited'
  | 'overloaded'
  | 'pending'
  | 'timed_out'
  | 'conflict'
  | 'server_error'
  | 'bad_gateway'
  | 'unsupported'
  | 'not_a_model'

/** Meaning of an HTTP status without a more specific code; other statuses by their hundred. */
export const statusFailures: Readonly<Record<number, ProviderFailure>> = {
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

/** Values of `code`, `type` and `status`, compared by letters and digits alone. */
export const exactWords: Readonly<Partial<Record<ProviderFailure, readonly string[]>>> = {
  context_exceeded: [
    'context_length_exceeded',
    'exceed_context_size_error',
    'context_window_exceeded',
    'ContextWindowExceededError',
    'model_context_window_exceeded',
    'context_length_exceeded_error',
  ],
  payment_required: [
    'insufficient_quota',
    'insufficient_balance',
    'insufficient_credits',
    'billing_error',
    'billing_hard_limit_reached',
    'billing_not_active',
    'exceeded_current_quota_error',
    'payment_required',
    'Arrearage',
  ],
  rate_limited: [
    'rate_limit_error',
    'rate_limit_exceeded',
    'rate_limit_reached_error',
    'rate_limit',
    'rate_limited',
    'RateLimitReached',
    'too_many_requests',
    'RESOURCE_EXHAUSTED',
    'ThrottlingException',
    'Throttling',
    'Throttling.RateQuota',
    'Throttling.AllocationQuota',
    'limit_requests',
  ],
  overloaded: [
    'overloaded_error',
    'overloaded',
    'engine_overloaded_error',
    'ServiceUnavailableException',
    'service_unavailable',
    'service_unavailable_error',
    'UNAVAILABLE',
    'ModelNotReadyException',
    'slow_down',
    'capacity_exceeded',
  ],
  unauthorized: [
    'authentication_error',
    'invalid_api_key',
    'invalid_authentication_error',
    'incorrect_api_key_error',
    'UNAUTHENTICATED',
    'unauthorized',
  ],
  forbidden: ['permission_error', 'PERMISSION_DENIED', 'permission_denied_error', 'AccessDeniedException'],
  not_found: ['not_found_error', 'NOT_FOUND', 'model_not_found', 'ResourceNotFoundException'],
  request_too_large: ['request_too_large', 'payload_too_large'],
  timed_out: ['timeout_error', 'DEADLINE_EXCEEDED', 'ModelTimeoutException', 'request_timeout'],
  refused: ['content_filter', 'content_policy_violation'],
  conflict: ['conflict_error', 'ABORTED'],
  unsupported: ['UNIMPLEMENTED'],
}

/** Ambiguous codes: the message takes precedence. */
export const broadWords: Readonly<Partial<Record<ProviderFailure, readonly string[]>>> = {
  invalid_request: [
    'invalid_request_error',
    'BadRequestError',
    'bad_request',
    'INVALID_ARGUMENT',
    'FAILED_PRECONDITION',
    'ValidationException',
  ],
  server_error: ['api_error', 'server_error', 'INTERNAL', 'internal_error', 'internal_server_error'],
}

/** The conversation is too long; a shorter one would fit. */
export const contextPhrases = [
  /\b(?:prompt|input|conversation)\b.{0,20} too long|\bprompt too long/i,
  /\bmaximum (?:context|prompt|model|input|allowed input) length/i,
  /\bcontext[ _-]?(?:length|window|size|limit)\b.{0,80}\bexceed|\bexceed\w{0,5}\b.{0,60}\bcontext\b/i,
  /\b(?:longer|larger|greater) than the (?:model'?s |maximum )?(?:context|model) length/i,
  /\b(?:prompt|input) (?:token count|tokens?|length|size)\b.{0,80}\bexceed/i,
  /\bexceeds? the (?:maximum number of tokens|model token limit)|\bexceeded model token limit|\btoken limit exceeded/i,
  /\btoo many tokens\b/i,
  /\breduce the length of (?:the|your) (?:messages|prompt|input)/i,
  /\brange of input length should be/i,
  /\bprompt (?:exceeds max length|contains \d+ tokens\b.{0,60}\btoo large)/i,
  /\bcontext length of only \d+|\bcontext the overflows/i,
  /`?inputs`? tokens \+ `?max_new_tokens`? must be <=/i,
]
/** A request over the per-minute allowance: waiting does not help, a shorter conversation does. */
export const tooLargeForRate = /\brequest too large for\b|\binput or output tokens must be reduced/i
export const ratePhrases =
  /\brate[ _-]?limit|\btoo many requests|\b(?:requests?|tokens?) per (?:second|minute|hour|day)\b|\bthrottl|\bquota exceeded for\b|\b(?:retry|try again) (?:in|after) \d/i
export const paymentPhrases =
  /\binsufficient (?:quota|balance|credits?|funds)|\bcredit balance is too low|\byour current quota\b|\bout of credits|\bcredits? (?:are |is |have |has )?(?:been )?(?:expired|exhausted|depleted)|\bbilling hard limit|\brequires more credits|\bspend(?:ing)? limit/i
export const overloadPhrases =
  /\bDEGRADED\b|\bResourceExhausted\b|total request limit|overloaded|\b(?:over|at) capacity|\bhigh demand|\b(?:temporarily|currently) unavailable|\bserver is busy|\bmodel is (?:currently )?loading/i
/** These apply whatever the status: the backend is down, and the request was valid. */
export const overloadWords = /\bDEGRADED\b|\bResourceExhausted\b|total request limit|overloaded/i
export const timeoutPhrases = /\btimed? ?out\b|\bdeadline exceeded/i
export const keyPhrases = /\b(?:invalid|incorrect) (?:x-)?api[- ]?key|\bapi key not valid/i
