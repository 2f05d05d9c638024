import { describe, expect, it } from 'vitest'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { openNetwork } from '../../net/network.ts'
import { CapabilityCache } from '../../providers/capability-cache.ts'
import { pollUrl } from '../../providers/http-exchange.ts'
import { makeAuthority } from '../support/authority.ts'
import { startConnectProxy } from '../support/connect-proxy.ts'
import { chatBody, customProvider, startGateway, startUpstream, testKey } from '../support/gateway.ts'
import { stateFolders } from '../support/state-folders.ts'

const hello = reply({ text: 'hello', usage: { prompt_tokens: 10, completion_tokens: 5 } })
const tools = [{ type: 'function', function: { name: 'read_file', parameters: {} } }]

/** Replies in turn. `pauseMs`: from the first request to the second one; no load makes it shorter, but timers round. */
function timed(replies: readonly [ServerReply, ServerReply]): { replies: Script; pauseMs: () => number } {
  const askedAt: number[] = []
  return {
    replies: (_asked, index) => {
      askedAt.push(performance.now())
      return replies[index] ?? replies[1]
    },
    pauseMs: () => (askedAt[1] ?? 0) - (askedAt[0] ?? 0),
  }
}

describe('a server that has had enough', () => {
  it('is asked again after the pause it asked for, without the guest noticing [G.05]', async () => {
    const { replies, pauseMs } = timed([failure(429, 'slow down', 'openai', { 'retry-after': '0.2' }), hello])
    await using server = await startModelServer(replies)
    await using test = await startGateway(customProvider(server.baseUrl))
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(server.asked).toHaveLength(2)
    expect(test.exchanges).toMatchObject([{ status: 200, queuedMs: expect.any(Number) }])
    expect(pauseMs()).toBeGreaterThan(195)
    expect(test.logged.join()).toContain('is rate-limiting requests')
  })

  it('holds back every other run with the same key [G.05]', async () => {
    let isOver = false
    await using server = await startModelServer((_asked, index) => {
      if (index === 0) {
        setTimeout(() => (isOver = true), 250)
        return failure(429, 'slow down', 'openai', { 'retry-after': '0.3' })
      }
      return isOver ? hello : failure(500, 'asked too early')
    })
    const provider = customProvider(server.baseUrl)
    await using one = await startGateway(provider, { runId: 'run-one' })
    await using other = await startGateway(provider, { runId: 'run-other' })
    const first = one.request()
    while (server.asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    await new Promise((resolve) => setTimeout(resolve, 30))
    const answers = await Promise.all([first, other.request()])
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
  })

  it('holds back every run with the same key where it says so inside its answer [G.05]', async () => {
    const busy =
      'data: {"error":{"message":"Rate limit reached. Please try again in 400ms.","code":null}}\n\n'
    const { replies, pauseMs } = timed([{ body: busy }, hello])
    await using server = await startModelServer(replies)
    const provider = customProvider(server.baseUrl)
    await using one = await startGateway(provider, { runId: 'run-one' })
    await using other = await startGateway(provider, { runId: 'run-other' })
    expect(await one.request()).toMatchObject({ status: 200 })
    expect(one.exchanges).toMatchObject([{ error: expect.stringContaining('rate_limited') }])
    expect(one.logged.join()).toContain('in its answer')
    expect(await other.request()).toMatchObject({ status: 200 })
    expect(pauseMs()).toBeGreaterThan(395)
  })

  it('is not waited for when its account is at an end, and the guest learns when to come back [G.05]', async () => {
    await using server = await startModelServer([
      failure(429, 'You exceeded your current quota', 'openai', { 'retry-after': '7' }),
    ])
    await using test = await startGateway(customProvider(server.baseUrl))
    const answer = await test.request()
    expect(answer).toMatchObject({ status: 429, headers: { 'retry-after': '7' } })
    expect(server.asked).toHaveLength(1)
  })

  it('is not waited for longer than a request can [G.05]', async () => {
    await using server = await startModelServer([failure(429, '', 'openai', { 'retry-after': '60' })])
    await using test = await startGateway(customProvider(server.baseUrl), {
      timeouts: { queueTimeoutMs: 300 },
    })
    expect(await test.request()).toMatchObject({ status: 429, headers: { 'retry-after': '60' } })
    const late = await test.request()
    expect(late).toMatchObject({ status: 503, code: 'upstream_busy' })
    expect(Number(late.headers['retry-after'])).toBeGreaterThan(50)
    expect(server.asked).toHaveLength(1)
  })

  it('that is busy for hours refuses at once, for every request of its model that comes or waits [G.05]', async () => {
    await using server = await startModelServer(({ body }) =>
      body.model === 'test/model' ? failure(429, 'Rate limit reached, try again in 5 hours') : hello,
    )
    const provider = { ...customProvider(server.baseUrl), maxConcurrent: 1 }
    await using one = await startGateway(provider, { runId: 'run-one' })
    await using other = await startGateway(provider, { runId: 'run-other' })
    const answers = await Promise.all([one.request(), other.request()])
    for (const answer of [...answers, await one.request()]) {
      expect(answer).toMatchObject({ status: 429, code: 'limit_model' })
      expect(Number(answer.headers['retry-after'])).toBeGreaterThan(4 * 3_600)
    }
    expect(server.asked).toHaveLength(1)
    await using free = await startGateway({ ...provider, model: 'test/other' })
    expect(await free.request()).toMatchObject({ status: 200 })
  })

  it('is asked so many requests at once as the configuration says, over all runs [G.05]', async () => {
    await using server = await startModelServer([{ ...hello, headAfterMs: 30 }])
    const provider = { ...customProvider(server.baseUrl), maxConcurrent: 2 }
    await using one = await startGateway(provider, { runId: 'run-one' })
    await using other = await startGateway(provider, { runId: 'run-other' })
    const gateways = [one, other, one, other, one, other]
    const answers = await Promise.all(gateways.map((gateway) => gateway.request()))
    expect(answers.every(({ status }) => status === 200)).toBe(true)
    expect(server.mostOpen()).toBe(2)
  })

  it('gives a turn back when the guest goes away, while it waits and while it is answered [G.05]', async () => {
    await using server = await startModelServer((_asked, index) =>
      index === 0 ? { ...hello, after: 'hang' } : hello,
    )
    const provider = { ...customProvider(server.baseUrl), maxConcurrent: 1 }
    await using test = await startGateway(provider)
    const hanging = test.open()
    await new Promise((resolve) => hanging.once('response', resolve))
    const waiting = test.open()
    await new Promise((resolve) => setTimeout(resolve, 30))
    waiting.close()
    hanging.close()
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(server.asked).toHaveLength(2)
  })
})

describe('a server that does not take a request as it is', () => {
  it('is asked without the fields it names, then never with them again [G.05]', async () => {
    const capabilityCache = new CapabilityCache(await stateFolders('memory'))
    await using server = await startModelServer(({ body }) => {
      if ('seed' in body) return failure(400, "Unknown parameter: 'seed'.")
      if ('temperature' in body)
        return failure(422, 'body -> temperature\n  Extra inputs are not permitted', 'problem')
      return hello
    })
    const body = { ...chatBody, seed: 1, temperature: 1, top_p: 0.9 }
    await using test = await startGateway(customProvider(server.baseUrl), { capabilityCache })
    expect(await test.request({ body })).toMatchObject({ status: 200 })
    expect(server.asked).toHaveLength(3)
    expect(await test.request({ body })).toMatchObject({ status: 200 })
    expect(server.asked).toHaveLength(4)
    expect(server.asked[3]?.body).toMatchObject({ top_p: 0.9, messages: chatBody.messages })
    expect(await capabilityCache.recall(server.baseUrl, 'test/model')).toEqual({
      refusedFields: ['seed', 'temperature'],
    })
    await using later = await startGateway(customProvider(server.baseUrl), { capabilityCache })
    expect(await later.request({ body })).toMatchObject({ status: 200 })
    expect(server.asked).toHaveLength(5)
  })

  it('gets the reasoning before calls once it requires it, also in later runs [S1.07]', async () => {
    const capabilityCache = new CapabilityCache(null)
    await using server = await startModelServer(({ messages }) =>
      'reasoning_content' in (messages[1] ?? {})
        ? hello
        : failure(400, 'The reasoning_content in the thinking mode must be passed back to the API'),
    )
    const call = { id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }
    const messages = [
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: '', reasoning_content: 'hm', tool_calls: [call] },
      { role: 'tool', tool_call_id: 'a', content: 'x' },
    ]
    for (const asked of [2, 3]) {
      await using test = await startGateway(customProvider(server.baseUrl), { capabilityCache })
      expect(await test.request({ body: { ...chatBody, messages } })).toMatchObject({ status: 200 })
      expect(server.asked).toHaveLength(asked)
    }
    expect(server.asked[2]?.messages[1]).toMatchObject({ reasoning_content: 'hm' })
  })

  it('and continues to refuse teaches nothing [G.05]', async () => {
    const capabilityCache = new CapabilityCache(null)
    await using server = await startModelServer([failure(400, "Unknown parameter: 'seed'.")])
    await using test = await startGateway(customProvider(server.baseUrl), { capabilityCache })
    expect(await test.request({ body: { ...chatBody, seed: 1 } })).toMatchObject({ status: 400 })
    expect(server.asked).toHaveLength(2)
    expect(await capabilityCache.recall(server.baseUrl, 'test/model')).toEqual({})
  })

  it('for its length is asked for a shorter answer, but not with a conversation that cannot fit [G.05]', async () => {
    const contextTokens = 2_000
    await using server = await startModelServer(({ body, text }) => {
      const prompt = Math.ceil(text.length / 4)
      if (prompt + Number(body.max_tokens) <= contextTokens) return hello
      const words = `This model's maximum context length is ${contextTokens} tokens and your request has ${prompt} input tokens`
      return failure(400, words)
    })
    await using test = await startGateway(customProvider(server.baseUrl))
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(server.asked).toHaveLength(2)
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(server.asked).toHaveLength(3)
    const long = { messages: [{ role: 'user', content: 'x'.repeat(20_000) }], stream: true }
    expect(await test.request({ body: long })).toMatchObject({ status: 400 })
    expect(server.asked).toHaveLength(4)
  })

  it('as its answers are shorter, is asked for no more than it gives [G.05]', async () => {
    await using server = await startModelServer(({ body }) =>
      Number(body.max_tokens) > 4_096
        ? failure(400, 'max_tokens is too large: 16384. This model supports at most 4096 completion tokens')
        : hello,
    )
    await using test = await startGateway(customProvider(server.baseUrl))
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(server.asked.map(({ body }) => body.max_tokens)).toEqual([16_384, 4_096])
  })

  it('as it takes one call in a turn, gets them one by one [G.05]', async () => {
    const call = (id: string) => ({ id, type: 'function', function: { name: 'read_file', arguments: '{}' } })
    const messages = [
      { role: 'user', content: 'go' },
      { role: 'assistant', content: null, tool_calls: [call('a'), call('b')] },
      { role: 'tool', tool_call_id: 'a', content: '1' },
      { role: 'tool', tool_call_id: 'b', content: '2' },
    ]
    await using server = await startModelServer((asked) =>
      asked.messages.some(({ tool_calls = [] }) => tool_calls.length > 1)
        ? failure(400, 'This model only supports single tool-calls at once!')
        : hello,
    )
    await using test = await startGateway(customProvider(server.baseUrl))
    expect(await test.request({ body: { messages, tools, stream: true } })).toMatchObject({ status: 200 })
    expect(server.asked[1]?.messages.map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'tool',
      'assistant',
      'tool',
    ])
  })

  it('as it does not stream, answers whole [G.05]', async () => {
    await using server = await startModelServer(({ body }) =>
      body.stream === true ? failure(400, "parameter 'stream' is not supported") : hello,
    )
    await using test = await startGateway(customProvider(server.baseUrl))
    expect(await test.request()).toMatchObject({
      status: 200,
      headers: { 'content-type': 'application/json' },
    })
  })

  it('as its model takes no tools, is quoted with what to do; a model known to take none is not asked [G.05]', async () => {
    await using server = await startModelServer([failure(400, 'gemma:2b does not support tools')])
    await using test = await startGateway(customProvider(server.baseUrl))
    const answer = await test.request({ body: { ...chatBody, tools } })
    expect(answer.status).toBe(400)
    expect(answer.text).toContain('choose another model')
    const known = { ...customProvider(server.baseUrl), model: 'nvidia/nemotron-4-340b-instruct' }
    await using hopeless = await startGateway(known)
    expect((await hopeless.request({ body: { ...chatBody, tools } })).text).toContain('takes no tools')
    expect(server.asked).toHaveLength(1)
  })

  it.each<[string, ServerReply, string]>([
    [
      'a model that is gone',
      failure(410, 'reached its end of life', 'problem'),
      'choose another (option model, CAISSON',
    ],
    [
      'a model of another account',
      failure(404, "Function 'x': Not found for account", 'problem'),
      'choose another',
    ],
    ['a wrong address', failure(404, '404 page not found', 'text'), 'the address is wrong'],
  ])('says of %s what to do [G.05]', async (_, said, words) => {
    await using server = await startModelServer([said])
    await using test = await startGateway(customProvider(server.baseUrl))
    expect((await test.request()).text).toContain(words)
  })
})

