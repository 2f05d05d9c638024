// Real servers on loopback, of different protocols: a request asks for one of the models that the host allows.
import path from 'node:path'
import { expect, it } from 'vitest'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Secret } from '../../keys/secret.ts'
import type { ModelProvider } from '../../providers/providers.ts'
import { Recorder } from '../../recording/recorder.ts'
import { Recording } from '../../recording/replay.ts'
import { chatBody, customProvider, startGateway } from '../support/gateway.ts'

const usage = { prompt_tokens: 1_000, completion_tokens: 100 }
const otherKey = 'other-key-0123456789abcdef'

const event = (value: { type: string }) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`
const anthropicReply = {
  body: [
    {
      type: 'message_start',
      message: { model: 'claude-sonnet-5-5', usage: { input_tokens: 1_000, output_tokens: 1 } },
    },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: `hello ${otherKey}` } },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 100 } },
    { type: 'message_stop' },
  ]
    .map(event)
    .join(''),
}

function anthropic(baseUrl: string): ModelProvider {
  return {
    ...customProvider(baseUrl.replace(/\/v1$/, '')),
    name: 'claude',
    kind: 'anthropic',
    model: 'claude-sonnet-5-5',
    key: new Secret(otherKey),
    price: { input: 2, output: 10 },
  }
}

const ask = (model?: unknown) => ({ body: { ...chatBody, ...(model === undefined ? {} : { model }) } })

it('a request gets the model that it names, in its protocol, with its key and at its price [S3.06 G.01 G.05]', async () => {
  await using first = await startModelServer([reply({ text: 'own', usage })])
  await using second = await startModelServer([anthropicReply])
  const own = { ...customProvider(first.baseUrl), price: { input: 1, output: 10 } }
  await using test = await startGateway(own, { stepModels: new Map([['strong', anthropic(second.baseUrl)]]) })
  const answer = await test.request(ask('strong'))
  expect(answer.status).toBe(200)
  expect(answer.text).toContain('hello [redacted]')
  expect(second.asked[0]).toMatchObject({
    body: { model: 'claude-sonnet-5-5' },
    headers: { 'x-api-key': otherKey },
  })
  expect(await test.request(ask('test/model'))).toMatchObject({ status: 200 })
  expect(await test.request(ask())).toMatchObject({ status: 200 })
  expect([first.asked.length, second.asked.length]).toEqual([2, 1])
  expect(test.exchanges).toMatchObject([
    { stepModel: 'claude-sonnet-5-5', costUsd: 0.003 },
    { costUsd: 0.002 },
    { costUsd: 0.002 },
  ])
  expect(test.exchanges[1]).not.toHaveProperty('stepModel')
  expect(test.reported.find(({ type }) => type === 'model-start')).toMatchObject({
    stepModel: 'claude-sonnet-5-5',
  })
  const listed = await test.request({ method: 'GET', path: '/v1/models' })
  expect(JSON.parse(listed.text)).toMatchObject({ data: [{ id: 'test/model' }, { id: 'strong' }] })
})

it.each([
  ['another model of the same server', 'claude-opus-5'],
  ['the id of a model that has a name', 'claude-sonnet-5-5'],
  ['a name of a prototype', '__proto__'],
  ['a constructor', 'constructor'],
  ['nothing', ''],
  ['a line of its own', 'strong\nstrong'],
])(
  'a request for %s is refused, with what is allowed, and no server is asked [S3.06 G.01]',
  async (_what, model) => {
    await using first = await startModelServer([reply({ text: 'own' })])
    await using second = await startModelServer([anthropicReply])
    await using test = await startGateway(customProvider(first.baseUrl), {
      stepModels: new Map([['strong', anthropic(second.baseUrl)]]),
    })
    const answer = await test.request(ask(model))
    expect(answer).toMatchObject({ status: 400, code: 'invalid_request' })
    expect(answer.text).toContain('use strong, or leave it out for the model of the run')
    expect([first.asked.length, second.asked.length]).toEqual([0, 0])
    expect(test.exchanges).toMatchObject([{ status: 400, error: expect.any(String) }])
  },
)

it.each([['a'.repeat(10_000)], [7], [{ toString: 'strong' }], [['strong']]])(
  'a model that is no name makes no chat request [S3.06]',
  async (model) => {
    await using first = await startModelServer([reply({ text: 'own' })])
    await using test = await startGateway(customProvider(first.baseUrl), {
      stepModels: new Map([['strong', anthropic(first.baseUrl)]]),
    })
    const answer = await test.request(ask(model))
    expect(answer).toMatchObject({ status: 400, code: 'invalid_request' })
    expect(answer.text.length).toBeLessThan(1_000)
    expect(first.asked).toHaveLength(0)
  },
)

it('every request is for the model of the run where the host allows no other [S3.06]', async () => {
  await using first = await startModelServer([reply({ text: 'own' })])
  await using test = await startGateway(customProvider(first.baseUrl))
  expect(await test.request(ask('strong'))).toMatchObject({ status: 200 })
  expect(first.asked[0]?.body.model).toBe('test/model')
})

it('a budget of cost counts each model at its price, and reserves that of the one that is asked [S3.06 G.05]', async () => {
  await using first = await startModelServer([reply({ text: 'own', usage })])
  await using second = await startModelServer([anthropicReply])
  const own = { ...customProvider(first.baseUrl), price: { input: 0, output: 0 } }
  await using test = await startGateway(own, {
    stepModels: new Map([['strong', anthropic(second.baseUrl)]]),
    limits: { maxTokens: 1_000_000, maxCostUsd: 0.0025 },
  })
  expect(await test.request(ask())).toMatchObject({ status: 200 })
  expect(await test.request(ask('strong'))).toMatchObject({ status: 200 })
  expect(await test.request(ask('strong'))).toMatchObject({ code: 'limit_cost' })
  expect(await test.request(ask())).toMatchObject({ code: 'limit_cost' })
  expect([first.asked.length, second.asked.length]).toEqual([1, 1])
})

it('fallback answers for the model of a step too, and that of the run only where it is named there [S3.06 G.05]', async () => {
  await using first = await startModelServer([reply({ text: 'own', usage })])
  await using second = await startModelServer([failure(503, 'Overloaded')])
  const own = customProvider(first.baseUrl)
  const stepModels = new Map([['strong', anthropic(second.baseUrl)]])
  await using alone = await startGateway(own, { stepModels })
  expect(await alone.request(ask('strong'))).toMatchObject({ status: 503 })
  expect(first.asked).toHaveLength(0)
  await using test = await startGateway(own, { stepModels, fallbacks: [own] })
  expect(await test.request(ask('strong'))).toMatchObject({ status: 200 })
  expect(test.exchanges).toMatchObject([{ stepModel: 'claude-sonnet-5-5', fallback: 'test/model' }])
})

it('a recording keeps the answers of two models to the same request apart [S3.06 R.03]', async () => {
  await using first = await startModelServer([reply({ text: 'of the run' })])
  await using second = await startModelServer([anthropicReply])
  const file = path.join(await temporaryFolder('step-models'), 'exchanges.jsonl')
  const runId = 'run-00000000000000000000'
  const recorder = await Recorder.open(file, {
    version: 1,
    runId,
    model: 'test/model',
    provider: 'custom',
    at: 0,
  })
  const stepModels = new Map([['strong', anthropic(second.baseUrl)]])
  await using live = await startGateway(customProvider(first.baseUrl), {
    stepModels,
    wrapUpstream: (upstream, keys) => recorder.wrap(upstream, keys),
  })
  await live.request(ask('strong'))
  await live.request(ask())
  await recorder[Symbol.asyncDispose]()
  const recording = await Recording.read(file)
  await using replayed = await startGateway(customProvider(first.baseUrl), {
    stepModels,
    wrapUpstream: () => recording.upstream(),
  })
  expect((await replayed.request(ask())).text).toContain('of the run')
  expect((await replayed.request(ask('strong'))).text).toContain('hello [redacted]')
  expect(replayed.exchanges).toMatchObject([{}, { stepModel: 'claude-sonnet-5-5' }])
  expect([first.asked.length, second.asked.length]).toEqual([1, 1])
})
