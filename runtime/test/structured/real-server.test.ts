// An answer of a given form out of a real model server: its grammar keeps a call that must be made to the schema.
import { expect, it } from 'vitest'
import { openSchema } from '#specs/node/json-schema.ts'
import { llamaKey, llamaModel, useLlamaServer } from '../../../test/support/llama-server.ts'
import { createLLMEnvironment } from '../../environment/environment.ts'
import { generate } from '../../generate/generate.ts'
import type { Model } from '../../llm/model.ts'
import { requestStructured } from '../../structured/request.ts'

const start = useLlamaServer()
const schema = {
  type: 'object',
  properties: { answer: { type: 'string', enum: ['yes', 'no'] } },
  required: ['answer'],
  additionalProperties: false,
}

it('gets a value of the schema out of a model that would say something else, and call more than once [S0.02]', async (context) => {
  await using server = await start(context)
  await using environment = createLLMEnvironment({
    providers: {
      'openai-compatible': { apiKey: llamaKey, baseUrl: server.url, maxAttempts: 1, maxTokens: 60 },
    },
  })
  const model: Model = async ({ tools: [tool], toolChoice }, { signal }) => {
    const response = await generate({
      environment,
      provider: 'openai-compatible',
      model: llamaModel,
      messages: [{ role: 'user', content: 'hello' }],
      ...(tool === undefined ? {} : { tools: { [tool.name]: tool } }),
      ...(toolChoice === undefined ? {} : { toolChoice }),
      abortSignal: signal,
    })
    const toolCalls = (response.tool_calls ?? []).map((call) => {
      return { id: call.id, name: call.function.name, argumentsText: call.function.arguments }
    })
    const usage = { requests: 1, inputTokens: 0, outputTokens: 0, reasoningTokens: 0, ...response.usage }
    return {
      ok: true,
      value: { text: response.content, reasoning: '', toolCalls, usage, finishReason: 'stop' },
    }
  }
  const opened = await openSchema(schema)
  if (!opened.ok) throw new Error(opened.error)
  const answer = await requestStructured({
    model,
    messages: [{ role: 'user', content: 'hello' }],
    name: 'answer',
    description: 'The answer.',
    schema,
    forms: ['tool'],
    hooks: { signal: new AbortController().signal },
    read: (value) => {
      const checked = opened.value.check(value)
      return checked.ok ? { ok: true, value: { value: checked.value, corrections: [] } } : checked
    },
  })
  expect(answer).toMatchObject({
    ok: true,
    value: { value: { answer: expect.stringMatching(/^(yes|no)$/) } },
  })
})
