// Each protocol against a real HTTP server that speaks it, through the whole gateway: recorded streams in, chunks of chat
// completions out.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { gif, png } from '#specs/testing/images.ts'
import { type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import type { ModelProvider } from '../../providers/providers.ts'
import { customProvider, startGateway, testKey } from '../support/gateway.ts'

const golden = (name: string): string =>
  readFileSync(
    path.join(import.meta.dirname, '../../../specs/testing/provider-streams', `${name}-tools.sse`),
    'utf8',
  )

const tools = [
  { type: 'function', function: { name: 'get_weather', description: 'w', parameters: { type: 'object' } } },
]
const question = {
  messages: [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Paris and Tokyo?' },
  ],
  tools,
  stream: true,
}

interface Said {
  content: string
  reasoning: string
  reason: string | null
  usage: Record<string, unknown>
  calls: { id: string; name: string; arguments: string }[]
  error?: { type?: string; message?: string }
}

/** What a guest reads of the chunks. */
function read(text: string): Said {
  const said: Said = { content: '', reasoning: '', reason: null, usage: {}, calls: [] }
  for (const [, data = ''] of text.matchAll(/^data: (.*)$/gm)) {
    if (data === '[DONE]') continue
    const chunk = JSON.parse(data)
    if (chunk.error !== undefined) said.error = chunk.error
    if (chunk.usage !== undefined) said.usage = chunk.usage
    for (const { delta, finish_reason: reason } of chunk.choices ?? []) {
      said.content += delta.content ?? ''
      said.reasoning += delta.reasoning_content ?? ''
      said.reason = reason ?? said.reason
      for (const { index, id, function: piece } of delta.tool_calls ?? []) {
        said.calls[index] ??= { id, name: piece.name, arguments: '' }
        const call = said.calls[index]
        if (call !== undefined) call.arguments += piece.arguments
      }
    }
  }
  return said
}

function providerOf(kind: NonNullable<ModelProvider['kind']>, baseUrl: string): ModelProvider {
  const isChat = kind !== 'anthropic' && kind !== 'google' && kind !== 'azure'
  const model = kind === 'google' ? 'gemini-3.8-flash' : kind === 'anthropic' ? 'claude-sonnet-5-5' : 'm-1'
  return { ...customProvider(isChat ? baseUrl : baseUrl.replace(/\/v1$/, '')), name: kind, kind, model }
}

async function ask(kind: 'anthropic' | 'google', replies: readonly ServerReply[], bodies: readonly object[]) {
  await using server = await startModelServer(replies)
  await using test = await startGateway(providerOf(kind, server.baseUrl))
  const answers = []
  for (const body of bodies) answers.push(await test.request({ body }))
  return { answers, asked: server.asked, exchanges: test.exchanges, logged: test.logged.join() }
}

const pixels = { png: png(640, 480).toString('base64'), gif: gif(8, 8).toString('base64') }
const imagePart = (url: string) => ({ type: 'image_url', image_url: { url } })
const pictures = {
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Before:' },
        imagePart(`data:image/png;base64,${pixels.png}`),
        { type: 'text', text: 'After:' },
        imagePart(`data:image/gif;base64,${pixels.gif}`),
      ],
    },
  ],
}

/** The conversation after the answer, with the results of its calls. */
function after({ content, calls }: Said) {
  return {
    ...question,
    messages: [
      ...question.messages,
      {
        role: 'assistant',
        content,
        tool_calls: calls.map(({ id, ...call }) => ({ id, type: 'function', function: call })),
      },
      ...calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: '21' })),
    ],
  }
}