describe('a server that queues a request (202)', () => {
  const queued = (id: string): ServerReply => ({ status: 202, headers: { 'nvcf-reqid': id }, body: '' })

  it('is asked for it until it is ready, with the key, at its own place [S0.06] [G.01]', async () => {
    await using server = await startModelServer((_asked, index) => (index < 2 ? queued('0a-1b') : hello))
    await using test = await startGateway(customProvider(server.baseUrl))
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(server.asked.map(({ method, path: at }) => `${method} ${at}`)).toEqual([
      'POST /v1/chat/completions',
      'GET /v1/status/0a-1b',
      'GET /v1/status/0a-1b',
    ])
    expect(server.asked[2]?.headers.authorization).toBe(`Bearer ${testKey}`)
  })

  it('is given up when the time for a first byte is over, or its id is no id [S0.07]', async () => {
    await using server = await startModelServer([queued('abc')])
    const timeouts = { firstByteTimeoutMs: 1_500 }
    await using test = await startGateway(customProvider(server.baseUrl), { timeouts })
    expect(await test.request()).toMatchObject({ status: 503, code: 'upstream_pending' })
    expect(server.asked).toHaveLength(2)
    await using strange = await startModelServer([queued('../evil')])
    await using other = await startGateway(customProvider(strange.baseUrl))
    expect(await other.request()).toMatchObject({ status: 503, code: 'upstream_pending' })
    expect(strange.asked).toHaveLength(1)
  })

  it("is NVIDIA's own place for NVIDIA's servers, and never an address out of an answer [G.01]", () => {
    expect(pollUrl('https://integrate.api.nvidia.com/v1', 'a-1')).toBe(
      'https://api.nvcf.nvidia.com/v2/nvcf/pexec/status/a-1',
    )
    expect(pollUrl('https://nim.example/base/v1', 'a-1')).toBe('https://nim.example/v1/status/a-1')
    for (const id of ['', '../x', 'a/b', 'a?b', 'a#b', 'x'.repeat(101), '@evil.example']) {
      expect(pollUrl('https://nim.example/v1', id)).toBeNull()
    }
  })
})

