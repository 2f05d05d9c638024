// A second opinion: the client against a model server that somebody else wrote.
import { LLMock } from '@copilotkit/aimock'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createModel } from '../../llm/model.ts'

const mock = new LLMock({ port: 0, chunkSize: 5 })

beforeAll(async () => {
  mock.on({ userMessage: 'greet' }, { content: 'Grüße 🎉, naïve café 日本語', reasoning: 'short will do' })
  mock.on(
    { userMessage: 'call' },
    {
      toolCalls: [
        { name: 'read_file', arguments: '{"path":"a \\"b\\".txt"}' },
        { name: 'list_files', arguments: '{"path":"src"}' },
      ],
    },
  )
  mock.on({ userMessage: 'busy' }, { error: { message: 'slow down', type: 'rate_limit_error' }, status: 429 })
  mock.on(
    { userMessage: 'break' },
    { content: 'a long answer that does not end' },
    { truncateAfterChunks: 2 },
  )
  await mock.start()
})
afterAll(() => mock.stop())

function ask(content: string) {
  const model = createModel({ model: 'm', baseUrl: `${mock.url}/v1`, firstDelayMs: 1, maxAttempts: 2 })
  const signal = new AbortController().signal
  return model({ messages: [{ role: 'user', content }], tools: [] }, { signal })
}

describe('the client against aimock', () => {
  it('reads text and reasoning [S1.07]', async () => {
    expect(await ask('greet')).toMatchObject({
      ok: true,
      value: { text: 'Grüße 🎉, naïve café 日本語', reasoning: 'short will do', finishReason: 'stop' },
    })
  })

  it('reads parallel calls [S1.07]', async () => {
    expect(await ask('call')).toMatchObject({
      ok: true,
      value: {
        finishReason: 'tool_calls',
        toolCalls: [
          { name: 'read_file', argumentsText: '{"path":"a \\"b\\".txt"}' },
          { name: 'list_files', argumentsText: '{"path":"src"}' },
        ],
      },
    })
  })

  it('types its refusals and its broken streams [G.05]', async () => {
    expect(await ask('busy')).toMatchObject({ ok: false, error: { code: 'rate_limited', status: 429 } })
    const cut = await ask('break')
    // It closes the connection so soon that the head may be lost with it.
    expect(cut.ok ? 'no error' : cut.error.code).toMatch(/^(truncated|unreachable)$/)
  })
})