describe('a model of Anthropic', () => {
  it('answers a guest in chunks of chat completions, whatever the bytes are cut into [S3.06]', async () => {
    for (const pieceBytes of [1, 4_096]) {
      const { answers, asked, exchanges } = await ask(
        'anthropic',
        [{ body: golden('anthropic'), pieceBytes }],
        [question],
      )
      const said = read(answers[0]?.text ?? '')
      expect(said).toMatchObject({ content: 'I look — naïve 日本語.', reason: 'tool_calls' })
      expect(said.reasoning).toBe('Two cities, two calls.')
      expect(said.calls.map(({ name }) => name)).toEqual(['get_weather', 'now'])
      expect(JSON.parse(said.calls[0]?.arguments ?? '')).toBeTypeOf('object')
      expect(answers[0]?.text).toMatch(/data: \[DONE\]\n\n$/)
      expect(exchanges).toMatchObject([
        {
          status: 200,
          estimated: false,
          usage: { inputTokens: 115, cachedTokens: 100, outputTokens: 89 },
          responseModel: 'claude-sonnet-5',
        },
      ])
      expect(asked[0]).toMatchObject({ path: '/v1/messages', headers: { 'x-api-key': testKey } })
      expect(asked[0]?.headers.authorization).toBeUndefined()
    }
  })

  it('gets its system text and the last turns marked for its cache, and a number of tokens [S3.06]', async () => {
    const { asked } = await ask('anthropic', [{ body: golden('anthropic') }], [question])
    const cache_control = { type: 'ephemeral' }
    expect(asked[0]?.body).toMatchObject({
      model: 'claude-sonnet-5-5',
      max_tokens: 16_384,
      system: [{ type: 'text', text: 'Be brief.', cache_control }],
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Paris and Tokyo?', cache_control }] }],
      tools: [{ name: 'get_weather', input_schema: { type: 'object' } }],
      stream: true,
    })
  })

  it('gets images in the order of their texts', async () => {
    const { asked } = await ask('anthropic', [{ body: golden('anthropic') }], [pictures])
    const image = (media_type: string, data: string) => ({
      type: 'image',
      source: { type: 'base64', media_type, data },
    })
    expect(asked[0]?.body).toMatchObject({
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Before:' },
            image('image/png', pixels.png),
            { type: 'text', text: 'After:' },
            image('image/gif', pixels.gif),
          ],
        },
      ],
    })
  })

  it('gets images behind the results of calls, whatever their order', async () => {
    const call = { id: 'c1', type: 'function', function: { name: 'get_weather', arguments: '{}' } }
    const body = {
      ...question,
      messages: [
        ...question.messages,
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c1', content: '21' },
        ...pictures.messages,
      ],
    }
    const { asked } = await ask('anthropic', [{ body: golden('anthropic') }], [body])
    const turns = asked[0]?.messages as unknown as { content: { type: string }[] }[]
    const types = turns.at(-1)?.content.map(({ type }) => type)
    expect(types).toEqual(['tool_result', 'text', 'image', 'text', 'image'])
  })

  it('gets notes from then on where its server refuses images', async () => {
    const message = 'messages.0.content.1: this model does not support images'
    const { answers, asked } = await ask(
      'anthropic',
      [
        {
          status: 400,
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ error: { message } }),
        },
        { body: golden('anthropic') },
        { body: golden('anthropic') },
      ],
      [pictures, pictures],
    )
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    const images = asked.map(({ body }) => JSON.stringify(body).split('"type":"image"').length - 1)
    expect(images).toEqual([2, 0, 0])
    expect(JSON.stringify(asked[2]?.body)).toContain('Image left out (image/png, 640x480')
  })

  it('gets its signed thoughts back with the calls they led to, which the guest never sees [S3.06]', async () => {
    await using server = await startModelServer([{ body: golden('anthropic') }])
    await using test = await startGateway(providerOf('anthropic', server.baseUrl))
    const first = await test.request({ body: { ...question, reasoning_effort: 'high' } })
    expect(first.text).not.toContain('EqQBCgIYAhIM1gbcDa9GJwZA2b3h')
    await test.request({ body: { ...after(read(first.text)), reasoning_effort: 'high' } })
    const turns = server.asked[1]?.messages as unknown as { content: { type: string }[] }[]
    expect(turns[1]?.content[0]).toMatchObject({
      type: 'thinking',
      thinking: 'Two cities, two calls.',
      signature: expect.stringContaining('EqQBCgIYAhIM1gbcDa9GJwZA2b3h'),
    })
    expect(server.asked[1]?.body.thinking).toEqual({ type: 'adaptive' })
    expect(turns[2]?.content.map(({ type }) => type)).toEqual(turns[2]?.content.map(() => 'tool_result'))
  })

  it('is asked in the other form where it refuses a form of thinking, then without [S3.06]', async () => {
    const refusal = {
      status: 400,
      headers: { 'content-type': 'application/json' },
      body: '{"type":"error","error":{"type":"invalid_request_error","message":"thinking: adaptive is not supported"}}',
    }
    const { asked, answers } = await ask(
      'anthropic',
      [refusal, refusal, { body: golden('anthropic') }],
      [{ ...question, reasoning_effort: 'low' }],
    )
    expect(answers[0]?.status).toBe(200)
    expect(asked.map(({ body }) => (body.thinking as { type?: string } | undefined)?.type)).toEqual([
      'adaptive',
      'enabled',
      undefined,
    ])
  })

  it('says no in the gateway’s form, and its busy stream makes others wait [G.05]', async () => {
    const headers = { 'content-type': 'application/json' }
    const { answers } = await ask(
      'anthropic',
      [
        {
          status: 401,
          headers,
          body: `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key ${testKey}"}}`,
        },
      ],
      [question],
    )
    expect(answers[0]).toMatchObject({ status: 401 })
    expect(answers[0]?.text).toContain('invalid x-api-key')
    expect(answers[0]?.text).not.toContain(testKey)
    const inside = await ask(
      'anthropic',
      [
        {
          body: 'event: error\ndata: {"type":"error","error":{"type":"rate_limit_error","message":"Number of requests. Try again in 1s"}}\n\n',
        },
      ],
      [question],
    )
    expect(read(inside.answers[0]?.text ?? '').error).toMatchObject({ type: 'rate_limit_error' })
    expect(inside.answers[0]?.text).not.toContain('[DONE]')
    expect(inside.exchanges).toMatchObject([{ error: expect.stringContaining('rate_limited') }])
    expect(inside.logged).toContain('rate-limits')
  })

  it('answers whole for a guest that does not stream [S3.06]', async () => {
    const { answers } = await ask(
      'anthropic',
      [{ body: golden('anthropic') }],
      [{ ...question, stream: false }],
    )
    expect(answers[0]?.headers['content-type']).toBe('application/json')
    expect(JSON.parse(answers[0]?.text ?? '')).toMatchObject({
      choices: [
        { finish_reason: 'tool_calls', message: { content: 'I look — naïve 日本語.', tool_calls: [{}, {}] } },
      ],
      usage: { prompt_tokens: 115 },
    })
  })

  it('cannot fill the host: an answer without an end is ended, an early end is no success [S3.06] [G.06]', async () => {
    const event = `event: content_block_delta\ndata: ${JSON.stringify({ type: 'content_block_delta', index: 0, delta: { type: 'signature_delta', signature: 'x'.repeat(65_536) } })}\n\n`
    const { answers } = await ask('anthropic', [{ body: event.repeat(300) }], [question])
    expect(answers[0]?.text).toContain('response_too_large')
    const early = await ask('anthropic', [{ body: golden('anthropic').slice(0, 900) }], [question])
    expect(early.answers[0]?.text).not.toContain('[DONE]')
  })
})

