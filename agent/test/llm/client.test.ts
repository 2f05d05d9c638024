// The model's client against a real HTTP server that replays the quirks of real ones.
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import { delta, event, reply, toolDelta } from '#specs/testing/model-replies.ts'
import {
  type Script,
  type ScriptedModel,
  type ScriptedReply,
  startScriptedModel,
} from '#specs/testing/model-server.ts'
import { type ClientOptions, collectTurn, streamChat } from '../../llm/client.ts'
import type { ChatMessage } from '../../llm/messages.ts'

const done = event('[DONE]')
const messages: readonly ChatMessage[] = [{ role: 'user', content: 'hello' }]
let model: ScriptedModel | undefined

afterEach(async () => {
  await model?.[Symbol.asyncDispose]()
  model = undefined
})

async function ask(script: Script | readonly ScriptedReply[], options: Partial<ClientOptions> = {}) {
  await model?.[Symbol.asyncDispose]()
  model = await startScriptedModel(script)
  const signal = options.signal ?? new AbortController().signal
  const request = { model: 'm', messages, tools: [], maxTokens: 100 }
  return collectTurn(streamChat(request, { baseUrl: model.baseUrl, signal, ...options }))
}

async function callsOf(...chunks: string[]) {
  const turn = await ask([{ body: `${chunks.join('')}${delta({}, 'tool_calls')}${done}` }])
  if (!turn.ok) throw new Error(turn.error.message)
  return turn.value.toolCalls.map(({ id, name, argumentsText }) => [id, name, argumentsText])
}

describe('streams', () => {
  it('folds text, reasoning, calls, usage and finish to a turn [S1.07]', async () => {
    const turn = await ask([
      reply({
        text: 'hi',
        reasoning: 'hm',
        calls: [{ id: 'a1', name: 'list_files', arguments: { path: 'x' } }],
      }),
    ])
    expect(turn).toEqual({
      ok: true,
      value: {
        text: 'hi',
        reasoning: 'hm',
        toolCalls: [{ id: 'a1', name: 'list_files', argumentsText: '{"path":"x"}' }],
        usage: { requests: 1, inputTokens: 10, outputTokens: 5, reasoningTokens: 0 },
        finishReason: 'tool_calls',
      },
    })
  })

  it('sends only what is needed, and always max_tokens [S1.07]', async () => {
    await ask([reply({ text: 'hi' })])
    expect(Object.keys(model?.asked[0]?.body ?? {}).toSorted()).toEqual([
      'max_tokens',
      'messages',
      'model',
      'stream',
      'stream_options',
    ])
  })

  it('reads the same turn from any cut of the bytes, CRLF, comments and a byte order mark [S1.07]', async () => {
    const plain = `${delta({ content: 'grüße 🎉 ' })}${delta({ content: 'ja\r\nnein' })}${delta({}, 'stop')}${done}`
    const dressed = `\uFEFF: ping\r\n\r\nevent: message\r\n${plain.replaceAll('\n', '\r\n')}`
    const bytes = Buffer.byteLength(dressed)
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: bytes }), async (pieceBytes) => {
        const turn = await ask([{ body: dressed, pieceBytes }])
        expect(turn.ok && turn.value.text).toBe('grüße 🎉 ja\r\nnein')
      }),
      { seed: 7, numRuns: 25, examples: [[1], [2], [3]] },
    )
  })

  it('takes a finish without [DONE], a last event without its blank line, and no space after the colon [S1.07]', async () => {
    const chunk = JSON.stringify({ choices: [{ delta: { content: 'x' }, finish_reason: 'stop' }] })
    const turn = await ask([{ body: `event:an event\ndata:${chunk}` }])
    expect(turn.ok && [turn.value.text, turn.value.finishReason]).toEqual(['x', 'stop'])
  })

  it('takes the greatest usage and never adds [S1.07]', async () => {
    const usage = (count: number) => ({ prompt_tokens: 9, completion_tokens: count })
    const turn = await ask([
      {
        body: [
          event({ choices: [{ delta: { content: 'a' } }], usage: usage(1) }),
          event({ choices: [{ delta: { content: 'b' }, finish_reason: 'stop' }], usage: usage(2) }),
          event({
            choices: null,
            usage: { ...usage(3), completion_tokens_details: { reasoning_tokens: 2 } },
          }),
          done,
        ].join(''),
      },
    ])
    expect(turn.ok && turn.value.usage).toEqual({
      requests: 1,
      inputTokens: 9,
      outputTokens: 3,
      reasoningTokens: 2,
    })
  })

  it('reads both names of reasoning, and thinking at the head of the text [S1.07]', async () => {
    const turn = await ask([
      {
        body: `${delta({ reasoning: 'one ' })}${delta({ content: '<think>two</think>\nfive' })}${delta({}, 'stop')}${done}`,
      },
    ])
    expect(turn.ok && [turn.value.reasoning, turn.value.text]).toEqual(['one two', 'five'])
  })

  it('takes a whole JSON answer in place of a stream [S1.07]', async () => {
    const body = JSON.stringify({
      choices: [
        {
          message: { content: 'x', tool_calls: [{ id: 'q', function: { name: 'f', arguments: { a: 1 } } }] },
          finish_reason: 'tool_calls',
        },
      ],
    })
    const turn = await ask([{ body, headers: { 'content-type': 'application/json; charset=utf-8' } }])
    expect(turn.ok && turn.value.toolCalls).toEqual([{ id: 'q', name: 'f', argumentsText: '{"a":1}' }])
  })
})

