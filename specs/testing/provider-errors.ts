/**
 * Provider errors from documentation and user reports, each with its meaning. `status` is that of the HTTP answer;
 * null for an error inside a stream or an answer of status 200.
 */
import type { ProviderFailure } from '../node/provider-quirks/error-words.ts'
import { anthropic, contextErrors, google, openAi } from './context-errors.ts'

export interface ProviderErrorSample {
  readonly provider: string
  readonly status: number | null
  /** As JSON, or as text where it is a string. */
  readonly body: unknown
  readonly failure: ProviderFailure
  /** The requested delay; absent: none. */
  readonly retryAfterMs?: number
}

const retryInfo = (retryDelay: string) => [
  { '@type': 'type.googleapis.com/google.rpc.QuotaFailure', violations: [{ quotaId: 'PerMinute' }] },
  { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay },
]
const geminiQuota =
  'You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: generate_content_free_tier_requests, limit: 10'

function sample(
  provider: string,
  status: number | null,
  body: unknown,
  failure: ProviderFailure,
  retryAfterMs?: number,
): ProviderErrorSample {
  return { provider, status, body, failure, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) }
}

/** Temporary overload: a later request is accepted. */
const busy: readonly [
  provider: string,
  status: number,
  body: unknown,
  failure: ProviderFailure,
  retryAfterMs?: number,
][] = [
  [
    'OpenAI',
    429,
    openAi(
      'Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.',
      'tokens',
      'rate_limit_exceeded',
    ),
    'rate_limited',
    2_000,
  ],
  [
    'OpenAI',
    429,
    openAi(
      'Rate limit reached for requests per day. Please try again in 7m12s.',
      'requests',
      'rate_limit_exceeded',
    ),
    'rate_limited',
    432_000,
  ],
  [
    'NVIDIA',
    429,
    openAi('Rate limit exceeded, please try again in 5 hours.', 'requests', null),
    'rate_limited',
    5 * 3_600_000,
  ],
  [
    'OpenAI',
    503,
    openAi('That model is currently overloaded with other requests.', 'server_error', null),
    'overloaded',
  ],
  ['OpenAI', 503, openAi('Slow down', 'server_error', 'slow_down'), 'overloaded'],
  [
    'Azure',
    429,
    {
      error: {
        code: '429',
        message:
          'Requests have exceeded token rate limit of your current pricing tier. Please retry after 9 seconds.',
      },
    },
    'rate_limited',
    9_000,
  ],
  [
    'Anthropic',
    429,
    anthropic(
      'rate_limit_error',
      'This request would exceed your organization’s rate limit of 40,000 input tokens per minute.',
    ),
    'rate_limited',
  ],
  ['Anthropic', 529, anthropic('overloaded_error', 'Overloaded'), 'overloaded'],
  [
    'Google',
    429,
    google(429, 'RESOURCE_EXHAUSTED', `${geminiQuota}\nPlease retry in 34.074824224s.`, retryInfo('34s')),
    'rate_limited',
    34_000,
  ],
  [
    'Google',
    429,
    google(429, 'RESOURCE_EXHAUSTED', 'Resource has been exhausted (e.g. check quota).', retryInfo('1.5s')),
    'rate_limited',
    1_500,
  ],
  [
    'Google',
    503,
    google(503, 'UNAVAILABLE', 'The model is overloaded. Please try again later.'),
    'overloaded',
  ],
  [
    'xAI',
    429,
    {
      code: 'Some resource has been exhausted',
      error: 'Too many requests for team t. Your team’s rate limit is 8 requests per second.',
    },
    'rate_limited',
  ],
  [
    'Bedrock',
    429,
    {
      __type: 'ThrottlingException',
      type: 'ThrottlingException',
      message: 'Too many requests, please wait before trying again.',
    },
    'rate_limited',
  ],
  [
    'DashScope',
    429,
    openAi('Requests rate limit exceeded, please try again later.', 'limit_requests', 'limit_requests'),
    'rate_limited',
  ],
  [
    'Moonshot',
    429,
    openAi(
      'Your account reached max request per minute, please try again after 1 seconds',
      'rate_limit_reached_error',
      null,
    ),
    'rate_limited',
    1_000,
  ],
  [
    'Moonshot',
    429,
    openAi('The engine is currently overloaded, please try again later', 'engine_overloaded_error', null),
    'overloaded',
  ],
  [
    'NVIDIA',
    503,
    openAi('ResourceExhausted: Worker local total request limit reached (33/32)', 'ResourceExhausted', 500),
    'overloaded',
  ],
]

