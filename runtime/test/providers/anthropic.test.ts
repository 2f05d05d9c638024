// Anthropic's protocol: golden bytes in, the request's shape out, against a server on loopback.
import { describe, expect, it } from 'vitest'
import { dataUrl, png } from '#specs/testing/images.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import type { LLMChatMessage } from '../../contract/contract.ts'
import { createLLMEnvironment } from '../../environment/environment.ts'
import { generate } from '../../generate/generate.ts'
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
      codes.push(answer.ok ? 'no error' : (answer.error as { kind: string }).kind)
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

/** A stream of these blocks. Their `input` comes in two pieces, as the API sends it. */
function streamOf(blocks: readonly Record<string, unknown>[], stopReason: string): string {
  const events: Record<string, unknown>[] = [
    { type: 'message_start', message: { usage: { input_tokens: 3 } } },
  ]
  for (const [index, block] of blocks.entries()) {
    const { input, ...head } = block
    const content_block = input === undefined ? block : { ...head, input: {} }
    events.push({ type: 'content_block_start', index, content_block })
    const json = typeof input === 'string' ? input : input === undefined ? '' : JSON.stringify(input)
    for (const partial_json of ['', json.slice(0, 5), json.slice(5)])
      if (input !== undefined)
        events.push({ type: 'content_block_delta', index, delta: { type: 'input_json_delta', partial_json } })
    events.push({ type: 'content_block_stop', index })
  }
  events.push({ type: 'message_delta', delta: { stop_reason: stopReason }, usage: { output_tokens: 4 } })
  return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join('')
}

describe('tools that the server of Anthropic runs', () => {
  const search = {
    type: 'server_tool_use',
    id: 'srvtoolu_1',
    name: 'web_search',
    input: { query: 'weather in Paris' },
  }
  const found = {
    type: 'web_search_tool_result',
    tool_use_id: 'srvtoolu_1',
    content: [{ type: 'web_search_result', url: 'https://example.com', encrypted_content: 'Ej8K' }],
  }
  const remote = { type: 'mcp_tool_use', id: 'mcptoolu_1', name: 'echo', server_name: 'far', input: { a: 1 } }
  const echoed = { type: 'mcp_tool_result', tool_use_id: 'mcptoolu_1', is_error: false, content: [] }
  const text = { type: 'text', text: 'Sun.' }
  const own = { type: 'tool_use', id: 'toolu_1', name: 'now', input: {} }
  const odd = { type: 'novel_block', name: 'novel', input: { a: 'b' } }

  /** The answer, and the blocks of it that the next request brings back. */
  async function roundTrip(blocks: readonly Record<string, unknown>[], stopReason: string) {
    const first = await askKind('anthropic', [{ body: streamOf(blocks, stopReason) }], { tools: weather })
    if (!first.answer.ok) throw first.answer.error
    const { assistantMessage, tool_calls: calls = [] } = first.answer.value
    const results = calls.map(({ id }): LLMChatMessage => ({ role: 'tool', tool_call_id: id, content: 'ok' }))
    const messages = [...question, assistantMessage, ...results, { role: 'user' as const, content: 'And?' }]
    const { sent } = await askGolden({ messages })
    return { value: first.answer.value, back: sent.messages[1]?.content }
  }

  it('are no calls of ours; what they were asked and answered goes back as it came [S2.06] [S2.08]', async () => {
    const { value, back } = await roundTrip([search, found, remote, echoed, odd, text], 'end_turn')
    expect(value).toMatchObject({ type: 'text', content: 'Sun.', stopKind: 'natural' })
    expect(value.tool_calls).toBeUndefined()
    expect(back).toEqual([search, found, remote, echoed, text])
  })

  it('stand beside our own calls, and may wait for their results [S2.06] [S2.08]', async () => {
    const { value, back } = await roundTrip([search, found, remote, text, own], 'tool_use')
    expect(value.tool_calls?.map((call) => call.function.name)).toEqual(['now'])
    expect(back).toEqual([search, found, remote, text, own])
  })

  it.each([
    ['without a result', [search, text]],
    ['cut off in its input', [{ ...search, input: '{"query":"wea' }, found, text]],
  ])('leave nothing of a call %s, which the API would refuse [S2.06] [S2.08]', async (_name, blocks) => {
    const { back } = await roundTrip(blocks, 'end_turn')
    expect(back).toEqual([text])
  })

  it('hide no call of ours that came without its name or its beginning [S2.08]', async () => {
    const unnamed = { ...own, name: '', input: { a: 1 } }
    const lost = streamOf([own], 'tool_use').replace(/event: content_block_start[^\n]*\n[^\n]*\n\n/, '')
    const argumentsAlone = lost.replace('"partial_json":"{}"', '"partial_json":"{\\"city\\":1}"')
    for (const body of [streamOf([text, unnamed], 'tool_use'), argumentsAlone]) {
      const { answer } = await askKind('anthropic', [{ body }], { tools: weather })
      expect(answer).toMatchObject({ ok: false, error: { kind: 'nameless_call' } })
    }
  })
})

describe('tokens of Anthropic', () => {
  const usage = (start: object, end: object) =>
    [
      { type: 'message_start', message: { usage: start } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'hi' } },
      { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: end },
    ]
      .map((event) => `data: ${JSON.stringify(event)}\n\n`)
      .join('')

  it.each([
    ['in the last event alone', { input_tokens: 100 }, { cache_read_input_tokens: 5_000, output_tokens: 7 }],
    ['in the first event alone', { input_tokens: 100, cache_read_input_tokens: 5_000 }, { output_tokens: 7 }],
    [
      'in both events',
      { input_tokens: 100, cache_read_input_tokens: 5_000, output_tokens: 1 },
      { input_tokens: 100, cache_read_input_tokens: 5_000, output_tokens: 7 },
    ],
    [
      'written in one event and read in the other',
      { input_tokens: 60, cache_creation_input_tokens: 40 },
      { cache_read_input_tokens: 5_000, output_tokens: 7 },
    ],
  ])('count those of the cache %s [S2.08]', async (_name, start, end) => {
    const { answer } = await askKind('anthropic', [{ body: usage(start, end) }])
    expect(answer).toMatchObject({ ok: true, value: { usage: { inputTokens: 5_100, outputTokens: 7 } } })
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

  it('take nothing from the state of a message but blocks that it keeps itself [S2.06]', async () => {
    const call = { type: 'tool_use', id: 'x', name: 'now', input: {} }
    const contents = []
    for (const provider_state of [
      { provider: 'anthropic', blocks: [call, null, { type: 'redacted_thinking', data: 'd' }] },
      { provider: 'google', text: null, calls: [] },
      { provider: 'anthropic', blocks: 7 },
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
    // With a call that came without thinking, whatever is behind its result: an image begins no new turn.
    const call = { id: 'c', type: 'function', function: { name: 'now', arguments: '{}' } }
    const called = [
      ...question,
      { role: 'assistant', content: '', tool_calls: [call] },
      { role: 'tool', tool_call_id: 'c', content: 'noon' },
    ]
    const image = { role: 'user', content: 'A dial:', images: [dataUrl('image/png', png(8, 8))] }
    for (const messages of [called, [...called, image]]) {
      const other = await askGolden({ reasoningEffort: 'high', messages })
      expect(other.sent.thinking).toBeUndefined()
    }
    const answered = [
      ...called,
      { role: 'assistant', content: 'Noon.' },
      { role: 'user', content: 'And now?' },
    ]
    const next = await askGolden({ reasoningEffort: 'high', messages: answered })
    expect(next.sent.thinking).toBeDefined()
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