describe('tool-call fragments', () => {
  it('assigns a name that every chunk repeats, and ignores its empty tail [S1.07]', async () => {
    const calls = await callsOf(
      toolDelta({ index: 0, id: 'a', function: { name: 'f', arguments: '{"a"' } }),
      toolDelta({ index: 0, function: { name: 'f', arguments: ':1}' } }),
      toolDelta({ index: 0, function: { name: 'f', arguments: '' } }),
    )
    expect(calls).toEqual([['a', 'f', '{"a":1}']])
  })

  it('tells calls apart that all have index 0 and no id [S1.07]', async () => {
    const calls = await callsOf(
      toolDelta({ index: 0, function: { name: 'f', arguments: '{"a":"}"}' } }),
      toolDelta({ index: 0, function: { name: 'g', arguments: '{"b"' } }),
      toolDelta({ index: 0, function: { arguments: ':2}' } }),
      toolDelta({ index: 0, function: { name: 'g', arguments: '{}' } }),
    )
    expect(calls).toEqual([
      ['', 'f', '{"a":"}"}'],
      ['', 'g', '{"b":2}'],
      ['', 'g', '{}'],
    ])
  })

  it('begins a call for a new id on a used index, and takes blank ids as absent [S1.07]', async () => {
    const calls = await callsOf(
      toolDelta({ index: 0, id: 'a', function: { name: 'f', arguments: '{}' } }),
      toolDelta({ index: 0, id: ' ', function: { arguments: '' } }),
      toolDelta({ index: 0, id: 'b', function: { name: 'f', arguments: '{}' } }),
    )
    expect(calls.map(([id]) => id)).toEqual(['a', 'b'])
  })

  it('adds a fragment without index to the current call, or to the one with its id [S1.07]', async () => {
    const calls = await callsOf(
      toolDelta({ id: 'a', function: { name: 'f', arguments: '{' } }),
      toolDelta({ function: { arguments: '}' } }),
      toolDelta({ id: 'b', function: { name: 'g', arguments: '{' } }),
      toolDelta({ id: 'b', function: { arguments: '}' } }),
    )
    expect(calls).toEqual([
      ['a', 'f', '{}'],
      ['b', 'g', '{}'],
    ])
  })

  it('keeps interleaved calls of one chunk apart by index [S1.07]', async () => {
    const calls = await callsOf(
      toolDelta(
        { index: 0, id: 'a', function: { name: 'f' } },
        { index: 1, id: 'b', function: { name: 'g' } },
      ),
      toolDelta(
        { index: 1, function: { arguments: '{"y":' } },
        { index: 0, function: { arguments: '{"x":1}' } },
      ),
      toolDelta({ index: 1, function: { arguments: '2}' } }),
    )
    expect(calls).toEqual([
      ['a', 'f', '{"x":1}'],
      ['b', 'g', '{"y":2}'],
    ])
  })

  it('takes arguments as an object or null [S1.07]', async () => {
    const calls = await callsOf(
      toolDelta({ index: 0, id: 'a', function: { name: 'f', arguments: { deep: [1] } } }),
      toolDelta({ index: 1, id: 'b', function: { name: 'g', arguments: null } }),
    )
    expect(calls).toEqual([
      ['a', 'f', '{"deep":[1]}'],
      ['b', 'g', ''],
    ])
  })

  it('joins 200,000 fragments in time that grows with their number alone [S1.07]', async () => {
    const { ToolCallCollector } = await import('../../llm/tool-calls.ts')
    const time = (count: number): number => {
      const collector = new ToolCallCollector()
      const startedAt = performance.now()
      for (let n = 0; n < count; n++)
        collector.add({ index: 0, id: null, name: 'f', argumentsText: '"abcdef",' })
      collector.finish()
      return performance.now() - startedAt
    }
    time(20_000)
    const small = Math.max(time(20_000), 1)
    expect(time(200_000) / small).toBeLessThan(60)
  })
})

