// generateStructured through the library's own entry, against a server of scripted bytes.
import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import {
  createLLMEnvironment,
  generateStructured,
  type LLMChatMessage,
  LLMError,
  LLMStructuredError,
} from '../../index.ts'

const person = z.strictObject({ name: z.string(), age: z.int().min(0), tag: z.string().default('none') })
const messages: LLMChatMessage[] = [{ role: 'user', content: 'Who?' }]

async function open(script: Script | readonly ServerReply[]) {
  const server = await startModelServer(script)
  const environment = createLLMEnvironment({
    providers: { 'openai-compatible': { baseUrl: server.baseUrl } },
  })
  return {
    server,
    request: { environment, provider: 'openai-compatible', model: 'm', messages },
    [Symbol.asyncDispose]: async () => {
      await environment[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    },
  }
}

describe('generateStructured', () => {
  it('gives the value of a zod schema, typed, with what all requests used [S2.01 S0.02]', async () => {
    await using world = await open([
      reply({ text: '{"name":"Ada"}' }),
      reply({ text: '{"name":"Ada","age":36}' }),
    ])
    const { value, requests, usage } = await generateStructured({ ...world.request, schema: person })
    expectTypeOf(value).toEqualTypeOf<{ name: string; age: number; tag: string }>()
    expect(value).toEqual({ name: 'Ada', age: 36, tag: 'none' })
    expect({ requests, usage }).toEqual({
      requests: 2,
      usage: { inputTokens: 20, outputTokens: 10, reasoningTokens: 0 },
    })
    expect(world.server.asked[0]?.body.response_format).toMatchObject({ json_schema: { name: 'answer' } })
    expect(world.server.asked[1]?.messages.at(-1)?.content).toContain('age: ')
  })

  it('continues to a call where the server does not take the form, and remembers it in the environment [S0.02]', async () => {
    await using world = await open(({ body }) =>
      body.response_format === undefined
        ? reply({ calls: [{ name: 'person', arguments: { name: 'Ada', age: 36 } }] })
        : failure(400, 'response_format: extra inputs are not permitted'),
    )
    const schema = { type: 'object', required: ['name'] }
    for (let time = 0; time < 2; time++) {
      const { value } = await generateStructured({ ...world.request, schema, name: 'person' })
      expect(value).toEqual({ name: 'Ada', age: 36 })
    }
    expect(world.server.asked.map(({ body }) => body.tool_choice)).toEqual([
      undefined,
      { type: 'function', function: { name: 'person' } },
      { type: 'function', function: { name: 'person' } },
    ])
  })

  it('throws what a model never gave, what a server refused, and what is misuse, each as itself [S0.02]', async () => {
    await using never = await open([reply({ text: 'no' })])
    const invalid = await generateStructured({ ...never.request, schema: person }).catch(
      (error: unknown) => error,
    )
    expect(invalid).toBeInstanceOf(LLMStructuredError)
    expect(invalid).toMatchObject({ kind: 'invalid', code: 'model_broken', usage: { inputTokens: 30 } })

    await using refusing = await open([failure(401, 'who are you?')])
    const refused = await generateStructured({ ...refusing.request, schema: person }).catch(
      (error: unknown) => error,
    )
    expect(refused).toBeInstanceOf(LLMError)
    expect(refused).toMatchObject({ kind: 'unauthorized', code: 'model_refused' })

    await expect(generateStructured({ ...never.request, schema: { $ref: '#' } })).rejects.toMatchObject({
      code: 'invalid_options',
    })
    const aborted = AbortSignal.abort(new Error('enough'))
    await expect(
      generateStructured({ ...never.request, schema: person, abortSignal: aborted }),
    ).rejects.toThrow('enough')
  })
})