describe('the way to the model server', () => {
  it('goes through the proxy of the user, with TLS inside it and an authority of the user [G.01 S0.09]', async () => {
    const authority = await makeAuthority('DNS:model.test')
    await using server = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end('data: [DONE]\n\n')
    }, authority)
    await using proxy = await startConnectProxy({
      leadsTo: { host: '127.0.0.1', port: Number(new URL(server.url).port) },
    })
    const network = openNetwork({ proxy: `http://127.0.0.1:${proxy.port}`, ca: authority.caFile })
    if (!network.ok) throw new Error(network.error)
    const provider = customProvider('https://model.test/v1')
    await using test = await startGateway(provider, { network: network.value })
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(proxy.asked).toEqual(['model.test:443'])
    expect(server.requests[0]?.request.headers.authorization).toBe(`Bearer ${testKey}`)
    await using direct = await startGateway(customProvider(server.url))
    const untrusted = await direct.request()
    expect(untrusted).toMatchObject({ status: 421, code: 'upstream_untrusted' })
    expect(untrusted.text).toContain('network.ca')
  })

  it('is not asked of the egress policy: the configured server is reached although nothing else is [G.02]', async () => {
    await using server = await startModelServer([hello])
    const contacted: string[] = []
    await using test = await startGateway(customProvider(server.baseUrl), {
      services: {
        paths: {},
        egress: async (stream, headers) => {
          contacted.push(String(headers[':authority']))
          stream.respond({ ':status': 403 }, { endStream: true })
        },
      },
    })
    expect(await test.request()).toMatchObject({ status: 200 })
    expect(contacted).toEqual([])
    const { host } = new URL(server.baseUrl)
    expect(await test.request({ authority: host })).toMatchObject({ status: 403 })
    expect(contacted).toEqual([host])
    expect(server.asked).toHaveLength(1)
  })
})
