import { describe, expect, it } from 'vitest'
import { requestMaxBytes } from '#specs/protocol/completion-request.ts'
import { dataUrl, png } from '#specs/testing/images.ts'
import { offlineProvider } from '../../providers/providers.ts'
import {
  chatBody,
  customProvider,
  sendStream,
  sse,
  startGateway,
  startUpstream,
  testKey,
  textChunk,
} from '../support/gateway.ts'
import { until } from '../support/run-values.ts'

const usageChunk = (prompt: number, completion: number): string =>
  sse({ choices: [], usage: { prompt_tokens: prompt, completion_tokens: completion } })

describe('the model route', () => {
  it('streams an answer through and reports its usage [S1.07]', async () => {
    await using upstream = await startUpstream((response) =>
      sendStream(
        response,
        textChunk('hel'),
        textChunk('lo'),
        usageChunk(10, 2),
        usageChunk(10, 5),
        sse('[DONE]'),
      ),
    )
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request()
    expect(answer.status).toBe(200)
    expect(answer.headers['content-type']).toBe('text/event-stream')
    expect(answer.text).toBe(
      textChunk('hel') + textChunk('lo') + usageChunk(10, 2) + usageChunk(10, 5) + sse('[DONE]'),
    )
    expect(test.exchanges).toMatchObject([
      {
        status: 200,
        estimated: false,
        usage: { requests: 1, inputTokens: 10, outputTokens: 5, reasoningTokens: 0 },
      },
    ])
    expect(test.gateway.usage()).toMatchObject({ requests: 1, inputTokens: 10, outputTokens: 5 })
  })

  it('refuses an image by its address, and gives a model that cannot see a note for an image [S1.07]', async () => {
    await using upstream = await startUpstream((response) => sendStream(response, sse('[DONE]')))
    await using test = await startGateway(customProvider(upstream.url))
    const bodyWith = (url: string): object => ({
      ...chatBody,
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }],
    })
    const refused = await test.request({ body: bodyWith('https://example.com/chart.png') })
    expect(refused.status).toBe(400)
    expect(refused.text).toContain('remote addresses are refused')
    expect(upstream.requests).toHaveLength(0)
    await test.request({ body: bodyWith(dataUrl('image/png', png(640, 480))) })
    expect(upstream.requests[0]?.body).toContain('Image left out (image/png, 640x480')
    expect(upstream.requests[0]?.body).not.toContain('base64')
  })

  it('sends as many images as the configuration says that a model sees [G.09]', async () => {
    await using upstream = await startUpstream((response) => sendStream(response, sse('[DONE]')))
    await using test = await startGateway({ ...customProvider(upstream.url), maxImages: 1 })
    const parts = [1, 2].map((width) => ({
      type: 'image_url',
      image_url: { url: dataUrl('image/png', png(width, 1)) },
    }))
    await test.request({ body: { ...chatBody, messages: [{ role: 'user', content: parts }] } })
    expect(upstream.requests[0]?.body).toContain('Image left out (image/png, 1x1')
    expect(upstream.requests[0]?.body).toContain(dataUrl('image/png', png(2, 1)))
  })

  it('makes the request anew: own headers, own model, bounded max_tokens, usage asked [S0.07 G.01 G.05 S1.07]', async () => {
    await using upstream = await startUpstream((response) => sendStream(response, sse('[DONE]')))
    await using test = await startGateway(customProvider(upstream.url))
    await test.request({
      headers: { authorization: 'Bearer stolen', 'x-evil': '1', cookie: 'a=b', 'user-agent': 'guest' },
      body: { ...chatBody, model: 'expensive/model', max_tokens: 10_000_000 },
    })
    const sent = upstream.requests[0]
    expect(sent?.request.url).toBe('/v1/chat/completions')
    expect(sent?.request.headers).toMatchObject({
      authorization: `Bearer ${testKey}`,
      'user-agent': expect.stringMatching(/^caisson\//),
    })
    expect(sent?.request.headers).not.toHaveProperty('x-evil')
    expect(sent?.request.headers).not.toHaveProperty('cookie')
    expect(JSON.parse(sent?.body ?? '')).toEqual({
      ...chatBody,
      model: 'test/model',
      max_tokens: 32_768,
      stream_options: { include_usage: true },
    })
  })

  it.each([
    ['an unknown field', { ...chatBody, nvext: {} }, 'nvext'],
    ['an unknown field in a message', { messages: [{ role: 'user', content: 'x', name: 'y' }] }, 'name'],
    ['a role that is not known', { messages: [{ role: 'developer', content: 'x' }] }, 'role'],
    ['content as a list', { messages: [{ role: 'user', content: [] }] }, 'content'],
    ['no messages', { messages: [] }, 'messages'],
    ['prototype keys', '{"messages":[{"role":"user","content":"x"}],"__proto__":{"a":1}}', '__proto__'],
    ['text', 'hello', 'JSON'],
    ['bytes that are not UTF-8', Buffer.from([0xff, 0xfe, 0x7b]), 'UTF-8'],
    ['deep nesting', `{"messages":${'['.repeat(100_000)}`, 'deeper'],
  ])('refuses %s by name, without asking the upstream [S0.07 G.05]', async (_, body, word) => {
    await using upstream = await startUpstream((response) => sendStream(response))
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request({ body })
    expect(answer).toMatchObject({ status: 400, code: 'invalid_request' })
    expect(answer.text).toContain(word)
    expect(upstream.requests).toHaveLength(0)
  })

  it('refuses a request beyond its bound [S0.07]', async () => {
    await using test = await startGateway(offlineProvider(false))
    const body = Buffer.alloc(requestMaxBytes + 1, 0x20)
    expect(await test.request({ body })).toMatchObject({ status: 413, code: 'request_too_large' })
  })

  it('ends a stream that is longer than the requested tokens can be, and cancels it at the server [G.05]', async () => {
    const gone = Promise.withResolvers<void>()
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.on('close', () => gone.resolve())
      const more = (): void => {
        while (!response.destroyed && response.write(textChunk('more '.repeat(2_000))));
      }
      response.on('drain', more)
      more()
    })
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request({ body: { ...chatBody, max_tokens: 100 } })
    expect(Buffer.byteLength(answer.text)).toBeLessThan(2 * 1024 * 1024)
    await gone.promise
    expect(test.exchanges[0]).toMatchObject({ error: expect.stringContaining('no more were requested') })
  })

  it('lists the one model that the run may use [S0.06]', async () => {
    await using test = await startGateway(customProvider('http://127.0.0.1:9/v1'))
    const answer = await test.request({ method: 'GET', path: '/v1/models' })
    expect(answer.status).toBe(200)
    expect(JSON.parse(answer.text)).toMatchObject({ data: [{ id: 'test/model' }] })
  })
})

