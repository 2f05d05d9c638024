import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { streamChat } from '../../llm/client.ts'
import { collectTurn } from '../../llm/model.ts'
import {
  calls,
  createScriptedModel,
  failure,
  type LLMChatMessage,
  type LLMToolDefinition,
  type ReplyScript,
  type RuleScript,
  text,
} from '../../testing/index.ts'

const user = (content: string): LLMChatMessage => ({ role: 'user', content })
const result = (content: string): LLMChatMessage => ({ role: 'tool', tool_call_id: 'call-1', content })
const lookUp: LLMToolDefinition = {
  name: 'look_up',
  description: 'Looks up.',
  parameters: { type: 'object' },
}

/** The message of what `work` throws. */
async function failing(work: () => unknown): Promise<string> {
  try {
    await work()
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
  throw new Error('nothing was thrown')
}

async function listening(source: ReplyScript | RuleScript) {
  const model = createScriptedModel(source)
  const baseURL = await model.listen()
  const client = new OpenAI({ baseURL, apiKey: 'any', maxRetries: 0 })
  return { model, client, baseURL, [Symbol.asyncDispose]: () => model[Symbol.asyncDispose]() }
}

describe('a scripted model in process', () => {
  it('gives its replies in turn: text, calls with ids of their own, reasoning, usage [T.01]', async () => {
    const model = createScriptedModel({
      replies: [
        calls({ name: 'look_up', arguments: { key: 'a' } }, { name: 'look_up', arguments: '{"key":' }),
        text(['It is ', '7.'], { reasoning: 'hm', usage: { outputTokens: 99 }, stop: 'length' }),
        calls({ name: 'look_up' }, { name: 'look_up', id: 'mine' }),
      ],
    })
    const first = await model.callModel({ messages: [user('a?')], tools: [lookUp] })
    const toolCalls = [
      { id: 'call-1', type: 'function', function: { name: 'look_up', arguments: '{"key":"a"}' } },
      { id: 'call-2', type: 'function', function: { name: 'look_up', arguments: '{"key":' } },
    ]
    expect(first).toEqual({
      type: 'tool_calls',
      content: '',
      tool_calls: toolCalls,
      assistantMessage: { role: 'assistant', content: '', tool_calls: toolCalls },
      usage: { inputTokens: 10, outputTokens: 5, reasoningTokens: 0 },
      stopKind: 'tool',
    })
    expect(await model.callModel({ messages: [user('b?')] })).toEqual({
      type: 'text',
      content: 'It is 7.',
      assistantMessage: { role: 'assistant', content: 'It is 7.', reasoning_content: 'hm' },
      usage: { inputTokens: 10, outputTokens: 99, reasoningTokens: 0 },
      stopKind: 'length',
    })
    const third = await model.callModel({ messages: [] })
    expect(third.tool_calls?.map(({ id, function: body }) => [id, body.arguments])).toEqual([
      ['call-3', '{}'],
      ['mine', '{}'],
    ])
    model.assertDone()
  })

  it('records what it was asked, typed and in order, also when the asker changes its list later [T.01]', async () => {
    const model = createScriptedModel({ replies: [calls({ name: 'look_up' }), text('done')] })
    const messages = [user('a?')]
    const { assistantMessage } = await model.callModel({ messages, tools: [lookUp] })
    messages.push(assistantMessage, result('seven'))
    await model.callModel({ messages })
    messages.length = 0
    expect(model.requests).toMatchObject([
      { index: 0, via: 'call', turn: 0, lastUserText: 'a?', tools: [{ name: 'look_up' }] },
      { index: 1, via: 'call', turn: 1, lastUserText: 'a?', lastResult: 'seven', tools: [] },
    ])
    expect(model.requests[0]).not.toHaveProperty('lastResult')
    expect(model.requests.map((request) => request.messages.length)).toEqual([1, 3])
  })

  it('answers by the first rule that holds, lists in turn and no longer than they last [T.01]', async () => {
    const model = createScriptedModel({
      rules: [
        { when: { user: 'weather' }, reply: [text('rain'), text('sun')] },
        { when: { user: /^\w+$/g, turn: 0 }, reply: text('one word'), times: 2 },
        { when: { result: 'seven' }, reply: text('a result') },
        { when: { tool: 'look_up' }, reply: calls({ name: 'look_up' }) },
        { when: ({ messages }) => messages.length === 0, reply: ({ index }) => text(`number ${index}`) },
        { name: 'the rest', reply: text('?'), optional: true },
      ],
    })
    const ask = async (messages: LLMChatMessage[], tools: LLMToolDefinition[] = []) =>
      (await model.callModel({ messages, tools })).content
    expect(await ask([user('the weather')])).toBe('rain')
    expect(await ask([user('word')])).toBe('one word')
    expect(await ask([user('the weather')])).toBe('sun')
    expect(await ask([user('the weather')])).toBe('?')
    expect(await ask([user('word')])).toBe('one word')
    expect(await ask([user('word')])).toBe('?')
    expect(await ask([user('a b'), result('it is seven')])).toBe('a result')
    expect(await ask([user('a b')], [lookUp])).toBe('')
    expect(await ask([])).toBe('number 8')
    model.assertDone()
  })

  it('refuses loudly what the script does not foresee, and remembers it [T.01]', async () => {
    const model = createScriptedModel({ replies: [text('only this')] })
    await model.callModel({ messages: [user('first')] })
    const message = await failing(() => model.callModel({ messages: [user('second')], tools: [lookUp] }))
    expect(message).toContain('request 2: user "second" (turn 0, 1 messages, tools look_up)')
    expect(message).toContain('all 1 replies are used')
    expect(await failing(() => model.assertDone())).toContain(
      'requests without a reply:\n  - request 2: user',
    )
  })

  it('says which replies and rules were not used, and what was asked instead [T.01]', async () => {
    const inTurn = createScriptedModel({
      replies: [
        text('one'),
        calls({ name: 'look_up', arguments: { key: 'x'.repeat(500) } }),
        failure(429, 'slow'),
      ],
    })
    await inTurn.callModel({ messages: [user('hello')] })
    expect(() => inTurn.assertDone()).toThrow(expect.objectContaining({ code: 'script_mismatch' }))
    const said = await failing(() => inTurn.assertDone())
    expect(said).toContain('- reply 2 of 3: call look_up({"key":"xxx')
    expect(said).toContain('- reply 3 of 3: failure 429 "slow"')
    expect(said).toContain('- user "hello" (turn 0, 1 messages, no tools) → reply 1\n')
    expect(said.length).toBeLessThan(1_000)

    const decisionByRule = createScriptedModel({
      rules: [
        { name: 'greeting', when: { user: 'hello' }, reply: text('hi'), times: 2 },
        { when: { user: 'weather' }, reply: [text('rain'), text('sun')] },
      ],
    })
    await decisionByRule.callModel({ messages: [user('hello')] })
    await decisionByRule.callModel({ messages: [user('the weather')] })
    const unused = await failing(() => decisionByRule.assertDone())
    expect(unused).toContain('greeting, used 1 of 2 times: text "hi"')
    expect(unused).toContain('rule 2, reply 2 of 2: text "sun"')
    expect(unused).not.toContain('"rain"')
    expect(await failing(() => createScriptedModel({ replies: [text('x')] }).assertDone())).toContain(
      '- nothing',
    )
  })

  it('fails, hangs until the abort, and waits as instructed [T.01]', async () => {
    const model = createScriptedModel({
      rules: [
        { when: { user: 'fail' }, reply: failure(503, 'too busy', { retryAfterMs: 1_500 }) },
        { when: { user: 'hang' }, reply: text('half', { broken: 'hang' }) },
        { when: { user: 'cut' }, reply: text('half', { broken: 'cut' }) },
        { when: { user: 'late' }, reply: text('late', { delayMs: 5 }) },
        {
          when: { user: 'throw' },
          reply: () => {
            throw new Error('a fault of the test')
          },
        },
      ],
    })
    const ask = (content: string, abortSignal?: AbortSignal) =>
      model.callModel({ messages: [user(content)], ...(abortSignal === undefined ? {} : { abortSignal }) })
    await expect(ask('fail')).rejects.toMatchObject({
      name: 'LLMError',
      kind: 'overloaded',
      code: 'model_unreachable',
      status: 503,
      retryAfterMs: 1_500,
      message: expect.stringContaining('too busy'),
    })
    await expect(ask('cut')).rejects.toMatchObject({ message: expect.stringContaining('broke') })
    expect((await ask('late')).content).toBe('late')
    const abort = new AbortController()
    const hanging = ask('hang', abort.signal)
    abort.abort(new Error('enough'))
    await expect(hanging).rejects.toThrow('enough')
    await expect(ask('late', AbortSignal.abort(new Error('before')))).rejects.toThrow('before')
    expect(await failing(() => ask('throw'))).toContain('rule 5 threw: a fault of the test')
    expect(() => model.assertDone()).toThrow('a fault of the test')
  })

  it('is a provider whose parts fold to the same turn, and whose failures are parts [T.01]', async () => {
    const model = createScriptedModel({
      replies: [
        { ...calls({ name: 'look_up', arguments: { key: 'a' } }), text: ['It ', 'is'], reasoning: 'hm' },
        failure(402, 'no money'),
        text('half', { broken: 'hang' }),
      ],
    })
    const ask = (signal: AbortSignal = new AbortController().signal) =>
      collectTurn(
        model.provider.stream({
          model: 'm',
          messages: [user('a?')],
          tools: [lookUp],
          toolChoice: 'required',
          reasoningEffort: 'high',
          signal,
        }),
      )
    expect(await ask()).toEqual({
      ok: true,
      value: {
        text: 'It is',
        reasoning: 'hm',
        toolCalls: [{ id: 'call-1', name: 'look_up', argumentsText: '{"key":"a"}' }],
        usage: { requests: 1, inputTokens: 10, outputTokens: 5, reasoningTokens: 0 },
        finishReason: 'tool_calls',
      },
    })
    expect(await ask()).toMatchObject({ error: { code: 'payment_required', status: 402 } })
    const abort = new AbortController()
    setTimeout(() => abort.abort(), 10)
    expect(await ask(abort.signal)).toMatchObject({ error: { code: 'cancelled' } })
    expect(await ask()).toMatchObject({
      error: { code: 'invalid_request', message: expect.stringContaining('all 3 replies are used') },
    })
    const asked = { via: 'provider', model: 'm', toolChoice: 'required', reasoningEffort: 'high', turn: 0 }
    expect(model.requests[0]).toMatchObject(asked)
    expect(model.requests[0]).not.toHaveProperty('signal')
  })

  it.each([[{}], [{ replies: 'text' }], [{ rules: [{ when: { user: 'a' } }] }], [{ rules: {} }]])(
    'is not made of %j [T.01]',
    (source) => {
      expect(() => createScriptedModel(source as unknown as ReplyScript)).toThrow(
        expect.objectContaining({ code: 'invalid_options' }),
      )
    },
  )
})

describe('a scripted model as a server', () => {
  it('answers the official client, streamed and whole, as it answers in process [T.01]', async () => {
    const answer = {
      ...calls({ name: 'look_up', arguments: { key: 'ä' } }),
      text: ['Grüße ', '🎉'],
      usage: { inputTokens: 7, outputTokens: 3, reasoningTokens: 2 },
    }
    await using test = await listening({ replies: [answer, answer, text('done')] })
    const request = { model: 'm', messages: [{ role: 'user' as const, content: 'hello' }] }
    const stream = test.client.chat.completions.stream(request)
    const pieces: string[] = []
    stream.on('content', (piece) => void pieces.push(piece))
    const streamed = await stream.finalChatCompletion()
    const whole = await test.client.chat.completions.create(request)
    const said = (completion: OpenAI.ChatCompletion) => [
      completion.choices[0]?.message.content,
      completion.choices[0]?.message.tool_calls?.map((call) => call.type === 'function' && call.function),
      completion.choices[0]?.finish_reason,
    ]
    const wanted = ['Grüße 🎉', [{ name: 'look_up', arguments: '{"key":"ä"}' }], 'tool_calls']
    expect(said(whole)).toEqual(wanted)
    expect(said(streamed)).toMatchObject([wanted[0], [{ arguments: '{"key":"ä"}' }], wanted[2]])
    expect(pieces.filter((piece) => piece !== '')).toEqual(['Grüße ', '🎉'])
    expect(whole.usage).toMatchObject({
      prompt_tokens: 7,
      completion_tokens: 3,
      total_tokens: 10,
      completion_tokens_details: { reasoning_tokens: 2 },
    })
    expect(streamed.usage ?? null).toBeNull()
    expect((await test.client.models.list()).data.map(({ id }) => id)).toEqual(['scripted'])
    expect(() => test.model.assertDone()).toThrow('reply 3 of 3: text "done"')
  })

  it('records requests as typed as in process, with what else came [T.01]', async () => {
    await using test = await listening({ rules: [{ reply: text('done') }] })
    await test.client.chat.completions.create({
      model: 'm',
      messages: [
        { role: 'system', content: 'rules' },
        { role: 'user', content: [{ type: 'text', text: 'a?' }] },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'c1', type: 'function', function: { name: 'look_up', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'seven' },
      ],
      tools: [{ type: 'function', function: lookUp }],
      tool_choice: { type: 'function', function: { name: 'look_up' } },
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' } } },
      reasoning_effort: 'low',
      max_tokens: 5,
    })
    expect(test.model.requests).toMatchObject([
      {
        via: 'http',
        model: 'm',
        messages: [
          { role: 'system', content: 'rules' },
          { role: 'user', content: 'a?' },
          { role: 'assistant', content: '', tool_calls: [{ id: 'c1', function: { name: 'look_up' } }] },
          { role: 'tool', content: 'seven', tool_call_id: 'c1' },
        ],
        tools: [lookUp],
        toolChoice: { name: 'look_up' },
        responseFormat: { name: 'answer', schema: { type: 'object' } },
        reasoningEffort: 'low',
        maxTokens: 5,
        lastResult: 'seven',
        turn: 1,
        http: { path: '/v1/chat/completions', headers: { authorization: 'Bearer any' } },
      },
    ])
  })

  it('counts a stream where that is asked for, and knows the newer names of rules and bound [T.01]', async () => {
    await using test = await listening({
      rules: [{ reply: text('done', { usage: { inputTokens: 4, outputTokens: 2 } }) }],
    })
    const request = {
      model: 'm',
      messages: [
        { role: 'developer' as const, content: 'rules' },
        { role: 'user' as const, content: 'a?' },
      ],
      max_completion_tokens: 9,
      stream: true as const,
    }
    const usages = async (options: object) => {
      const seen: unknown[] = []
      for await (const chunk of await test.client.chat.completions.create({ ...request, ...options }))
        if (chunk.usage) seen.push([chunk.choices.length, chunk.usage])
      return seen
    }
    expect(await usages({})).toEqual([])
    expect(await usages({ stream_options: { include_usage: false } })).toEqual([])
    expect(await usages({ stream_options: { include_usage: true } })).toEqual([
      [0, expect.objectContaining({ prompt_tokens: 4, completion_tokens: 2, total_tokens: 6 })],
    ])
    expect(test.model.requests[0]).toMatchObject({
      messages: [{ role: 'system', content: 'rules' }, { role: 'user' }],
      maxTokens: 9,
    })
  })

  it('tells an unforeseen request why, in a way that no client repeats [T.01]', async () => {
    await using test = await listening({ replies: [] })
    const client = new OpenAI({ baseURL: test.baseURL, apiKey: 'any', maxRetries: 3 })
    const asked = client.chat.completions.create({
      model: 'm',
      messages: [{ role: 'user', content: 'hello' }],
    })
    await expect(asked).rejects.toThrow('no reply to request 1: user "hello"')
    await expect(client.embeddings.create({ model: 'm', input: 'x' })).rejects.toThrow('POST /v1/embeddings')
    expect(test.model.requests).toHaveLength(1)
    const said = await failing(() => test.model.assertDone())
    expect(said).toContain('request 1')
    expect(said).toContain('/v1/embeddings')
  })

  it('breaks, fails and is slow as instructed, streamed and whole [T.01]', async () => {
    await using test = await listening({
      rules: [
        { when: { user: 'fail' }, reply: failure(429, 'slow down', { retryAfterMs: 2_000, delayMs: 1 }) },
        { when: { user: 'cut' }, reply: { ...text('half of it'), broken: 'cut' } },
        { when: { user: 'hang' }, reply: { ...text('half of it'), broken: 'hang' } },
      ],
    })
    const ask = async (content: string, stream: boolean, signal: AbortSignal) => {
      const request = { model: 'm', messages: [{ role: 'user' as const, content }], tools: [], maxTokens: 9 }
      const parts = streamChat({ ...request, stream }, { baseUrl: test.baseURL, signal })
      return collectTurn(parts)
    }
    const open = new AbortController()
    for (const stream of [true, false]) {
      const failed = await ask('fail', stream, open.signal)
      expect(failed).toMatchObject({ error: { code: 'rate_limited', status: 429, retryAfterMs: 2_000 } })
      const cut = await ask('cut', stream, open.signal)
      expect(cut).toMatchObject({ ok: false, error: { retryable: true } })
      const abort = new AbortController()
      const hanging = ask('hang', stream, abort.signal)
      setTimeout(() => abort.abort(), 30)
      expect(await hanging).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    }
  })

  it('is one server however often it is asked for, gone when the model is disposed of [T.01]', async () => {
    const model = createScriptedModel({ replies: [text('hi')] })
    const [one, two] = await Promise.all([model.listen(), model.listen()])
    expect(one).toBe(two)
    expect(one).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/v1$/)
    await model[Symbol.asyncDispose]()
    await expect(fetch(`${one}/models`)).rejects.toThrow()
    await createScriptedModel({ replies: [] })[Symbol.asyncDispose]()
  })
})
