// Real servers on loopback; the first model of a run cannot answer, and others are asked.
import path from 'node:path'
import { expect, it } from 'vitest'
import { delta, failure, reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Secret } from '../../keys/secret.ts'
import { createRunUpstream } from '../../providers/fallback.ts'
import { createHttpUpstream } from '../../providers/http-upstream.ts'
import type { ModelProvider } from '../../providers/providers.ts'
import { Recorder } from '../../recording/recorder.ts'
import { Recording } from '../../recording/replay.ts'
import { chatBody, customProvider, startGateway } from '../support/gateway.ts'

const usage = { prompt_tokens: 1_000, completion_tokens: 100 }
const otherKey = 'other-key-0123456789abcdef'

function other(baseUrl: string): ModelProvider {
  return {
    ...customProvider(baseUrl),
    name: 'other',
    model: 'other/model',
    key: new Secret(otherKey),
    price: { input: 2, output: 10 },
  }
}

it.each([
  ['is limited for hours', failure(429, 'Rate limit reached, try again in 5 hours')],
  ['is gone', failure(410, 'The model is no longer offered')],
  ['is overloaded', failure(503, 'Overloaded')],
  ['cannot be reached', { body: '', before: 'reset' as const }],
])(
  'a model that %s leaves the request to the next, at its price and with its key [G.05]',
  async (_why, refusal) => {
    await using first = await startModelServer([refusal])
    await using second = await startModelServer([reply({ text: `hello ${otherKey}`, usage })])
    const own = { ...customProvider(first.baseUrl), price: { input: 1, output: 1 } }
    await using test = await startGateway(own, { fallbacks: [other(second.baseUrl)] })
    const answer = await test.request()
    expect(answer.status).toBe(200)
    expect(answer.text).toContain('hello [redacted]')
    expect(second.asked[0]).toMatchObject({
      body: { model: 'other/model' },
      headers: { authorization: `Bearer ${otherKey}` },
    })
    const retry = test.reported.find((event) => event.type === 'model-retry')
    expect(retry).toMatchObject({ fallback: 'other/model', attempt: 2, delayMs: 0 })
    expect(test.exchanges).toMatchObject([{ status: 200, fallback: 'other/model', costUsd: 0.003 }])
    // The one that failed is asked last for a while.
    expect(await test.request()).toMatchObject({ status: 200 })
    expect([first.asked.length, second.asked.length]).toEqual([1, 2])
  },
)

it.each([
  ['refuses the request', failure(400, 'The field is wrong')],
  ['refuses the key', failure(401, 'Invalid key')],
])('no other model is asked where the server %s [G.05]', async (_why, refusal) => {
  await using first = await startModelServer([refusal])
  await using second = await startModelServer([reply({ text: 'hello' })])
  await using test = await startGateway(customProvider(first.baseUrl), { fallbacks: [other(second.baseUrl)] })
  expect((await test.request()).status).toBeGreaterThanOrEqual(400)
  expect(second.asked).toHaveLength(0)
})

it('an answer that breaks off is not asked of another model [G.05]', async () => {
  await using first = await startModelServer([{ body: delta({ content: 'hel' }), after: 'cut' }])
  await using second = await startModelServer([reply({ text: 'hello' })])
  await using test = await startGateway(customProvider(first.baseUrl), { fallbacks: [other(second.baseUrl)] })
  await test.request()
  expect(test.exchanges[0]).toMatchObject({ error: expect.any(String) })
  expect(second.asked).toHaveLength(0)
})

it.each([
  ['overloaded', { type: 'overloaded_error', message: 'Overloaded' }],
  ['rate-limited', { code: 429, message: 'Rate limit exceeded' }],
])(
  'a model that says within its answer that it is %s is not asked again for a while [G.05]',
  async (_why, error) => {
    const broken = `${delta({ content: 'hel' })}data: ${JSON.stringify({ error })}\n\n`
    await using first = await startModelServer([{ body: broken }])
    await using second = await startModelServer([reply({ text: 'hello' })])
    await using test = await startGateway(customProvider(first.baseUrl), {
      fallbacks: [other(second.baseUrl)],
    })
    await test.request()
    expect(second.asked).toHaveLength(0)
    expect((await test.request()).text).toContain('hello')
    expect([first.asked.length, second.asked.length]).toEqual([1, 1])
  },
)

it('an answer that ends in an error of its request leaves the model as it was [G.05]', async () => {
  const broken = `data: ${JSON.stringify({ error: { code: 400, message: 'The field is wrong' } })}\n\n`
  await using first = await startModelServer([{ body: broken }, reply({ text: 'again' })])
  await using second = await startModelServer([reply({ text: 'hello' })])
  await using test = await startGateway(customProvider(first.baseUrl), { fallbacks: [other(second.baseUrl)] })
  await test.request()
  expect((await test.request()).text).toContain('again')
  expect(second.asked).toHaveLength(0)
})

