/**
 * What a model provider's error means, whichever dialect it is in: OpenAI's `error`, vLLM's flat form, Anthropic's events,
 * Google's status words, problem+json, MiniMax's `base_resp`, plain text. One table for host and runtime. Holds no state and
 * trusts no field.
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
const exactWords: Readonly<Partial<Record<ProviderFailure, readonly string[]>>> = {
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
const broadWords: Readonly<Partial<Record<ProviderFailure, readonly string[]>>> = {
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
const contextPhrases = [
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
const tooLargeForRate = /\brequest too large for\b|\binput or output tokens must be reduced/i
const ratePhrases =
  /\brate[ _-]?limit|\btoo many requests|\b(?:requests?|tokens?) per (?:second|minute|hour|day)\b|\bthrottl|\bquota exceeded for\b|\b(?:retry|try again) (?:in|after) \d/i
const paymentPhrases =
  /\binsufficient (?:quota|balance|credits?|funds)|\bcredit balance is too low|\byour current quota\b|\bout of credits|\bcredits? (?:are |is |have |has )?(?:been )?(?:expired|exhausted|depleted)|\bbilling hard limit|\brequires more credits|\bspend(?:ing)? limit/i
const overloadPhrases =
  /\bDEGRADED\b|\bResourceExhausted\b|total request limit|overloaded|\b(?:over|at) capacity|\bhigh demand|\b(?:temporarily|currently) unavailable|\bserver is busy|\bmodel is (?:currently )?loading/i
/** These apply whatever the status: the backend is down, and the request was valid. */
const overloadWords = /\bDEGRADED\b|\bResourceExhausted\b|total request limit|overloaded/i
const timeoutPhrases = /\btimed? ?out\b|\bdeadline exceeded/i
const keyPhrases = /\b(?:invalid|incorrect) (?:x-)?api[- ]?key|\bapi key not valid/i

const exactFailures = indexWords(exactWords)
const broadFailures = indexWords(broadWords)

/** Maximum characters of a text that are analysed. */
const wordsMaxChars = 4_000
const retryMaxMs = 10 * 60_000
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

/** A delay in text: "Please try again in 1m6.2s", "retry in 34.07s", "try again in 20ms". */
function readPause(message: string): number | null {
  const found =
    /\b(?:retry|try again) (?:in|after) (?:(\d{1,4})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?) ?(ms|s(?:ec(?:ond)?s?)?)\b)?/i.exec(
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
