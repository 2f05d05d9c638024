/** Errors of a conversation that is too long, from documentation and user reports. */

/** Bodies in the form of OpenAI, Anthropic and Google. */
export const openAi = (message: string, type: string | null, code: string | number | null) => ({
  error: { message, type, param: null, code },
})
export const anthropic = (type: string, message: string) => ({ type: 'error', error: { type, message } })
export const google = (code: number | undefined, status: string, message: string, details?: unknown[]) => ({
  error: {
    ...(code === undefined ? {} : { code }),
    message,
    status,
    ...(details === undefined ? {} : { details }),
  },
})

/** A shorter conversation is accepted. */
export const contextErrors: readonly [provider: string, status: number, body: unknown][] = [
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
