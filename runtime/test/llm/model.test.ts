// The model as steps see it: what is asked again, after which pause and in which form, and what is not.
import { describe, expect, it } from 'vitest'
import type { ModelError } from '#specs/node/model-protocols/model-error.ts'
import { Adaptation } from '#specs/node/provider-quirks/adaptation.ts'
import { type Fault, faults } from '#specs/testing/model-quirks.ts'
import { delta, failure, reply } from '#specs/testing/model-replies.ts'
import { type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { streamChat } from '../../llm/client.ts'
import type { ChatMessage } from '../../llm/messages.ts'
import { createModel, type ModelOptions } from '../../llm/model.ts'

async function ask(replies: readonly ServerReply[], options: Partial<ModelOptions> = {}) {
  await using server = await startModelServer(replies)
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
  it('asks again with doubled, bounded and jittered pauses, up to its attempts [G.05]', async () => {
    const { turn, pauses, asked } = await ask([busy])
    expect(turn).toMatchObject({ ok: false, error: { code: 'overloaded' } })
    expect(asked).toHaveLength(5)
    expect(pauses).toEqual([3, 6, 8, 8])
  })

  it('waits as long as the server asks, within reason [G.05]', async () => {
    const reject = (seconds: string): ServerReply => ({
      status: 429,
      body: '',
      headers: { 'retry-after': seconds },
    })
    const { pauses } = await ask([reject('0.018'), reject('9999'), reply({ text: 'ok' })])
    expect(pauses).toEqual([18, 20])
  })

  it('does not ask again when that cannot help [G.05]', async () => {
    const spent = JSON.stringify({ error: { message: 'x', type: 'gateway_error', code: 'limit_tokens' } })
    for (const body of [spent, '{"detail":"quota exceeded"}'])
      expect((await ask([{ status: 429, body }])).asked).toHaveLength(1)
    expect((await ask([failure(403)])).asked).toHaveLength(1)
    expect((await ask([faults['an HTML page']])).asked).toHaveLength(1)
  })

  it('gives up a doubtful request sooner than one that will pass [G.05]', async () => {
    expect((await ask([failure(500)])).asked).toHaveLength(3)
    expect((await ask([failure(504)])).asked).toHaveLength(3)
    expect((await ask([failure(429)])).asked).toHaveLength(5)
    expect((await ask([failure(429)], { maxAttempts: 2 })).asked).toHaveLength(2)
  })

  it('sends the same bytes again [G.05]', async () => {
    const { asked } = await ask([
      busy,
      { body: delta({ content: 'half' }), after: 'reset' },
      reply({ text: 'ok' }),
    ])
    expect(asked).toHaveLength(3)
    expect(new Set(asked.map(({ text }) => text)).size).toBe(1)
  })

  it('ends a pause when it is cancelled [S1.07]', async () => {
    await using server = await startModelServer([busy])
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

/** A conversation of several turns in one run; what each request was like. */
async function converse(
  turns: number,
  replies: readonly ServerReply[],
  history: readonly ChatMessage[] = [],
) {
  await using server = await startModelServer(replies)
  const model = createModel({ model: 'm', baseUrl: server.baseUrl, firstDelayMs: 1, maxDelayMs: 1 })
  const said: string[] = []
  const notes: string[] = []
  for (let turn = 0; turn < turns; turn++) {
    const answer = await model(
      { messages: [{ role: 'user', content: 'hi' }, ...history], tools: [] },
      {
        signal: new AbortController().signal,
        onRetry: (error, ms) => void notes.push(`${error.code} ${ms > 0}`),
      },
    )
    said.push(answer.ok ? answer.value.text || `${answer.value.toolCalls.length} calls` : answer.error.code)
  }
  return { said, notes, streamed: server.asked.map(({ body }) => body.stream), asked: server.asked }
}

describe('providers that break streams', () => {
  const cut = faults['arguments cut off']
  const good = reply({ text: 'good' })

  it.each<[string, ServerReply]>([
    ['refused', failure(400, 'Streaming is not supported for this model')],
    ['not JSON', faults['an event that is not JSON']],
  ])(
    'are asked for whole answers at once when a stream is %s, for the rest of the run [G.05]',
    async (_name, bad) => {
      const { said, streamed, notes } = await converse(2, [bad, good])
      expect(said).toEqual(['good', 'good'])
      expect(streamed).toEqual([true, false, false])
      expect(notes).toEqual([expect.stringMatching(/ false$/)])
    },
  )

  it.each<Fault>([
    'an end without finish',
    'a connection reset in the middle',
    'no bytes',
    'empty choices alone',
  ])('are asked for whole answers after %s in two answers in a row [G.05]', async (fault) => {
    const bad = faults[fault]
    expect(await converse(2, [bad, good])).toMatchObject({
      said: ['good', 'good'],
      streamed: [true, true, true],
    })
    expect((await converse(3, [bad, good, bad, good])).streamed).toEqual([true, true, true, true, true])
    expect((await converse(2, [bad, bad, good])).streamed).toEqual([true, true, false, false])
  })

  it('are asked for a whole answer at once after a call without a name, which is never handed on [S2.08] [G.07]', async () => {
    const nameless = faults['a call without a name']
    expect(await converse(2, [nameless, good])).toMatchObject({
      said: ['good', 'good'],
      streamed: [true, false, false],
      notes: ['nameless_call false'],
    })
    expect((await converse(1, [nameless])).said).toEqual(['nameless_call'])
  })

  it('are asked for whole answers after arguments were cut off twice in the run [G.05] [G.07]', async () => {
    const { said, streamed, notes } = await converse(3, [cut, good, cut, good])
    expect(said).toEqual(['good', 'good', 'good'])
    expect(streamed).toEqual([true, true, true, false, false])
    expect(notes.every((note) => note.startsWith('cut_arguments'))).toBe(true)
  })

  it('leave to the tools what is cut off in a whole answer too, or by the length limit [G.07]', async () => {
    const calls = [{ id: 'a', name: 'f', arguments: '{"path":"a' }]
    const whole = await converse(1, [reply({ calls })])
    expect(whole).toMatchObject({ said: ['1 calls'], streamed: [true, true, false] })
    const long = await converse(1, [reply({ calls, finishReason: 'length' })])
    expect(long).toMatchObject({ said: ['1 calls'], streamed: [true] })
  })

  it('are not suspected for arguments that are not JSON but not cut either, or of none [G.07]', async () => {
    for (const text of ['{"code": "print("hi")"}', "{'a': 1}", '', 'null', '{"a":1}}', 'ls -l']) {
      const answer = reply({ calls: [{ id: 'a', name: 'f', arguments: text }] })
      expect(await converse(1, [answer])).toMatchObject({ said: ['1 calls'], streamed: [true] })
    }
  })

  it('are asked for streams again when they give nothing else, and then continue so [G.05]', async () => {
    const required = failure(400, 'This model only supports streaming')
    const bad = faults['an event that is not JSON']
    const { said, streamed } = await converse(2, [bad, required, good, bad, good])
    expect(said).toEqual(['good', 'good'])
    expect(streamed).toEqual([true, false, true, true, true])
  })

  it('are not asked in circles [G.05]', async () => {
    const refusing = (asked: { body: Readonly<Record<string, unknown>> }): ServerReply =>
      failure(400, asked.body.stream === true ? 'streaming is not supported' : 'stream must be true')
    await using server = await startModelServer(refusing)
    const model = createModel({ model: 'm', baseUrl: server.baseUrl, firstDelayMs: 1 })
    const turn = await model({ messages: [], tools: [] }, { signal: new AbortController().signal })
    expect(turn).toMatchObject({ ok: false, error: { code: 'stream_refused' } })
    expect(server.asked).toHaveLength(3)
  })
})

describe('requests behind a gateway', () => {
  it('are sent as they are, with the reasoning that led to calls: the gateway adapts them [S1.07]', async () => {
    const history: ChatMessage[] = [
      {
        role: 'assistant',
        content: '',
        toolCalls: [{ id: 'a', name: 'f', argumentsText: '{}' }],
        reasoning: 'hm',
      },
      { role: 'tool', callId: 'a', content: '' },
    ]
    const { said, asked } = await converse(1, [failure(400, 'Unknown field: stream_options')], history)
    expect(said).toEqual(['invalid_request'])
    expect(asked).toHaveLength(1)
    expect(asked[0]?.messages.slice(1)).toEqual([
      {
        role: 'assistant',
        content: '',
        reasoning_content: 'hm',
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'a', content: '' },
    ])
  })
})

describe('streamChat', () => {
  it('ends its request when its reader leaves early [S1.07]', async () => {
    await using server = await startModelServer([{ body: delta({ content: 'x' }), after: 'hang' }])
    const request = { model: 'm', messages: [], tools: [], maxTokens: 1 }
    for await (const parts of streamChat(request, {
      baseUrl: server.baseUrl,
      signal: new AbortController().signal,
    })) {
      expect(parts).toEqual([{ type: 'text', text: 'x' }])
      break
    }
    await expect.poll(() => server.abandoned()).toBe(1)
  })

  it('sends to a server itself no empty message, and no arguments or names that servers refuse [S1.07]', async () => {
    await using server = await startModelServer([reply({ text: 'ok' })])
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
      adaptation: new Adaptation('m'),
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