describe('everything else', () => {
  it.each([
    ['another host', { authority: 'example.com', path: '/v1/chat/completions' }, 'example.com'],
    ['a path that names a host', { path: '//evil.example/v1/chat/completions' }, 'evil.example'],
    ['CONNECT', { method: 'CONNECT', authority: 'evil.example:443' }, 'evil.example:443'],
    ['another port of the name', { authority: 'gateway:22' }, 'gateway:22'],
  ])('refuses %s with a reason and reports it [G.03]', async (_, request, word) => {
    await using upstream = await startUpstream((response) => sendStream(response))
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request(request)
    expect(answer).toMatchObject({ status: 403, code: 'egress_denied' })
    expect(answer.text).toContain('refused: no egress policy')
    expect(test.denied).toHaveLength(1)
    expect(test.denied[0]?.target).toContain(word)
    expect(upstream.requests).toHaveLength(0)
  })

  it('resets a path that is a whole address, as HTTP/2 wants it [C.02]', async () => {
    await using upstream = await startUpstream((response) => sendStream(response))
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request({ path: 'http://evil.example/v1/chat/completions' })
    expect(answer).toMatchObject({ status: 0, text: '' })
    expect(answer.reset).not.toBe(0)
    expect(upstream.requests).toHaveLength(0)
  })

  it.each([
    '/v1/chat/completions/',
    '/v1/chat/completions?x=1',
    '/v1/../v1/chat/completions',
    '/v1/%63hat/completions',
    '/V1/chat/completions',
    '/',
    '/constructor',
  ])('has no path %s [C.02]', async (path) => {
    await using test = await startGateway(offlineProvider(false))
    expect(await test.request({ path })).toMatchObject({ status: 404, code: 'not_found' })
  })

  it('takes each path with its method alone [C.02]', async () => {
    await using test = await startGateway(offlineProvider(false))
    expect(await test.request({ method: 'GET' })).toMatchObject({ status: 405, code: 'method_not_allowed' })
    expect(await test.request({ method: 'PUT', path: '/v1/models' })).toMatchObject({ status: 405 })
  })

  it('reports a bounded number of refusals, however many there are [S0.07]', async () => {
    await using test = await startGateway(offlineProvider(false))
    for (let batch = 0; batch < 6; batch += 1) {
      await Promise.all(Array.from({ length: 50 }, () => test.request({ authority: 'a.example' })))
    }
    expect(test.denied).toHaveLength(256)
    expect(test.denied.at(-1)?.reason).toContain('not listed')
  })
})

