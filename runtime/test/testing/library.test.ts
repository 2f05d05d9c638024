// The scripted model in the places of the library where a real one stands.
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import {
  createLLMEnvironment,
  executeTool,
  generate,
  generateStructured,
  type LLMChatMessage,
  runTurnLoop,
  stream,
} from '../../index.ts'
import {
  calls,
  createScriptedModel,
  failure,
  type ReplyScript,
  type RuleScript,
  text,
} from '../../testing/index.ts'

const messages: LLMChatMessage[] = [{ role: 'user', content: 'What is 6 times 7?' }]
const tools = {
  multiply: {
    description: 'Multiplies.',
    parameters: z.object({ a: z.number(), b: z.number() }),
    execute: (input: unknown) => {
      const { a, b } = input as { a: number; b: number }
      return a * b
    },
  },
}

/** A model, and what a call needs to ask it. */
function prepare(script: ReplyScript | RuleScript) {
  const model = createScriptedModel(script)
  const environment = createLLMEnvironment({ providers: { scripted: model.provider }, builtIns: false })
  return { model, request: { environment, provider: 'scripted', model: 'm' } }
}

describe('the library with a scripted model', () => {
  it('generates, streams and gives values of a schema [T.01]', async () => {
    const { model, request } = prepare({
      replies: [text('42', { reasoning: 'hm' }), text(['4', '2']), text('{"answer":42}')],
    })
    expect(await generate({ ...request, messages })).toMatchObject({
      type: 'text',
      content: '42',
      usage: { inputTokens: 10, outputTokens: 5 },
    })
    const pieces: string[] = []
    for await (const { content = '' } of stream({ ...request, messages })) pieces.push(content)
    expect(pieces.join('|')).toBe('4|2')
    const { value } = await generateStructured({
      ...request,
      messages,
      schema: z.object({ answer: z.number() }),
    })
    expect(value).toEqual({ answer: 42 })
    model.assertDone()
    expect(model.requests.map(({ via, lastUserText }) => [via, lastUserText.slice(0, 7)])).toEqual(
      Array(3).fill(['provider', 'What is']),
    )
  })

  it('carries a loop of tools through, which the script watches [T.01]', async () => {
    const { model, request } = prepare({
      rules: [
        {
          when: { turn: 0, tool: 'multiply' },
          reply: calls({ name: 'multiply', arguments: { a: 6, b: 7 } }),
        },
        { when: { result: /^42$/ }, reply: text('It is 42.') },
      ],
    })
    const { response, reason } = await runTurnLoop<LLMChatMessage[]>({
      initialState: messages,
      buildMessages: ({ state }) => state,
      modelRequest: { ...request, tools },
      onTextResponse: ({ state }) => ({ state }),
      onToolCallsResponse: async ({ state, response: { assistantMessage, tool_calls = [] } }) => {
        const results = await Promise.all(
          tool_calls.map(async (call): Promise<LLMChatMessage> => {
            const { content } = await executeTool(request.environment, call, { tools })
            return { role: 'tool', tool_call_id: call.id, content }
          }),
        )
        return { state: [...state, assistantMessage, ...results], next: { control: 'continue' } }
      },
    })
    expect([reason, response?.content]).toEqual(['text_response', 'It is 42.'])
    model.assertDone()
  })

  it('fails as a provider fails, and says at once what the script does not foresee [T.01]', async () => {
    const { model, request } = prepare({ replies: [failure(401, 'no key')] })
    await expect(generate({ ...request, messages })).rejects.toMatchObject({
      kind: 'unauthorized',
      status: 401,
    })
    await expect(generate({ ...request, messages })).rejects.toThrow('no reply to request 2: user "What is 6')
    expect(model.requests).toHaveLength(2)
  })
})
