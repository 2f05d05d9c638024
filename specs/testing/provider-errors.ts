/**
 * Provider errors from documentation and user reports, each with its meaning. `status` is that of the HTTP answer;
 * null for an error inside a stream or an answer of status 200.
 */
import type { ProviderFailure } from '../node/provider-quirks/error-words.ts'

export interface ProviderErrorSample {
  readonly provider: string
  readonly status: number | null
  /** As JSON, or as text where it is a string. */
  readonly body: unknown
  readonly failure: ProviderFailure
  /** The requested delay; absent: none. */
  readonly retryAfterMs?: number
}

const openAi = (message: string, type: string | null, code: string | number | null) => ({
  error: { message, type, param: null, code },
})
const anthropic = (type: string, message: string) => ({ type: 'error', error: { type, message } })
const google = (code: number | undefined, status: string, message: string, details?: unknown[]) => ({
  error: {
    ...(code === undefined ? {} : { code }),
    message,
    status,
    ...(details === undefined ? {} : { details }),
  },
})
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

/** The conversation is too long: a shorter one is accepted. */
const tooLong: readonly [provider: string, status: number, body: unknown][] = [
  [
    'OpenAI',
    400,
    openAi(
      "This model's maximum context length is 8192 tokens. However, your messages resulted in 9021 tokens.",
      'invalid_request_error',
      'context_length_exceeded',
    ),
  ],
  [
    'OpenAI',
    400,
    openAi(
      'Your input exceeds the context window of this model. Please adjust your input and try again.',
      'invalid_request_error',
      null,
    ),
  ],
  [
    'OpenAI',
    429,
    openAi(
      'Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 41000. The input or output tokens must be reduced in order to run successfully.',
      'tokens',
      'rate_limit_exceeded',
    ),
  ],
  [
    'Anthropic',
    400,
    anthropic('invalid_request_error', 'prompt is too long: 213462 tokens > 200000 maximum'),
  ],
  [
    'Anthropic',
    400,
    anthropic(
      'invalid_request_error',
      'input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000',
    ),
  ],
  [
    'Google',
    400,
    google(
      400,
      'INVALID_ARGUMENT',
      'The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).',
    ),
  ],
  [
    'xAI',
    400,
    {
      code: 'invalid-argument',
      error: "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    },
  ],
  [
    'Groq',
    400,
    openAi(
      'Please reduce the length of the messages or completion.',
      'invalid_request_error',
      'context_length_exceeded',
    ),
  ],
  [
    'Groq',
    413,
    openAi(
      'Request too large for model `x` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 7012, please reduce your message size and try again.',
      'tokens',
      'rate_limit_exceeded',
    ),
  ],
  [
    'Mistral',
    400,
    {
      object: 'error',
      message:
        'Prompt contains 40960 tokens and 0 draft tokens, too large for model with 32768 maximum context length',
      type: 'invalid_request_prompt',
      code: '3051',
    },
  ],
  ['Cohere', 400, { message: 'too many tokens: total number of tokens in the prompt cannot exceed 4081' }],
  ['Bedrock', 400, { __type: 'ValidationException', message: 'Input is too long for requested model.' }],
  [
    'OpenRouter',
    400,
    {
      error: {
        code: 400,
        message:
          "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens.",
      },
    },
  ],
  [
    'vLLM',
    400,
    {
      object: 'error',
      message: 'The decoder prompt (length 5951) is longer than the maximum model length of 4096.',
      type: 'BadRequestError',
      code: 400,
    },
  ],
  [
    'SGLang',
    400,
    {
      object: 'error',
      message: "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
      type: 'BadRequest',
      code: 400,
    },
  ],
  [
    'llama.cpp',
    400,
    openAi(
      'the request exceeds the available context size. try increasing the context size',
      'exceed_context_size_error',
      400,
    ),
  ],
  [
    'LM Studio',
    400,
    { error: 'The number of tokens to keep from the initial prompt is greater than the context length.' },
  ],
  [
    'TGI',
    422,
    {
      error:
        'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`',
      error_type: 'validation',
    },
  ],
  [
    'Moonshot',
    400,
    openAi('Invalid request: Your request exceeded model token limit: 131072', 'invalid_request_error', null),
  ],
  ['Z.ai', 400, openAi('Prompt exceeds max length', null, '1261')],
  [
    'DashScope',
    400,
    openAi('Range of input length should be [1, 129024]', 'invalid_request_error', 'invalid_parameter_error'),
  ],
  ['MiniMax', 400, openAi('invalid params, context window exceeds limit (2013)', 'bad_request_error', null)],
  [
    'GitHub Copilot',
    400,
    openAi(
      'prompt token count of 140000 exceeds the limit of 128000',
      null,
      'model_max_prompt_tokens_exceeded',
    ),
  ],
  ['LiteLLM', 500, openAi('litellm.ContextWindowExceededError: the prompt is too long', null, null)],
]

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
  ...tooLong.map(([provider, status, body]) => sample(provider, status, body, 'context_exceeded')),
  ...busy.map((row) => sample(...row)),
]

export const providerErrors: readonly ProviderErrorSample[] = [
  ...worded,
  ...worded.map((one) => ({ ...one, status: null, body: withoutCodes(one.body) })),
  ...final.map((row) => sample(...row)),
  ...inStream,
]