describe('the budget of a run', () => {
  it('refuses, with its own code, once the tokens are used up [S0.07] [G.05]', async () => {
    await using upstream = await startUpstream((response) =>
      sendStream(response, usageChunk(60, 50), sse('[DONE]')),
    )
    await using test = await startGateway(customProvider(upstream.url), { limits: { maxTokens: 100 } })
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(await test.request()).toMatchObject({ status: 429, code: 'limit_tokens' })
    expect(upstream.requests).toHaveLength(1)
    const sent = JSON.parse(upstream.requests[0]?.body ?? '')
    expect(sent.max_tokens).toBe(100 - Math.ceil(JSON.stringify(chatBody).length / 4))
  })

  it('refuses one more than its requests, and what its money does not allow [G.05]', async () => {
    await using upstream = await startUpstream((response) =>
      sendStream(response, usageChunk(1_000, 1_000), sse('[DONE]')),
    )
    const provider = { ...customProvider(upstream.url), price: { input: 1, output: 9 } }
    await using few = await startGateway(provider, { limits: { maxTokens: 1_000_000, maxRequests: 1 } })
    expect(await few.request()).toMatchObject({ status: 200 })
    expect(await few.request()).toMatchObject({ status: 429, code: 'limit_requests' })
    await using poor = await startGateway(provider, { limits: { maxTokens: 1_000_000, maxCostUsd: 0.01 } })
    expect(await poor.request()).toMatchObject({ status: 200 })
    expect(await poor.request()).toMatchObject({ status: 429, code: 'limit_cost' })
    expect(poor.exchanges[0]).toMatchObject({ costUsd: 0.01 })
    expect(poor.exchanges[1]).not.toHaveProperty('costUsd')
    expect(upstream.requests).toHaveLength(2)
  })

  it('holds for requests side by side: they cannot go beyond it together [G.05]', async () => {
    await using upstream = await startUpstream((response, _request, body) => {
      const { max_tokens } = JSON.parse(body)
      setTimeout(() => sendStream(response, usageChunk(18, max_tokens), sse('[DONE]')), 20)
    })
    await using test = await startGateway(customProvider(upstream.url), { limits: { maxTokens: 1_000 } })
    const body = { ...chatBody, max_tokens: 300 }
    const answers = await Promise.all(Array.from({ length: 6 }, () => test.request({ body })))
    expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(3)
    expect(answers.map(({ code }) => code)).toContain('limit_tokens')
    const { inputTokens, outputTokens } = test.gateway.usage()
    expect(inputTokens + outputTokens).toBeLessThanOrEqual(1_010)
  })

  it('holds for requests that the guest gives up before their answer begins [G.05]', async () => {
    await using upstream = await startUpstream(() => undefined)
    const provider = { ...customProvider(upstream.url), price: { input: 1, output: 1 } }
    await using test = await startGateway(provider, { limits: { maxTokens: 1_000, maxCostUsd: 1 } })
    const body = { ...chatBody, messages: [{ role: 'user', content: 'x'.repeat(1_600) }], max_tokens: 10 }
    for (let count = 1; count <= 2; count += 1) {
      const stream = test.open({ body })
      await until(() => upstream.requests.length === count, 'the request')
      stream.destroy()
      await test.exchanged(count)
    }
    const [first] = test.exchanges
    expect(first).toMatchObject({ status: 503, estimated: true, usage: { requests: 1, outputTokens: 0 } })
    expect(first?.usage.inputTokens).toBeGreaterThan(400)
    expect(first?.costUsd).toBeGreaterThan(0)
    // An answer that comes whole may have been written whole.
    const whole = test.open({ body: { ...body, messages: chatBody.messages, stream: false, max_tokens: 90 } })
    await until(() => upstream.requests.length === 3, 'the request')
    whole.destroy()
    await test.exchanged(3)
    expect(test.exchanges[2]?.usage.outputTokens).toBe(90)
    expect(await test.request({ body })).toMatchObject({ status: 429, code: 'limit_tokens' })
  })

  it('counts by estimate when the provider reports nothing [G.05]', async () => {
    await using upstream = await startUpstream((response) =>
      sendStream(response, textChunk('x'.repeat(4_000)), sse('[DONE]')),
    )
    await using test = await startGateway(customProvider(upstream.url))
    await test.request()
    expect(test.exchanges[0]).toMatchObject({ estimated: true })
    expect(test.exchanges[0]?.usage.inputTokens).toBeGreaterThan(0)
    expect(test.exchanges[0]?.usage.outputTokens).toBeGreaterThan(100)
  })
})

it('asks for usage until a server refuses it, then never again [S0.06]', async () => {
  await using upstream = await startUpstream((response, _request, body) => {
    if (!body.includes('stream_options')) return sendStream(response, sse('[DONE]'))
    response.writeHead(400, { 'content-type': 'application/json' })
    response.end(
      '{"error":{"message":"stream_options is not supported","type":"BadRequestError","code":400}}',
    )
  })
  await using test = await startGateway(customProvider(upstream.url))
  expect(await test.request()).toMatchObject({ status: 200 })
  expect(await test.request()).toMatchObject({ status: 200 })
  expect(upstream.requests).toHaveLength(3)
})
