import { mkdtemp, rm } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { type EmbeddingsAnswer, embeddingLimits } from '#specs/protocol/embeddings.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { llamaKey, useLlamaServer } from '../../../test/support/llama-server.ts'
import type { EmbeddingModel } from '../../gateway/embeddings-route.ts'
import { CapabilityCache } from '../../providers/capability-cache.ts'
import { createHttpEmbedder } from '../../providers/embedder.ts'
import { type ModelProvider, offlineProvider } from '../../providers/providers.ts'
import { Recorder, recordEmbedder } from '../../recording/recorder.ts'
import { Recording, replayEmbedder } from '../../recording/replay.ts'
import { customProvider, startGateway, startUpstream, type TestGateway, testKey } from '../support/gateway.ts'

const timeouts = { firstByteTimeoutMs: 2_000, idleTimeoutMs: 1_000, queueTimeoutMs: 5_000 }

function embeddingsAt(url: string, price: EmbeddingModel['price'] = null, key = testKey): EmbeddingModel {
  const provider = { ...customProvider(url, key), model: 'test/embed' } as ModelProvider & { baseUrl: string }
  const embedder = createHttpEmbedder({ provider, timeouts, runId: 'run-00000000000000000000' })
  return { embedder, model: provider.model, price }
}

const ask = (gateway: TestGateway, input: readonly string[], more: object = { input_type: 'passage' }) =>
  gateway.request({ path: '/v1/embeddings', body: { input, ...more } })

/** A good answer: the first number says which text it is of. */
function sendVectors(
  response: ServerResponse,
  body: string,
  more: object = { usage: { prompt_tokens: 7, total_tokens: 7 } },
): void {
  const { input } = JSON.parse(body) as { input: string[] }
  const data = input.map((text, index) => ({
    object: 'embedding',
    index,
    embedding: [text.length, 1 / 3, -0.5],
  }))
  response.setHeader('content-type', 'application/json')
  response.end(JSON.stringify({ object: 'list', data: data.reverse(), model: 'm', ...more }))
}

const run = startGateway.bind(null, offlineProvider(false))

