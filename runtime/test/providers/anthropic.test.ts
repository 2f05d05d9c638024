// Anthropic's protocol: golden bytes in, the request's shape out, against a server on loopback.
import { describe, expect, it } from 'vitest'
import { startModelServer } from '#specs/testing/model-server.ts'
import type { LLMChatMessage } from '../../contract.ts'
import { createLLMEnvironment } from '../../environment.ts'
import { generate } from '../../generate.ts'
import { askKind, originOf, readGolden, testKey, weather } from './support.ts'

const golden = readGolden('anthropic-tools.sse')
const plain = (stopReason: string) =>
  [
    'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}\n\n',
    `event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"${stopReason}"},"usage":{"output_tokens":4}}\n\n`,
    'event: message_stop\ndata: {"type":"message_stop"}\n\n',
  ].join('')

const question: LLMChatMessage[] = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Paris?' },
]

/** A request body as it came. */
interface Sent {
  system?: { text: string }[]
  messages: { role: string; content: Record<string, unknown>[] }[]
  [field: string]: unknown
}

async function askGolden(extra: object = {}) {
  const result = await askKind('anthropic', [{ body: golden }], {
    messages: question,
    tools: weather,
    ...extra,
  })
  return { answer: result.answer, asked: result.asked, sent: result.asked[0]?.body as unknown as Sent }
}

describe('answers of Anthropic', () => {
  it('become text, thoughts, calls and tokens, whatever the bytes are cut into [S2.06] [S2.08]', async () => {
    for (const pieceBytes of [1, 7, 4_096]) {
      const { answer } = await askKind('anthropic', [{ body: golden, pieceBytes }], { tools: weather })
      expect(answer).toMatchObject({
        ok: true,
        value: {
          type: 'tool_calls',
          content: 'I look — naïve 日本語.',
          stopKind: 'tool',
          usage: { inputTokens: 115, outputTokens: 89, reasoningTokens: 0 },
          tool_calls: [
            {
              id: 'toolu_01A',
              type: 'function',
              function: { name: 'get_weather', arguments: '{"city": "Paris"}' },
            },
            { id: 'toolu_01B', function: { name: 'now', arguments: '{}' } },
          ],
          assistantMessage: { role: 'assistant', reasoning_content: 'Two cities, two calls.' },
        },
      })
    }
  })

  it('say why they stopped in the words of all providers [S2.08]', async () => {
    const kinds: Record<string, string> = {}
    for (const reason of [
      'end_turn',
      'max_tokens',
      'stop_sequence',
      'refusal',
      'model_context_window_exceeded',
      'x',
    ]) {
      const { answer } = await askKind('anthropic', [{ body: plain(reason) }])
      kinds[reason] = answer.ok ? answer.value.stopKind : 'failed'
    }
    expect(kinds).toEqual({
      end_turn: 'natural',
      max_tokens: 'length',
      stop_sequence: 'natural',
      refusal: 'content_filter',
      model_context_window_exceeded: 'length',
      x: 'unknown',
    })
  })

  it('are not waited for once they have said that they stop [S2.06]', async () => {
    const { answer } = await askKind('anthropic', [{ body: plain('end_turn'), after: 'hang' }])
    expect(answer).toMatchObject({ ok: true, value: { content: 'hi' } })
  })

  it('that break off, report an error or hold only pings are failures with a code [S2.06]', async () => {
    const cut = plain('end_turn').split('event: message_delta')[0] ?? ''
    const error =
      'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    const pings = 'event: ping\ndata: {"type":"ping"}\n\n'.repeat(50)
    const codes = []
    for (const reply of [
      { body: cut },
      { body: cut + error },
      { body: pings, pieceBytes: 40, pauseMs: 20, after: 'hang' as const },
      { status: 529, body: '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}' },
      {
        status: 400,
        body: '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}',
      },
      {
        status: 401,
        body: '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
      },
    ]) {
      const config = { idleTimeoutMs: 300, firstEventTimeoutMs: 300 }
      const { answer } = await askKind('anthropic', [reply], {}, config)
      codes.push(answer.ok ? 'no error' : (answer.error as { code: string }).code)
    }
    expect(codes).toEqual([
      'truncated',
      'overloaded',
      'timed_out',
      'overloaded',
      'context_exceeded',
      'unauthorized',
    ])
  })
})

