// What watchers learn of a model request, from its start to its end.
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { Secret } from '../../keys/secret.ts'
import {
  chatBody,
  customProvider,
  sendStream,
  sse,
  startGateway,
  startUpstream,
  textChunk,
} from '../support/gateway.ts'

const source = { 'x-caisson-agent': 'root/a', 'x-caisson-step': 'build', 'x-caisson-turn': '3' }

/** Answers `count` requests one after the other, each when it has arrived. */
async function finishInTurn(finish: readonly (() => void)[], count: number): Promise<void> {
  for (let served = 0; served < count; served += 1) {
    while (finish.length <= served) await sleep(5)
    finish[served]?.()
  }
}

describe('a model request', () => {
  it('is reported with agent, step and turn, what it waits for, and its usage with cached and reasoning tokens [S1.10]', async () => {
    const usage = {
      prompt_tokens: 900,
      prompt_tokens_details: { cached_tokens: 800 },
      completion_tokens: 50,
      completion_tokens_details: { reasoning_tokens: 40 },
    }
    await using upstream = await startUpstream((response) => {
      response.setHeader('x-request-id', 'req-77')
      sendStream(response, textChunk('hi'), sse({ choices: [], usage }), sse('[DONE]'))
    })
    await using test = await startGateway(customProvider(upstream.url))
    await test.request({ headers: source })
    expect(test.reported).toMatchObject([
      { type: 'model-start', requestId: 'model-1', agentPath: 'root/a', stepId: 'build', turn: 3 },
      { type: 'model-wait', requestId: 'model-1', for: 'answer' },
      { type: 'model-wait', requestId: 'model-1', for: 'rest' },
      {
        type: 'model-end',
        requestId: 'model-1',
        providerRequestId: 'req-77',
        status: 200,
        usage: { inputTokens: 900, cachedTokens: 800, outputTokens: 50, reasoningTokens: 40 },
      },
    ])
    expect(test.gateway.usage()).toMatchObject({ cachedTokens: 800 })
  })

  it.each([
    ['another than the requested one', 'other-model-0613', { responseModel: 'other-model-0613' }],
    ['the requested one', 'local', {}],
    ['none', undefined, {}],
    ['one of another form', 7, {}],
    ['one that holds the key', 'sk-key-of-the-server', { responseModel: '[redacted]' }],
  ])(
    'is reported with the model that answered, where the server names %s [S1.10 R.04]',
    async (_, model, expected) => {
      const usage = { prompt_tokens: 9, completion_tokens: 5 }
      await using upstream = await startUpstream((response) =>
        sendStream(response, textChunk('hi'), sse({ model, choices: [], usage }), sse('[DONE]')),
      )
      const provider = {
        ...customProvider(upstream.url),
        model: 'local',
        key: new Secret('sk-key-of-the-server'),
      }
      await using test = await startGateway(provider)
      await test.request()
      const end = test.reported.at(-1)
      expect(end).toMatchObject({ type: 'model-end', usage: { inputTokens: 9 }, ...expected })
      if (!('responseModel' in expected)) expect(end).not.toHaveProperty('responseModel')
    },
  )

  it('is reported without what the agent claims in another form [S0.07]', async () => {
    await using upstream = await startUpstream((response) => sendStream(response, sse('[DONE]')))
    await using test = await startGateway(customProvider(upstream.url))
    await test.request({
      headers: { 'x-caisson-agent': '/etc/passwd', 'x-caisson-step': 'a b', 'x-caisson-turn': '-1' },
    })
    expect(test.reported[0]).toEqual({ type: 'model-start', requestId: 'model-1' })
    expect(upstream.requests[0]?.request.headers).not.toHaveProperty('x-caisson-agent')
  })

  it('has one start and one end, also where the gateway refuses it [S1.10]', async () => {
    await using test = await startGateway(customProvider('http://127.0.0.1:9/v1'))
    await test.request({ body: 'hello' })
    expect(test.reported).toMatchObject([
      { type: 'model-start', requestId: 'model-1' },
      {
        type: 'model-end',
        requestId: 'model-1',
        status: 400,
        error: expect.stringContaining('invalid_request'),
      },
    ])
  })

  it('that the server turns away names the cause, and until when it waits, before it is sent again [S1.10 G.05]', async () => {
    await using server = await startModelServer([
      failure(429, 'slow down', 'openai', { 'retry-after': '0.2' }),
      reply({ text: 'done' }),
    ])
    await using test = await startGateway(customProvider(server.baseUrl))
    const before = Date.now()
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(test.reported.map((item) => ('for' in item ? item.for : item.type))).toEqual([
      ...['model-start', 'answer', 'model-retry', 'pause', 'answer', 'rest', 'model-end'],
    ])
    expect(test.reported[2]).toMatchObject({
      attempt: 2,
      status: 429,
      cause: expect.stringContaining('slow down'),
      delayMs: expect.closeTo(200, -2),
    })
    const { until = 0 } = test.reported[3] as { until?: number }
    expect(until).toBeGreaterThanOrEqual(before + 100)
    expect(until).toBeLessThanOrEqual(Date.now() + 200)
  })

  it('that is changed for a server is sent again at once, with the reason of the server [S1.10]', async () => {
    await using server = await startModelServer([
      failure(400, "Unrecognized request argument supplied: 'temperature'", 'openai'),
      reply({ text: 'done' }),
    ])
    await using test = await startGateway(customProvider(server.baseUrl))
    expect(await test.request({ body: { ...chatBody, temperature: 0 } })).toMatchObject({ status: 200 })
    expect(test.reported.filter(({ type }) => type === 'model-retry')).toMatchObject([
      { attempt: 2, status: 400, cause: expect.stringContaining('temperature'), delayMs: 0 },
    ])
  })

  it('says its place behind the other requests with its key, and each change of it [S1.10 G.05]', async () => {
    const finish: (() => void)[] = []
    await using upstream = await startUpstream((response) => {
      finish.push(() => sendStream(response, sse('[DONE]')))
    })
    await using test = await startGateway({ ...customProvider(upstream.url), maxConcurrent: 1 })
    const first = test.request()
    await test.waitsFor('answer')
    const others = [test.request(), test.request()]
    await test.waitsFor('turn')
    await finishInTurn(finish, 3)
    await Promise.all([first, ...others])
    const waits = test.reported.flatMap((item) =>
      item.type === 'model-wait' && item.for === 'turn' ? [[item.requestId, item.position]] : [],
    )
    expect(waits).toEqual([
      ['model-2', 1],
      ['model-3', 2],
      ['model-3', 1],
    ])
  })

  it('says until when the rate of the configuration holds it back [S1.10 G.05]', async () => {
    await using upstream = await startUpstream((response) => sendStream(response, sse('[DONE]')))
    await using test = await startGateway({ ...customProvider(upstream.url), requestsPerMinute: 1 })
    const before = Date.now()
    await test.request()
    const second = test.open()
    await test.waitsFor('rate')
    const wait = test.reported.find((item) => item.type === 'model-wait' && item.for === 'rate')
    expect(wait).toMatchObject({ requestId: 'model-2', position: 1 })
    const { until = 0 } = wait as { until?: number }
    expect(until - before).toBeGreaterThanOrEqual(60_000)
    expect(until - Date.now()).toBeLessThanOrEqual(60_000)
    second.destroy()
    await test.exchanged(2)
  })

  it('says that it waits for the budget that other requests reserve [S1.10 G.05]', async () => {
    const finish: (() => void)[] = []
    await using upstream = await startUpstream((response) => {
      finish.push(() => sendStream(response, sse('[DONE]')))
    })
    await using test = await startGateway(customProvider(upstream.url), { limits: { maxTokens: 20_000 } })
    const first = test.request()
    await test.waitsFor('answer')
    const second = test.request()
    await test.waitsFor('budget')
    await finishInTurn(finish, 2)
    await Promise.all([first, second])
    const waits = test.reported.flatMap((item) =>
      item.type === 'model-wait' && item.requestId === 'model-2' ? [item.for] : [],
    )
    expect(waits).toEqual(['budget', 'answer', 'rest'])
  })
})