describe('the route to an embedding model', () => {
  it('sends nothing that a hook before the model refuses [A.10]', async () => {
    let sent = 0
    await using upstream = await startUpstream((response, _, body) => {
      sent += 1
      sendVectors(response, body)
    })
    const before = async (request: object) => ('input' in request ? `not ${String(request.input)}` : null)
    await using gateway = await run({ embeddings: embeddingsAt(upstream.url), modelHooks: { before } })
    const answer = await ask(gateway, ['salaries'])
    expect(answer.text).toContain('A hook of the user refused this request: not salaries')
    expect(sent).toBe(0)
    expect(gateway.exchanges).toMatchObject([{ status: 403, usage: noUsage }])
  })

  it('gives a vector for each text, in the order of the texts, and journals the exchange [S0.14, G.01]', async () => {
    await using upstream = await startUpstream((response, _, body) => sendVectors(response, body))
    await using gateway = await run({ embeddings: embeddingsAt(upstream.url, { input: 2, output: 0 }) })
    const answer = await ask(gateway, ['ab', 'abcd'])
    expect(JSON.parse(answer.text)).toEqual({
      data: [{ embedding: [2, 0.33333333, -0.5] }, { embedding: [4, 0.33333333, -0.5] }],
      usage: { prompt_tokens: 7 },
    } satisfies EmbeddingsAnswer)
    expect(gateway.exchanges).toMatchObject([
      {
        status: 200,
        model: 'test/embed',
        estimated: false,
        costUsd: 14e-6,
        usage: { ...noUsage, requests: 1, inputTokens: 7 },
      },
    ])
    const [{ request, body } = {}] = upstream.requests
    expect(request?.url).toBe('/v1/embeddings')
    expect(request?.headers.authorization).toBe(`Bearer ${testKey}`)
    expect(JSON.parse(body ?? '')).toEqual({
      model: 'test/embed',
      input: ['ab', 'abcd'],
      input_type: 'passage',
      truncate: 'END',
      encoding_format: 'float',
    })
  })

  it('is refused where the user configured none, and to whatever is not its request [S0.14]', async () => {
    await using none = await run()
    expect(await ask(none, ['a'])).toMatchObject({ code: 'not_configured' })
    await using upstream = await startUpstream((response, _, body) => sendVectors(response, body))
    await using gateway = await run({ embeddings: embeddingsAt(upstream.url) })
    const long = 'x'.repeat(embeddingLimits.textMaxChars + 1)
    for (const body of [
      { input: ['a'] },
      { input: [], input_type: 'query' },
      { input: ['a'], input_type: 'query', model: 'dearer' },
      { input: ['a'], input_type: 'query', user: 'x' },
      { input: [long], input_type: 'query' },
      { input: Array(17).fill('a'), input_type: 'query' },
      { input: [[1, 2]], input_type: 'query' },
      'no JSON',
    ])
      expect(await gateway.request({ path: '/v1/embeddings', body })).toMatchObject({
        status: 400,
        code: 'invalid_request',
      })
    expect(await gateway.request({ path: '/v1/embeddings', method: 'GET' })).toMatchObject({
      code: 'method_not_allowed',
    })
    expect(await gateway.request({ path: '/v1/embeddings/', body: {} })).toMatchObject({ code: 'not_found' })
    expect(upstream.requests).toEqual([])
  })

  it('takes from the budget of the run, and ends with it [G.05]', async () => {
    await using upstream = await startUpstream((response, _, body) => sendVectors(response, body))
    await using gateway = await run({ embeddings: embeddingsAt(upstream.url), limits: { maxTokens: 20 } })
    expect(await ask(gateway, ['a'])).toMatchObject({ status: 200 })
    expect(await ask(gateway, ['a'])).toMatchObject({ status: 200 })
    expect(await ask(gateway, ['a'.repeat(60)])).toMatchObject({ code: 'limit_tokens' })
    expect(gateway.gateway.usage()).toMatchObject({ requests: 2, inputTokens: 14 })
    expect(gateway.exchanges.map(({ status }) => status)).toEqual([200, 200, 429])
    await using priced = await run({
      embeddings: embeddingsAt(upstream.url),
      limits: { maxTokens: 1_000, maxCostUsd: 1 },
    })
    expect(await ask(priced, ['a'])).toMatchObject({ code: 'limit_cost' })
    const price = { input: 1_000, output: 0 }
    await using dear = await run({
      embeddings: embeddingsAt(upstream.url, price),
      limits: { maxTokens: 1_000, maxCostUsd: 0.01 },
    })
    expect(await ask(dear, ['a'])).toMatchObject({ status: 200 })
    expect(await ask(dear, ['a'.repeat(30)])).toMatchObject({ code: 'limit_cost' })
  })

  it('counts what a server does not count, by the length of the texts [G.05]', async () => {
    await using upstream = await startUpstream((response, _, body) => sendVectors(response, body, {}))
    await using gateway = await run({ embeddings: embeddingsAt(upstream.url) })
    await ask(gateway, ['a'.repeat(300)])
    expect(gateway.exchanges).toMatchObject([{ estimated: true, usage: { inputTokens: 101 } }])
  })

  it('leaves out a field that a server refuses, and remembers it for the next run [G.05]', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'caisson-embed-'))
    try {
      await using upstream = await startUpstream((response, _, body) => {
        if (!body.includes('input_type')) return sendVectors(response, body)
        response.writeHead(400, { 'content-type': 'application/json' })
        response.end(
          '{"error":{"message":"Unrecognized request argument supplied: input_type","type":"invalid_request_error","param":null,"code":null}}',
        )
      })
      const provider = { ...customProvider(upstream.url), baseUrl: upstream.url }
      for (const expected of [2, 3]) {
        const capabilityCache = new CapabilityCache({ home: folder, locks: folder })
        const embedder = createHttpEmbedder({
          provider,
          timeouts,
          runId: 'run-00000000000000000000',
          capabilityCache,
        })
        await using gateway = await run({ embeddings: { embedder, model: 'm', price: null } })
        expect(await ask(gateway, ['a'])).toMatchObject({ status: 200 })
        expect(upstream.requests).toHaveLength(expected)
      }
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it('waits and asks again when the server says too many [G.05]', async () => {
    let count = 0
    await using upstream = await startUpstream((response, _, body) => {
      if (count++ > 0) return sendVectors(response, body)
      response.writeHead(429, { 'retry-after': '0.05' }).end('{"title":"Too Many Requests","status":429}')
    })
    await using gateway = await run({ embeddings: embeddingsAt(upstream.url) })
    expect(await ask(gateway, ['a'])).toMatchObject({ status: 200 })
    expect(count).toBe(2)
  })

  it.each([
    [
      'an error that echoes the key',
      401,
      'application/json',
      `{"error":{"message":"bad key ${testKey}"}}`,
      '401',
    ],
    ['a page', 200, 'text/html', '<html>hello</html>', 'upstream_broken'],
    ['no JSON', 200, 'application/json', '{"data":', 'upstream_broken'],
    ['too few vectors', 200, 'application/json', '{"data":[{"embedding":[1]}]}', 'upstream_broken'],
    [
      'vectors of two lengths',
      200,
      'application/json',
      '{"data":[{"embedding":[1]},{"embedding":[1,2]}]}',
      'upstream_broken',
    ],
    [
      'text for numbers',
      200,
      'application/json',
      '{"data":[{"embedding":["1"]},{"embedding":[1]}]}',
      'upstream_broken',
    ],
    [
      'one index twice',
      200,
      'application/json',
      '{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[2]}]}',
      'upstream_broken',
    ],
    [
      'no vectors',
      200,
      'application/json',
      '{"data":[{"embedding":[]},{"embedding":[]}]}',
      'upstream_broken',
    ],
    ['more than can be', 200, 'application/json', ' '.repeat(5_000_000), 'response_too_large'],
  ])(
    'tells %s as a failure without the key, and does not ask again [S0.14, T.02]',
    async (_, status, type, body, code) => {
      await using upstream = await startUpstream((response) =>
        response.writeHead(status, { 'content-type': type }).end(body),
      )
      await using gateway = await run({ embeddings: embeddingsAt(upstream.url) })
      const answer = await ask(gateway, ['a', 'b'])
      expect(answer).toMatchObject({ code })
      expect(answer.text).not.toContain(testKey)
      expect(JSON.stringify(gateway.exchanges)).not.toContain(testKey)
      expect(upstream.requests).toHaveLength(1)
    },
  )

  it('answers from a recording as it did, with nothing sent [S0.14 G.06]', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'caisson-embed-'))
    try {
      const file = path.join(folder, 'exchanges.jsonl')
      const at = {
        version: 1,
        runId: 'run-00000000000000000000',
        model: 'm',
        provider: 'custom',
        at: 1,
      } as const
      const recorder = await Recorder.open(file, at)
      await using upstream = await startUpstream((response, _, body) => sendVectors(response, body))
      const { embedder, ...model } = embeddingsAt(upstream.url)
      await using gateway = await run({
        embeddings: { ...model, embedder: recordEmbedder(embedder, recorder) },
      })
      const first = await ask(gateway, ['a'])
      await recorder[Symbol.asyncDispose]()
      const again = replayEmbedder(await Recording.read(file))
      await using later = await run({ embeddings: { ...model, embedder: again } })
      expect((await ask(later, ['a'])).text).toBe(first.text)
      expect(await ask(later, ['b'])).toMatchObject({ code: 'not_recorded' })
      expect(upstream.requests).toHaveLength(1)
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})

describe('a real llama-server', () => {
  const start = useLlamaServer(['--embeddings', '--pooling', 'mean'])

  it('makes vectors, the same for the same text [S0.14]', async (context) => {
    await using server = await start(context)
    await using gateway = await run({ embeddings: embeddingsAt(server.url, null, llamaKey) })
    const texts = ['read a file', 'read a file', 'a budget of tokens']
    const answer = await ask(gateway, texts, { input_type: 'query' })
    expect(answer.status).toBe(200)
    const { data, usage } = JSON.parse(answer.text) as EmbeddingsAnswer
    expect(data.map(({ embedding }) => embedding.length)).toEqual([256, 256, 256])
    expect(data[0]).toEqual(data[1])
    expect(data[0]).not.toEqual(data[2])
    expect(usage.prompt_tokens).toBeGreaterThan(3)
    expect(gateway.exchanges).toMatchObject([{ status: 200, estimated: false }])
  })
})