describe('requests to Anthropic', () => {
  it('carry key, version, system text at the top and a bound of tokens [S2.06]', async () => {
    const { asked, sent } = await askGolden()
    expect(asked[0]).toMatchObject({
      method: 'POST',
      path: '/v1/messages',
      headers: { 'x-api-key': testKey, 'anthropic-version': '2023-06-01' },
    })
    expect(asked[0]?.headers.authorization).toBeUndefined()
    expect(sent).toMatchObject({
      model: 'm',
      max_tokens: 16_384,
      stream: true,
      system: [{ type: 'text', text: 'Be brief.' }],
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Paris?' }] }],
      tools: [
        { name: 'get_weather', description: 'The weather', input_schema: weather.get_weather.parameters },
        { name: 'now' },
      ],
    })
    expect(sent.thinking).toBeUndefined()
  })

  it('bring thoughts with their signatures, calls and results back in the turns that it takes [S2.06] [S2.08]', async () => {
    const { answer } = await askGolden()
    if (!answer.ok) throw answer.error
    const { assistantMessage } = answer.value
    const { sent } = await askGolden({
      messages: [
        ...question,
        JSON.parse(JSON.stringify(assistantMessage)) as LLMChatMessage,
        { role: 'system', content: 'Hurry.' },
        { role: 'tool', tool_call_id: 'toolu_01A', content: 'sun' },
        { role: 'tool', tool_call_id: 'toolu_01B', content: ' ' },
        { role: 'user', content: 'And?' },
      ],
    })
    expect(sent.messages.slice(1)).toEqual([
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'Two cities, two calls.', signature: 'EqQBCgIYAhIM1gbcDa9GJwZA2b3h' },
          { type: 'redacted_thinking', data: 'EmwKAhgBEgy3va3pzix' },
          { type: 'text', text: 'I look — naïve 日本語.' },
          { type: 'tool_use', id: 'toolu_01A', name: 'get_weather', input: { city: 'Paris' } },
          { type: 'tool_use', id: 'toolu_01B', name: 'now', input: {} },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'toolu_01A', content: 'sun' },
          { type: 'tool_result', tool_use_id: 'toolu_01B', content: '(no output)' },
          { type: 'text', text: '[system] Hurry.' },
          { type: 'text', text: 'And?' },
        ],
      },
    ])
  })

  it('take nothing from the state of a message but thoughts of its own [S2.06]', async () => {
    const call = { type: 'tool_use', id: 'x', name: 'now', input: {} }
    const contents = []
    for (const provider_state of [
      { provider: 'anthropic', thoughts: [call, null, { type: 'redacted_thinking', data: 'd' }] },
      { provider: 'google', text: null, calls: [] },
      { provider: 'anthropic', thoughts: 7 },
      'state',
    ]) {
      const { sent } = await askGolden({
        messages: [
          ...question,
          { role: 'assistant', content: 'Sun.', provider_state },
          { role: 'user', content: 'And?' },
        ],
      })
      contents.push(sent.messages[1]?.content.map(({ type }) => type))
    }
    expect(contents).toEqual([['redacted_thinking', 'text'], ['text'], ['text'], ['text']])
  })

  it('leave out what it refuses: empty texts, trailing space, strange ids, an assistant at the head [S2.06]', async () => {
    const { sent } = await askGolden({
      messages: [
        {
          role: 'assistant',
          content: ' ',
          tool_calls: [
            { id: 'call.1:x', type: 'function', function: { name: 'now', arguments: 'not json' } },
          ],
        },
        { role: 'tool', tool_call_id: 'call.1:x', content: 'noon' },
        { role: 'user', content: '' },
        { role: 'assistant', content: 'Noon. \n' },
      ],
    })
    expect(sent.system).toBeUndefined()
    expect(sent.messages).toEqual([
      { role: 'user', content: [{ type: 'text', text: '(begin)' }] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1_x', name: 'now', input: {} }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1_x', content: 'noon' }] },
      { role: 'assistant', content: [{ type: 'text', text: 'Noon.' }] },
    ])
  })

  it('say how long to think, by a budget to older models, and not where that is refused [S2.04] [S2.06]', async () => {
    const effort = await askGolden({ model: 'claude-opus-5', reasoningEffort: 'medium', temperature: 0.5 })
    expect(effort.sent).toMatchObject({ thinking: { type: 'adaptive' }, output_config: { effort: 'medium' } })
    expect(effort.sent.temperature).toBeUndefined()
    const budget = await askGolden({ model: 'claude-sonnet-4-5', reasoningEffort: 'high', maxTokens: 10_000 })
    expect(budget.sent.thinking).toEqual({ type: 'enabled', budget_tokens: 8_976 })
    const forced = await askGolden({ reasoningEffort: 'high', toolChoice: { name: 'now' } })
    expect(forced.sent).toMatchObject({ tool_choice: { type: 'tool', name: 'now' } })
    expect(forced.sent.thinking).toBeUndefined()
    const foreign = await askGolden({
      reasoningEffort: 'high',
      messages: [
        ...question,
        {
          role: 'assistant',
          content: '',
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'now', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'c', content: 'noon' },
      ],
    })
    expect(foreign.sent.thinking).toBeUndefined()
  })

  it('try the other way of thinking once where a model refuses one, and remember [S2.06]', async () => {
    const refusal = {
      status: 400,
      body: '{"type":"error","error":{"type":"invalid_request_error","message":"adaptive thinking is not supported on this model"}}',
    }
    await using server = await startModelServer((asked) =>
      (asked.body.thinking as { type: string }).type === 'adaptive' ? refusal : { body: plain('end_turn') },
    )
    await using environment = createLLMEnvironment({
      providers: { anthropic: { apiKey: testKey, baseUrl: originOf(server) } },
    })
    for (const content of ['one', 'two']) {
      const request = { environment, provider: 'anthropic', model: 'old', reasoningEffort: 'low' } as const
      const answer = await generate({ ...request, messages: [{ role: 'user', content }] })
      expect(answer.content).toBe('hi')
    }
    expect(server.asked.map(({ body }) => (body.thinking as { type: string }).type)).toEqual([
      'adaptive',
      'enabled',
      'enabled',
    ])
  })

  it('ask for JSON of a schema whose objects are closed [S2.06]', async () => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'array', items: { type: 'object', properties: {} } } },
    }
    const { sent } = await askGolden({ responseFormat: { name: 'x', schema } })
    expect(sent.output_config).toEqual({
      format: {
        type: 'json_schema',
        schema: {
          type: 'object',
          additionalProperties: false,
          properties: {
            a: { type: 'array', items: { type: 'object', properties: {}, additionalProperties: false } },
          },
        },
      },
    })
  })
})
