// The model as steps see it: what is asked again, after which pause, and what is not.
import { describe, expect, it } from 'vitest'
import { delta, reply } from '#specs/testing/model-replies.ts'
import { type ScriptedReply, startScriptedModel } from '#specs/testing/model-server.ts'
import { streamChat } from '../../llm/client.ts'
import type { ModelError } from '../../llm/errors.ts'
import { createModel, type ModelOptions } from '../../llm/model.ts'

async function ask(replies: readonly ScriptedReply[], options: Partial<ModelOptions> = {}) {
  await using server = await startScriptedModel(replies)
  const retries: { error: ModelError; delayMs: number }[] = []
  const model = createModel({
    model: 'm',
    baseUrl: server.baseUrl,
    firstDelayMs: 4,
    maxDelayMs: 10,
    random: () => 0.5,
    ...options,
  })
  const hooks = {
    signal: new AbortController().signal,
    onRetry: (error: ModelError, delayMs: number) => void retries.push({ error, delayMs }),
  }
  const turn = await model({ messages: [{ role: 'user', content: 'hi' }], tools: [] }, hooks)
  return { turn, pauses: retries.map(({ delayMs }) => delayMs), asked: server.asked }
}

const busy = { status: 503, body: '' }

describe('createModel', () => {
  it('asks again with doubled, bounded and jittered pauses, up to its attempts [S1.07]', async () => {
    const { turn, pauses, asked } = await ask([busy])
    expect(turn).toMatchObject({ ok: false, error: { code: 'overloaded' } })
    expect(asked).toHaveLength(5)
    expect(pauses).toEqual([3, 6, 8, 8])
  })

  it('waits as long as the server wishes, within reason [S1.07]', async () => {
    const wish = (seconds: string): ScriptedReply => ({
      status: 429,
      body: '',
      headers: { 'retry-after': seconds },
    })
    const { pauses } = await ask([wish('0.018'), wish('9999'), reply({ text: 'ok' })])
    expect(pauses).toEqual([18, 20])
  })

  it('does not ask again when that cannot help [S1.07]', async () => {
    for (const body of ['{"error":{"message":"x","code":"limit_tokens"}}', '{"detail":"quota exceeded"}']) {
      expect((await ask([{ status: 429, body }])).asked).toHaveLength(1)
    }
    expect((await ask([{ status: 403, body: '' }])).asked).toHaveLength(1)
  })

  it('sends the same bytes again [S1.07]', async () => {
    const { asked } = await ask([
      busy,
      { body: delta({ content: 'half' }), after: 'reset' },
      reply({ text: 'ok' }),
    ])
    expect(asked).toHaveLength(3)
    expect(new Set(asked.map(({ text }) => text)).size).toBe(1)
  })

  it('ends a pause when it is cancelled [S1.07]', async () => {
    await using server = await startScriptedModel([busy])
    const controller = new AbortController()
    const model = createModel({
      model: 'm',
      baseUrl: server.baseUrl,
      firstDelayMs: 60_000,
      maxDelayMs: 60_000,
    })
    const turn = await model(
      { messages: [{ role: 'user', content: 'hi' }], tools: [] },
      { signal: controller.signal, onRetry: () => setTimeout(() => controller.abort(), 5) },
    )
    expect(turn).toMatchObject({ ok: false, error: { code: 'cancelled' } })
  })
})

describe('streamChat', () => {
  it('ends its request when its reader leaves early [S1.07]', async () => {
    await using server = await startScriptedModel([{ body: delta({ content: 'x' }), after: 'hang' }])
    const request = { model: 'm', messages: [], tools: [], maxTokens: 1 }
    for await (const part of streamChat(request, {
      baseUrl: server.baseUrl,
      signal: new AbortController().signal,
    })) {
      expect(part).toEqual({ type: 'text', text: 'x' })
      break
    }
    await expect.poll(() => server.abandoned()).toBe(1)
  })

  it('never sends an empty message, nor arguments or names that servers refuse [S1.07]', async () => {
    await using server = await startScriptedModel([reply({ text: 'ok' })])
    const toolCalls = [
      { id: 'a', name: 'fly away!', argumentsText: '{"cut' },
      { id: 'b', name: '', argumentsText: '' },
    ]
    const request = {
      model: 'm',
      messages: [
        { role: 'assistant', content: '', toolCalls },
        { role: 'tool', callId: 'a', content: ' ' },
        { role: 'assistant', content: '', toolCalls: [] },
      ] as const,
      tools: [],
      maxTokens: 1,
    }
    for await (const part of streamChat(request, {
      baseUrl: server.baseUrl,
      signal: new AbortController().signal,
    }))
      void part
    expect(server.asked[0]?.messages).toEqual([
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          { id: 'a', type: 'function', function: { name: 'fly_away_', arguments: '{}' } },
          { id: 'b', type: 'function', function: { name: 'unknown', arguments: '{}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'a', content: '(no output)' },
      { role: 'assistant', content: '(no answer)' },
    ])
  })
})