describe('failures', () => {
  const error = async (script: ScriptedReply, options: Partial<ClientOptions> = {}) => {
    const turn = await ask([script], options)
    return turn.ok ? 'no error' : turn.error
  }

  it.each([
    [401, '{"title":"Unauthorized","status":401}', 'refused', false],
    [402, '{"status":402,"title":"Payment Required","detail":"Cloud credits expired"}', 'refused', false],
    [403, '{"status":403,"title":"Forbidden","detail":"Authorization failed"}', 'refused', false],
    [404, '404 page not found', 'refused', false],
    [410, '{"type":"about:blank","title":"Gone","status":410,"detail":"end of life"}', 'refused', false],
    [400, '{"status":400,"detail":"Function id: DEGRADED function cannot be invoked"}', 'overloaded', true],
    [400, '{"error":{"message":"bad","type":"BadRequestError","code":400}}', 'refused', false],
    [429, '{"status":429,"title":"Too Many Requests"}', 'rate_limited', true],
    [429, '{"error":{"message":"spent","type":"limit_tokens"}}', 'limit_tokens', false],
    [502, '<html><head><title>502 Bad Gateway</title></head></html>', 'overloaded', true],
    [503, '', 'overloaded', true],
    [504, '', 'timed_out', true],
  ])('types status %i with body %s [S1.07]', async (status, body, code, retryable) => {
    expect(await error({ status, body })).toMatchObject({ code, status, retryable })
  })

  it('gives Retry-After in milliseconds [S1.07]', async () => {
    expect(await error({ status: 429, body: '', headers: { 'retry-after': '7' } })).toMatchObject({
      retryAfterMs: 7_000,
    })
  })

  it.each([
    [
      'an error object in the stream',
      `${delta({ content: 'x' })}${event({ error: { message: 'ResourceExhausted: Worker local total request limit reached', code: 500 } })}`,
      'overloaded',
    ],
    ['the older flat error object', event({ object: 'error', message: 'gone wrong', code: 400 }), 'refused'],
    ['an end without finish', delta({ content: 'x' }), 'broken'],
    ['no bytes at all', '', 'broken'],
    ['empty choices alone', `${event({ choices: [] })}${done}`, 'broken'],
    ['an event that is not JSON', 'data: {oops\n\n', 'broken'],
  ])('fails for %s [S1.07]', async (_name, body, code) => {
    expect(await error({ body })).toMatchObject({ code })
  })

  it('takes an HTML page of status 200 as no model [S1.07]', async () => {
    const page = { body: '<html></html>', headers: { 'content-type': 'text/html' } }
    expect(await error(page)).toMatchObject({ code: 'broken', retryable: false })
  })

  it('ends a stream that goes silent, however many comments it sends [S1.07]', async () => {
    const hanging = {
      body: `${delta({ content: 'x' })}${': ping\n\n'.repeat(50)}`,
      pieceBytes: 8,
      after: 'hang',
    } as const
    expect(await error(hanging, { idleTimeoutMs: 100 })).toMatchObject({ code: 'timed_out', retryable: true })
  })

  it('ends a wait for the first event, and for the head of the answer [S1.07]', async () => {
    const hanging = { body: ': hold\n\n', after: 'hang' } as const
    expect(await error(hanging, { firstEventTimeoutMs: 100 })).toMatchObject({ code: 'timed_out' })
  })

  it('reports a reset connection and a refused one as unreachable [S1.07]', async () => {
    expect(await error({ body: delta({ content: 'x' }), after: 'reset' })).toMatchObject({
      code: 'unreachable',
    })
    expect(await error({ body: '' }, { baseUrl: 'http://127.0.0.1:9/v1' })).toMatchObject({
      code: 'unreachable',
      retryable: true,
    })
  })

  it('ends an endless stream at its bound of bytes, and its request with it [S1.07]', async () => {
    const endless = { body: delta({ content: 'x'.repeat(1_000) }).repeat(2_000), pieceBytes: 4_096 }
    expect(await error(endless, { maxBytes: 100_000 })).toMatchObject({ code: 'too_large', retryable: false })
    await expect.poll(() => model?.abandoned()).toBe(1)
  })

  it('ends the request when it is cancelled [S1.07]', async () => {
    const controller = new AbortController()
    const hanging: Script = () => {
      setTimeout(() => controller.abort(), 20)
      return { body: delta({ content: 'x' }), after: 'hang' }
    }
    const turn = await ask(hanging, { signal: controller.signal })
    expect(turn).toMatchObject({ ok: false, error: { code: 'cancelled', retryable: false } })
    await expect.poll(() => model?.abandoned()).toBe(1)
  })

  it('makes a value of any bytes whatever [S1.07]', async () => {
    const words = fc.constantFrom(
      'data: ',
      '{',
      '}',
      '"choices":[',
      '[{"delta":',
      'null',
      '\n\n',
      '\r',
      ':',
      '[DONE]',
      '"tool_calls":',
    )
    await fc.assert(
      fc.asyncProperty(fc.array(fc.oneof(words, fc.string()), { maxLength: 30 }), async (pieces) => {
        const turn = await ask([{ body: pieces.join('') }], {
          idleTimeoutMs: 1_000,
          firstEventTimeoutMs: 1_000,
        })
        expect(typeof turn.ok).toBe('boolean')
      }),
      { seed: 11, numRuns: 60 },
    )
  })
})