/** Requires a person: neither waiting nor a shorter conversation helps. */
const final: readonly [provider: string, status: number, body: unknown, failure: ProviderFailure][] = [
  [
    'OpenAI',
    429,
    openAi(
      'You exceeded your current quota, please check your plan and billing details.',
      'insufficient_quota',
      'insufficient_quota',
    ),
    'payment_required',
  ],
  [
    'OpenAI',
    401,
    openAi('Incorrect API key provided: sk-x.', 'invalid_request_error', 'invalid_api_key'),
    'unauthorized',
  ],
  [
    'OpenAI',
    404,
    openAi(
      'The model `x` does not exist or you do not have access to it.',
      'invalid_request_error',
      'model_not_found',
    ),
    'not_found',
  ],
  [
    'OpenAI',
    400,
    openAi(
      "Unsupported parameter: 'max_tokens' is not supported with this model.",
      'invalid_request_error',
      'unsupported_parameter',
    ),
    'invalid_request',
  ],
  [
    'Anthropic',
    400,
    anthropic('invalid_request_error', 'Your credit balance is too low to access the Anthropic API.'),
    'payment_required',
  ],
  ['Anthropic', 402, anthropic('billing_error', 'There is a problem with your billing.'), 'payment_required'],
  ['Anthropic', 401, anthropic('authentication_error', 'invalid x-api-key'), 'unauthorized'],
  [
    'Anthropic',
    403,
    anthropic('permission_error', 'Your API key does not have permission to use the specified resource.'),
    'forbidden',
  ],
  ['Anthropic', 413, anthropic('request_too_large', 'Request exceeds the maximum size'), 'request_too_large'],
  [
    'Google',
    403,
    google(403, 'PERMISSION_DENIED', 'Your API key does not have the required permissions.'),
    'forbidden',
  ],
  [
    'DeepSeek',
    402,
    openAi('Insufficient Balance', 'unknown_error', 'invalid_request_error'),
    'payment_required',
  ],
]

/** Inside a stream: there is no status. */
const inStream: readonly ProviderErrorSample[] = [
  sample(
    'OpenAI',
    null,
    openAi('The server had an error processing your request.', 'server_error', null),
    'server_error',
  ),
  sample('Anthropic', null, anthropic('api_error', 'Internal server error'), 'server_error'),
  sample('Anthropic', null, anthropic('timeout_error', 'The request took too long'), 'timed_out'),
  sample(
    'Google',
    null,
    google(undefined, 'RESOURCE_EXHAUSTED', 'Resource has been exhausted.', retryInfo('7s')),
    'rate_limited',
    7_000,
  ),
  sample('Google', null, google(undefined, 'UNAVAILABLE', 'Try later.'), 'overloaded'),
  sample('Google', null, google(undefined, 'DEADLINE_EXCEEDED', 'x'), 'timed_out'),
  sample('Google', null, google(undefined, 'INTERNAL', 'x'), 'server_error'),
  sample(
    'Google',
    null,
    google(
      undefined,
      'INVALID_ARGUMENT',
      'The input token count (9) exceeds the maximum number of tokens allowed (8).',
    ),
    'context_exceeded',
  ),
  sample(
    'OpenRouter',
    null,
    { error: { code: 429, message: 'Rate limit exceeded: free-models-per-min.' } },
    'rate_limited',
  ),
  sample(
    'OpenRouter',
    null,
    { error: { code: 502, message: 'Provider disconnected unexpectedly' } },
    'bad_gateway',
  ),
  sample(
    'MiniMax',
    null,
    { base_resp: { status_code: 1002, status_msg: 'rate limit' }, choices: null },
    'rate_limited',
  ),
  sample(
    'MiniMax',
    null,
    { base_resp: { status_code: 1008, status_msg: 'insufficient balance' } },
    'payment_required',
  ),
  sample(
    'Ollama',
    null,
    { error: 'model requires more system memory (9 GiB) than is available' },
    'server_error',
  ),
  sample(
    'vLLM',
    null,
    { error: { message: 'EngineCore encountered an issue', type: 'InternalServerError', code: 500 } },
    'server_error',
  ),
  sample('a proxy', null, 'Too many requests', 'rate_limited'),
  sample('a proxy', null, 'Rate limit exceeded, retry in 20ms', 'rate_limited', 20),
  sample('a proxy', null, 'prompt is too long: 9 tokens > 8 maximum', 'context_exceeded'),
  sample('a proxy', null, 'This model is currently at capacity', 'overloaded'),
  sample('a proxy', null, 'upstream request timed out', 'timed_out'),
  sample('a proxy', null, 'Reading the context window documentation failed', 'server_error'),
  sample('a proxy', null, openAi('content was filtered', null, 'content_filter'), 'refused'),
]

/** Removes numeric codes, since a stream has no status and many servers give none there. */
function withoutCodes(body: unknown): unknown {
  return JSON.parse(JSON.stringify(body), (key, value: unknown) =>
    key === 'code' && /^\d+$/.test(String(value)) ? undefined : value,
  )
}

/** Errors identified by their text, with a status and, without one, inside a stream. */
const worded = [
  ...contextErrors.map(([provider, status, body]) => sample(provider, status, body, 'context_exceeded')),
  ...busy.map((row) => sample(...row)),
]

export const providerErrors: readonly ProviderErrorSample[] = [
  ...worded,
  ...worded.map((one) => ({ ...one, status: null, body: withoutCodes(one.body) })),
  ...final.map((row) => sample(...row)),
  ...inStream,
]