describe('a model of Google', () => {
  it('answers a guest in chunks of chat completions, with ids for its calls [S3.06]', async () => {
    const { answers, asked, exchanges } = await ask('google', [{ body: golden('google') }], [question])
    const said = read(answers[0]?.text ?? '')
    expect(said.calls.length).toBeGreaterThan(0)
    for (const { id, arguments: text } of said.calls) {
      expect(id).toMatch(/^[0-9a-z]{9}$/)
      expect(JSON.parse(text)).toBeTypeOf('object')
    }
    expect(asked[0]).toMatchObject({
      path: '/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse',
      headers: { 'x-goog-api-key': testKey },
      body: {
        systemInstruction: { parts: [{ text: 'Be brief.' }] },
        contents: [{ role: 'user', parts: [{ text: 'Paris and Tokyo?' }] }],
        generationConfig: { maxOutputTokens: 16_384 },
      },
    })
    expect(exchanges[0]).toMatchObject({ status: 200, estimated: false })
    expect(exchanges[0]?.usage.inputTokens).toBeGreaterThan(0)
  })

  it('gets images in the order of their texts, and a note for a GIF, which it cannot see', async () => {
    const { asked } = await ask('google', [{ body: golden('google') }], [pictures])
    expect(asked[0]?.body).toMatchObject({
      contents: [
        {
          role: 'user',
          parts: [
            { text: 'Before:' },
            { inlineData: { mimeType: 'image/png', data: pixels.png } },
            { text: 'After:' },
            { text: expect.stringContaining('cannot see GIF') },
          ],
        },
      ],
    })
  })

  it('gets the signatures of its calls back [S3.06]', async () => {
    await using server = await startModelServer([{ body: golden('google') }])
    await using test = await startGateway(providerOf('google', server.baseUrl))
    const first = await test.request({ body: question })
    await test.request({ body: after(read(first.text)) })
    const sentBack = server.asked[1]?.body as { contents: { parts: Record<string, unknown>[] }[] } | undefined
    const signatures = sentBack?.contents[1]?.parts.flatMap(({ thoughtSignature: one }) => one ?? []) ?? []
    const sent = [...golden('google').matchAll(/"thoughtSignature": ?"([^"]+)"/g)].map(([, one]) => one)
    expect(signatures.length).toBeGreaterThan(0)
    for (const one of signatures) expect(sent).toContain(one)
  })
})

describe('kinds of chat completions', () => {
  const hello = {
    body: 'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
  }

  it.each([
    ['openai', '/v1/chat/completions', 'authorization', 'max_completion_tokens'],
    ['xai', '/v1/chat/completions', 'authorization', 'max_tokens'],
    ['ollama', '/v1/chat/completions', 'authorization', 'max_tokens'],
    [
      'azure',
      '/openai/deployments/m-1/chat/completions?api-version=2024-10-21',
      'api-key',
      'max_completion_tokens',
    ],
  ] as const)(
    '%s is asked at its path, with its header and field [S3.06]',
    async (kind, at, header, field) => {
      await using server = await startModelServer([hello])
      await using test = await startGateway(providerOf(kind, server.baseUrl))
      expect(await test.request({ body: question })).toMatchObject({ status: 200 })
      expect(server.asked[0]).toMatchObject({
        path: at,
        headers: { [header]: header === 'authorization' ? `Bearer ${testKey}` : testKey },
        body: { [field]: 16_384, stream_options: { include_usage: true } },
      })
    },
  )
})