it('only where all models are limited for hours does the request get that limit, the shortest one [G.05]', async () => {
  await using first = await startModelServer([failure(429, 'Rate limit reached, try again in 5 hours')])
  await using second = await startModelServer([failure(429, 'Rate limit reached, try again in 2 hours')])
  await using test = await startGateway(customProvider(first.baseUrl), { fallbacks: [other(second.baseUrl)] })
  const answer = await test.request()
  expect(answer).toMatchObject({ status: 429, code: 'limit_model' })
  expect(answer.text).toContain('other/model')
})

it('a limit for hours of one model wins over another that is gone, and an outage that passes over a limit [G.05]', async () => {
  await using limited = await startModelServer([failure(429, 'Rate limit reached, try again in 5 hours')])
  await using gone = await startModelServer([failure(410, 'The model is no longer offered')])
  await using busy = await startModelServer([failure(503, 'Overloaded')])
  await using one = await startGateway(customProvider(gone.baseUrl), { fallbacks: [other(limited.baseUrl)] })
  expect(await one.request()).toMatchObject({ code: 'limit_model' })
  await using two = await startGateway(customProvider(limited.baseUrl), { fallbacks: [other(busy.baseUrl)] })
  expect(await two.request()).toMatchObject({ status: 503 })
})

it('the first model is asked again after a while [G.05]', async () => {
  await using first = await startModelServer([failure(503, 'Overloaded'), reply({ text: 'back' })])
  await using second = await startModelServer([reply({ text: 'instead' })])
  let time = 0
  const open = (provider: ModelProvider & { readonly baseUrl: string }) => ({
    model: provider.model,
    upstream: createHttpUpstream({
      provider,
      timeouts: { firstByteTimeoutMs: 30_000, idleTimeoutMs: 30_000, queueTimeoutMs: 30_000 },
      runId: 'run-00000000000000000000',
    }),
  })
  const own = { ...customProvider(first.baseUrl), baseUrl: first.baseUrl }
  const upstream = createRunUpstream(
    {
      own: open(own),
      steps: new Map(),
      fallbacks: [open({ ...other(second.baseUrl), baseUrl: second.baseUrl })],
    },
    () => time,
  )
  const ask = async () => {
    const answer = await upstream.send(chatBody as never, {
      maxTokens: 100,
      signal: new AbortController().signal,
    })
    if (!answer.ok) return answer.error.code
    for await (const _ of answer.value.body);
    return answer.value.model ?? 'the first'
  }
  expect([await ask(), await ask()]).toEqual(['other/model', 'other/model'])
  time = 10 * 60_000
  expect(await ask()).toBe('the first')
  expect(first.asked).toHaveLength(2)
  await upstream.close()
})

it('a recording has which model answered, and a replay says the same [G.05]', async () => {
  await using first = await startModelServer([failure(503, 'Overloaded')])
  await using second = await startModelServer([reply({ text: `hello ${otherKey}`, usage })])
  const file = path.join(await temporaryFolder('fallback'), 'exchanges.jsonl')
  const header = {
    version: 1,
    runId: 'run-00000000000000000000',
    model: 'test/model',
    provider: 'custom',
    at: 0,
  } as const
  const recorder = await Recorder.open(file, header)
  await using live = await startGateway(customProvider(first.baseUrl), {
    fallbacks: [other(second.baseUrl)],
    wrapUpstream: (upstream, keys) => recorder.wrap(upstream, keys),
  })
  const answer = await live.request()
  await recorder[Symbol.asyncDispose]()
  const recording = await Recording.read(file)
  await using replayed = await startGateway(customProvider(first.baseUrl), {
    wrapUpstream: () => recording.upstream(),
  })
  expect((await replayed.request()).text).toBe(answer.text)
  expect(answer.text).toContain('hello [redacted]')
  expect(replayed.exchanges).toMatchObject([{ fallback: 'other/model', usage: live.exchanges[0]?.usage }])
})

it.each([
  { maxCostUsd: 0.5, statuses: [429] },
  { maxCostUsd: 5, statuses: [200] },
])(
  'the cost limit of $maxCostUsd USD holds for each model that may answer, not only for the dearest answer [G.04]',
  async ({ maxCostUsd, statuses }) => {
    // 100,000 tokens of input cost 1 USD with the first, and the whole answer costs more with the other.
    const long = { messages: [{ role: 'user', content: 'x'.repeat(400_000) }], stream: true }
    await using first = await startModelServer([reply({ text: 'hello', usage })])
    await using second = await startModelServer([])
    const own = { ...customProvider(first.baseUrl), price: { input: 10, output: 1 } }
    const fallback = { ...other(second.baseUrl), price: { input: 0, output: 100 } }
    const limits = { maxTokens: 1_000_000, maxCostUsd }
    await using test = await startGateway(own, { fallbacks: [fallback], limits })
    expect([(await test.request({ body: long })).status]).toEqual(statuses)
    expect(first.asked).toHaveLength(statuses[0] === 200 ? 1 : 0)
  },
)
