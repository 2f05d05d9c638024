// A second opinion: Anthropic's and Gemini's protocols as somebody else's server speaks them.
import { LLMock } from '@copilotkit/aimock'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLLMEnvironment, type LLMEnvironment } from '../../environment/environment.ts'
import { executeTool } from '../../generate/execute-tool.ts'
import { generate, stream } from '../../generate/generate.ts'

const mock = new LLMock({ port: 0, chunkSize: 5 })
let environment: LLMEnvironment

beforeAll(async () => {
  mock.on({ userMessage: 'greet' }, { content: 'Grüße 🎉, naïve café 日本語' })
  mock.on(
    { userMessage: 'call', hasToolResult: false },
    {
      toolCalls: [
        { name: 'add', arguments: '{"a":2,"b":3}' },
        { name: 'add', arguments: '{"a":5,"b":8}' },
      ],
    },
  )
  mock.on({ userMessage: 'call', hasToolResult: true }, { content: 'Five and thirteen.' })
  mock.on({ userMessage: 'busy' }, { error: { message: 'slow down', type: 'rate_limit_error' }, status: 429 })
  await mock.start()
  const { url: baseUrl } = mock
  environment = createLLMEnvironment({
    providers: {
      anthropic: { apiKey: 'k', baseUrl, maxAttempts: 1 },
      google: { apiKey: 'k', baseUrl, maxAttempts: 1 },
      openai: { apiKey: 'k', baseUrl: `${baseUrl}/v1`, maxAttempts: 1 },
    },
  })
})
afterAll(() => mock.stop())

const tools = {
  add: {
    description: 'Adds',
    readOnly: true,
    parameters: {
      type: 'object',
      properties: { a: { type: 'number' }, b: { type: 'number' } },
      required: ['a', 'b'],
    },
    execute: (input: unknown) => (input as { a: number }).a + (input as { b: number }).b,
  },
}

describe.each(['anthropic', 'google', 'openai'])('%s against aimock', (provider) => {
  it('tells text as it comes and returns it whole [S2.06] [S2.07]', async () => {
    const request = {
      environment,
      provider,
      model: 'm',
      messages: [{ role: 'user', content: 'greet' }],
    } as const
    const chunks: string[] = []
    const reading = stream(request)
    let next = await reading.next()
    for (; next.done !== true; next = await reading.next()) chunks.push(next.value.content ?? '')
    expect(chunks.length).toBeGreaterThan(1)
    expect(chunks.join('')).toBe('Grüße 🎉, naïve café 日本語')
    expect(next.value).toEqual(await generate(request))
    expect(next.value).toMatchObject({ type: 'text', content: chunks.join(''), stopKind: 'natural' })
  })

  it('calls tools at once and continues with their results [S2.06] [S2.08]', async () => {
    const question = { role: 'user', content: 'call' } as const
    const request = { environment, provider, model: 'm', tools }
    const first = await generate({ ...request, messages: [question] })
    const calls = first.tool_calls ?? []
    const results = await Promise.all(calls.map((call) => executeTool(environment, call, { tools })))
    expect(results.map(({ content }) => content)).toEqual(['5', '13'])
    const messages = [question, first.assistantMessage, ...results.map(({ message }) => message)]
    expect((await generate({ ...request, messages })).content).toBe('Five and thirteen.')
  })

  it('types its refusals [S2.06]', async () => {
    const messages = [{ role: 'user', content: 'busy' }] as const
    await expect(generate({ environment, provider, model: 'm', messages })).rejects.toMatchObject({
      name: 'LLMError',
      kind: 'rate_limited',
      status: 429,
      retryable: true,
    })
  })
})
