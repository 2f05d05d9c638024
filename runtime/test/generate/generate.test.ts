// generate and stream through the library's own entry, against a server of scripted bytes.
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { delta, done, failure, reply, toolDelta } from '#specs/testing/model-replies.ts'
import { type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import {
  createLLMEnvironment,
  generate,
  type LLMChatMessage,
  LLMError,
  type LLMRequest,
  type LLMStreamChunk,
  type ProviderConfig,
  stream,
} from '../../index.ts'

const messages: LLMChatMessage[] = [{ role: 'user', content: 'hello' }]

async function open(script: Script | readonly ServerReply[], config: ProviderConfig = {}) {
  const server = await startModelServer(script)
  const environment = createLLMEnvironment({
    providers: { 'openai-compatible': { baseUrl: server.baseUrl, ...config } },
  })
  const request = { environment, provider: 'openai-compatible', model: 'm', messages } satisfies LLMRequest
  return {
    server,
    request,
    [Symbol.asyncDispose]: async () => {
      await environment[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    },
  }
}

/** What a stream told, and what it returned or threw. */
async function readStream(request: LLMRequest, onChunk: () => void = () => undefined) {
  const chunks: LLMStreamChunk[] = []
  const reading = stream(request)
  try {
    for (;;) {
      const next = await reading.next()
      if (next.done === true) return { chunks, response: next.value, error: null }
      chunks.push(next.value)
      onChunk()
    }
  } catch (error) {
    return { chunks, response: null, error }
  }
}

const calling = reply({
  text: ['I will ', 'look.'],
  reasoning: 'hm',
  calls: [
    { id: 'c1', name: 'read_it', arguments: { path: 'a' } },
    { id: 'c1', name: 'read_it', arguments: { path: 'b' } },
    { name: 'other', arguments: '' },
  ],
})
const tools = {
  read_it: {
    description: 'Reads',
    parameters: z.object({ path: z.string().describe('Which') }),
    readOnly: true,
  },
  other: { description: 'Changes', parameters: { type: 'object', properties: {} } },
}

describe('generate and stream', () => {
  it('give the same response, with calls, usage, the message for the transcript and the stop in one word [S2.07] [S2.08]', async () => {
    await using test = await open([calling])
    const whole = await generate({ ...test.request, tools })
    const told = await readStream({ ...test.request, tools })
    expect(whole).toMatchObject({
      type: 'tool_calls',
      content: 'I will look.',
      usage: { inputTokens: 10, outputTokens: 5, reasoningTokens: 0 },
      stopKind: 'tool',
    })
    expect(whole.tool_calls?.map((call) => call.function)).toEqual([
      { name: 'read_it', arguments: '{"path":"a"}' },
      { name: 'read_it', arguments: '{"path":"b"}' },
      { name: 'other', arguments: '{}' },
    ])
    const ids = whole.tool_calls?.map(({ id }) => id) ?? []
    expect(ids[0]).toBe('c1')
    expect(new Set(ids).size).toBe(3)
    expect(whole.assistantMessage).toEqual({
      role: 'assistant',
      content: 'I will look.',
      tool_calls: whole.tool_calls,
      reasoning_content: 'hm',
    })
    expect(told.chunks).toEqual([{ reasoningContent: 'hm' }, { content: 'I will ' }, { content: 'look.' }])
    const nameless = (response: unknown) => JSON.stringify(response).replaceAll(/"id":"\w+"/g, '')
    expect(nameless(told.response)).toBe(nameless(whole))
  })

  it('offer the same tools under the same permission, sorted, byte for byte the same each time [S2.04] [S2.07]', async () => {
    await using test = await open([reply({ text: 'hi' })])
    for (const toolPermission of ['auto', 'read', 'ask'] as const) {
      await generate({ ...test.request, tools, toolPermission })
      await readStream({
        ...test.request,
        tools: { other: tools.other, read_it: tools.read_it },
        toolPermission,
      })
    }
    const sent = test.server.asked.map(({ text }) => text)
    expect(sent[0]).toBe(sent[1])
    expect(sent[2]).toBe(sent[3])
    expect(sent[4]).toBe(sent[0])
    const offered = test.server.asked.map((asked) => asked.tools.map((tool) => tool.function.name))
    expect(offered[0]).toEqual(['other', 'read_it'])
    expect(offered[2]).toEqual(['read_it'])
    expect(test.server.asked[2]?.body.tools).toEqual([
      {
        type: 'function',
        function: {
          name: 'read_it',
          description: 'Reads',
          parameters: {
            type: 'object',
            properties: { path: { type: 'string', description: 'Which' } },
            required: ['path'],
          },
        },
      },
    ])
  })

  it('tell names that no provider takes under others, and give them back as they were [S0.11]', async () => {
    const name = 'look up: été'
    await using test = await open((asked) => {
      const first = asked.tools[0]?.function.name ?? ''
      return reply({ calls: [{ id: 'c', name: first, arguments: {} }] })
    })
    const odd = { [name]: { description: 'x', parameters: { type: 'object', properties: {} } } }
    const first = await generate({ ...test.request, tools: odd, toolChoice: { name } })
    expect(first.tool_calls?.[0]?.function.name).toBe(name)
    await generate({
      ...test.request,
      tools: odd,
      messages: [...messages, first.assistantMessage, { role: 'tool', tool_call_id: 'c', content: 'x' }],
    })
    expect(test.server.asked[0]?.body).toMatchObject({
      tool_choice: { function: { name: 'look_up___t_' } },
    })
    expect(test.server.asked[1]?.messages[1]?.tool_calls?.[0]?.function.name).toBe('look_up___t_')
  })

  it('use the defaults of the environment unless the call says otherwise [S2.03] [S2.04]', async () => {
    await using server = await startModelServer([reply({ text: 'hi' })])
    await using environment = createLLMEnvironment({
      providers: { mine: { kind: 'openai-compatible', baseUrl: server.baseUrl, maxTokens: 50 } },
      defaults: { reasoningEffort: 'high', toolPermission: 'read' },
    })
    const request = { environment, provider: 'mine', model: 'm', messages, tools }
    await generate(request)
    await generate({ ...request, reasoningEffort: 'low', toolPermission: 'auto', maxTokens: 7 })
    await generate({ ...request, reasoningEffort: 'default' })
    expect(server.asked.map(({ body }) => [body.reasoning_effort, body.max_tokens])).toEqual([
      ['high', 50],
      ['low', 7],
      [undefined, 50],
    ])
    expect(server.asked.map((asked) => asked.tools.length)).toEqual([1, 2, 1])
  })

  it('find calls that a model wrote into its text, where tools were offered [G.07]', async () => {
    const text = '<tool_call>{"name": "read_it", "arguments": {"path": "a"}}</tool_call>'
    await using test = await open([reply({ text })])
    expect(await generate({ ...test.request, tools })).toMatchObject({
      type: 'tool_calls',
      tool_calls: [{ function: { name: 'read_it', arguments: '{"path":"a"}' } }],
    })
    expect(await generate(test.request)).toMatchObject({ type: 'text', content: text })
  })

  it('never give a call whose arguments the bound of tokens cut off [S2.08]', async () => {
    const cut = [
      delta({ role: 'assistant', content: 'See:' }),
      toolDelta({ index: 0, id: 'a', function: { name: 'read_it', arguments: '{"path":"a"}' } }),
      toolDelta({ index: 1, id: 'b', function: { name: 'read_it', arguments: '{"path":"b' } }),
      toolDelta({ index: 2, id: 'c', function: { name: 'other', arguments: '' } }),
      delta({}, 'length'),
      done,
    ]
    await using test = await open([{ body: cut.join('') }])
    const response = await generate({ ...test.request, tools })
    expect(response).toMatchObject({ type: 'tool_calls', stopKind: 'length', tool_calls: [{ id: 'a' }] })
    expect(response.tool_calls?.length).toBe(1)
  })
})

describe('failures', () => {
  const fast = { maxAttempts: 3 }

  it('that may pass are asked again, also in a stream that has yielded nothing [S2.07]', async () => {
    const busy = { ...failure(503, 'busy'), headers: { 'retry-after': '0' } }
    for (const ask of [generate, async (request: LLMRequest) => (await readStream(request)).response]) {
      await using test = await open([busy, reply({ text: 'hi' })], fast)
      expect(await ask(test.request)).toMatchObject({ content: 'hi' })
      expect(test.server.asked.length).toBe(2)
    }
  })

  it('in the middle of what was yielded end the stream, and are thrown with a code [S2.07]', async () => {
    await using test = await open([reply({ text: ['half', 'way'], open: true }), reply({ text: 'hi' })], fast)
    const { chunks, error } = await readStream(test.request)
    expect(chunks).toEqual([{ content: 'half' }, { content: 'way' }])
    expect(error).toBeInstanceOf(LLMError)
    expect(error).toMatchObject({ kind: 'truncated', retryable: true, provider: 'openai-compatible' })
    expect(test.server.asked.length).toBe(1)
    await using again = await open([reply({ text: 'half', open: true }), reply({ text: 'hi' })], fast)
    expect((await generate(again.request)).content).toBe('hi')
  })

  it('that cannot pass are thrown at once [S2.07]', async () => {
    await using test = await open([failure(401, 'no')], fast)
    await expect(generate(test.request)).rejects.toMatchObject({ kind: 'unauthorized', status: 401 })
    expect(test.server.asked.length).toBe(1)
  })
})

describe('a call that is aborted', () => {
  const slow: ServerReply = {
    body: delta({ content: 'a' }).repeat(100),
    pieceBytes: 90,
    pauseMs: 20,
    after: 'hang',
  }

  it('throws the reason of its signal and lets the server go [S2.04]', async () => {
    await using test = await open([slow])
    const controller = new AbortController()
    const reason = new Error('enough')
    const { error } = await readStream({ ...test.request, abortSignal: controller.signal }, () =>
      controller.abort(reason),
    )
    expect(error).toBe(reason)
    await expect.poll(() => test.server.abandoned()).toBe(1)
    await expect(generate({ ...test.request, abortSignal: AbortSignal.abort(reason) })).rejects.toBe(reason)
    expect(test.server.asked.length).toBe(1)
  })

  it('is ended by leaving its stream, which leaves nothing behind [S2.07]', async () => {
    await using test = await open([slow])
    for await (const chunk of stream(test.request)) {
      expect(chunk).toEqual({ content: 'a' })
      break
    }
    await expect.poll(() => test.server.abandoned()).toBe(1)
  })
})

describe('misuse', () => {
  it('is thrown before anything is sent [S2.02 S2.04 S2.11 S2.09]', async () => {
    await using test = await open([reply({ text: 'hi' })])
    const parameters = { type: 'object', properties: {} }
    for (const wrong of [
      { provider: '' },
      { model: '' },
      { messages: 'hello' },
      { reasoningEffort: 'extreme' },
      { toolPermission: 'write' },
      { providers: {} },
      { skillRoots: [] },
      { mcpConfig: {} },
      { tools: { read_file: { description: 'x', parameters } } },
      { tools: { load_skill: { description: 'x', parameters } } },
      { tools: { '': { description: 'x', parameters } } },
      { tools: { a: { description: 'x', parameters } }, extraTools: { a: { description: 'x', parameters } } },
      { builtIns: { telepathy: true } },
      { toolChoice: { name: 'nobody' } },
    ])
      await expect(
        generate({ ...test.request, ...(wrong as object) }),
        JSON.stringify(wrong),
      ).rejects.toMatchObject({ code: 'invalid_options' })
    await expect(generate({ ...test.request, provider: 'nobody' })).rejects.toThrow(/there is no provider/)
    expect(test.server.asked).toEqual([])
  })
})
