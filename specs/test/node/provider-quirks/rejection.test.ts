import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type OptionalField, optionalFields, readRejection } from '../../../node/provider-quirks/rejection.ts'

const all: ReadonlySet<OptionalField> = new Set(optionalFields)
const fields = (...names: OptionalField[]) => ({ kind: 'fields', fields: names })
const openAi = (message: string, more: object = {}) => JSON.stringify({ error: { message, ...more } })

describe('what a server refuses is read from', () => {
  it.each([
    [
      'OpenAI, by its param',
      openAi("Unknown parameter: 'seed'.", { param: 'seed', code: 'unknown_parameter' }),
      fields('seed'),
    ],
    [
      'OpenAI, of a value',
      openAi("Unsupported value: 'temperature' does not support 0.2 with this model.", {
        param: 'temperature',
      }),
      fields('temperature'),
    ],
    [
      'OpenAI, of another name',
      openAi(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
      ),
      fields('max_tokens'),
    ],
    [
      'OpenAI, older',
      openAi('Unrecognized request argument supplied: reasoning_effort'),
      fields('reasoning_effort'),
    ],
    [
      "NVIDIA's cloud functions",
      '{"title":"Unprocessable Entity","status":422,"detail":"body -> stop\\n  Extra inputs are not permitted (type=extra_forbidden)"}',
      fields('stop'),
    ],
    [
      'FastAPI',
      '{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"seed":1}}]}',
      fields('stream_options'),
    ],
    [
      'vLLM, in Python',
      openAi(
        "[{'type': 'extra_forbidden', 'loc': ('body', 'top_p'), 'msg': 'Extra inputs are not permitted', 'input': {'temperature': 1}}]",
      ),
      fields('top_p'),
    ],
    [
      'Mistral',
      '{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"x"}]}}',
      fields('stream_options'),
    ],
    [
      'Groq, in a message',
      openAi(
        "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property 'reasoning_content' is unsupported)]",
      ),
      fields('reasoning_content'),
    ],
    [
      'Gemini',
      openAi('Invalid JSON payload received. Unknown name "seed": Cannot find field.'),
      fields('seed'),
    ],
    [
      'a Mistral tokenizer',
      openAi('chat_template is not supported for Mistral tokenizers.'),
      fields('chat_template_kwargs'),
    ],
    ['plain words', 'stream_options is not supported', fields('stream_options')],
    ['no name at all', openAi('Extra inputs are not permitted'), fields('stream_options')],
    ['a server without streams', openAi('Streaming: parameter stream is not supported'), fields('stream')],
    ['strict tools', openAi("Unknown field: 'strict' in tools[0].function"), fields('strict')],
    [
      'vLLM, on its length',
      openAi(
        "This model's maximum context length is 4096 tokens. However, you requested 16398 tokens (14 in the messages, 16384 in the completion).",
      ),
      { kind: 'context', contextTokens: 4096, promptTokens: 14 },
    ],
    [
      'vLLM, newer, on its length',
      openAi(
        "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context length is 4096 tokens and your request has 900 input tokens (16384 > 4096 - 900).",
      ),
      { kind: 'context', contextTokens: 4096, promptTokens: 900 },
    ],
    [
      'OpenAI, on the length of the answer',
      openAi(
        'max_tokens is too large: 16384. This model supports at most 4096 completion tokens, whereas you provided 16384.',
      ),
      { kind: 'output', maxOutputTokens: 4096 },
    ],
    [
      'NVIDIA, on the length of the answer',
      '{"detail":"body -> max_tokens\\n  ensure this value is less than or equal to 1024 (type=value_error.number.not_le; limit_value=1024)"}',
      { kind: 'output', maxOutputTokens: 1024 },
    ],
    [
      'OpenAI, on images',
      openAi('Invalid content type. image_url is only supported by certain models.', {
        param: 'messages.[1].content.[1].type',
      }),
      { kind: 'images', maxImages: 0 },
    ],
    ['vLLM, on images', openAi('/models/m is not a multimodal model'), { kind: 'images', maxImages: 0 }],
    [
      'vLLM, on their number',
      openAi('At most 1 image(s) may be provided in one prompt. (parameter=image)', { param: 'image' }),
      { kind: 'images', maxImages: 1 },
    ],
    [
      'Groq, on images',
      openAi("'messages.0.content' : value must be a string"),
      { kind: 'images', maxImages: 0 },
    ],
    [
      'a schema, on images',
      '{"detail":"Validation Error","errors":[{"loc":"body -> messages -> 0 -> content -> list[TextContentPart] -> 0 -> type","msg":"Input should be \'text\'","type":"literal_error"}]}',
      { kind: 'images', maxImages: 0 },
    ],
    [
      'Llama, on two calls',
      openAi('This model only supports single tool-calls at once!'),
      { kind: 'single_calls' },
    ],
    [
      'Ollama, on tools',
      openAi('registry.ollama.ai/library/gemma:2b does not support tools'),
      { kind: 'tools' },
    ],
    [
      'vLLM, on tools',
      openAi('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
      { kind: 'tools' },
    ],
    [
      'a schema, on tools',
      '{"detail":[{"type":"extra_forbidden","loc":["body","tools"],"msg":"Extra inputs are not permitted"}]}',
      { kind: 'tools' },
    ],
  ])('%s [G.05]', (_, body, expected) => {
    expect(readRejection(400, body, all)).toEqual(expected)
    expect(readRejection(422, body, all)).toEqual(expected)
    expect(readRejection(500, body, all)).toBeNull()
  })

  it.each([
    ['an error of another kind', openAi('Conversation roles must alternate user/assistant')],
    [
      'a model that is down',
      '{"status":400,"title":"Bad Request","detail":"Function id \'x\': DEGRADED function cannot be invoked"}',
    ],
    ['ordinary words', openAi('Please stop sending requests, this key is not allowed')],
    [
      'a repeated conversation',
      '{"detail":[{"type":"string_type","loc":["body","messages",0,"content"],"msg":"Input should be a valid string","input":{"stop":"seed","top_p":"is not supported"}}]}',
    ],
    [
      'a value, by its param',
      openAi("Invalid 'stop': array too long. Expected maximum length 4", { param: 'stop' }),
    ],
    [
      'a value, by a schema',
      '{"detail":[{"type":"less_than_equal","loc":["body","temperature"],"msg":"Input should be less than or equal to 1"}]}',
    ],
    [
      'a value, in words',
      openAi("Invalid value: 'seed' is not supported, expected an integer", { param: 'seed' }),
    ],
    ['nothing', ''],
  ])('and nothing from %s [G.05]', (_, body) => {
    expect(readRejection(400, body, all)).toBeNull()
  })

  it('fields that were sent alone, whatever the server says [G.05]', () => {
    expect(readRejection(400, openAi("Unknown parameter: 'seed'."), new Set(['top_p']))).toBeNull()
    const words = fc.constantFrom(
      'is not supported',
      'stop',
      "'seed'",
      'tools',
      'at most 10',
      'max_tokens',
      '\n',
      '{"',
      ']',
    )
    const text = fc
      .array(fc.oneof(words, fc.string({ maxLength: 10 })), { maxLength: 30 })
      .map((parts) => parts.join(' '))
    const body = fc.oneof(
      text,
      text.map((message) => openAi(message)),
      fc.json().map((value) => value),
    )
    fc.assert(
      fc.property(body, fc.subarray([...optionalFields]), (said, sent) => {
        const refusal = readRejection(400, said, new Set(sent))
        if (refusal?.kind === 'fields') {
          expect(refusal.fields.length).toBeGreaterThan(0)
          expect(sent).toEqual(expect.arrayContaining([...refusal.fields]))
        }
      }),
      { numRuns: 2_000, seed: 12 },
    )
  })
})
