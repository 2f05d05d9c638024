// The model's client against a real HTTP server that replays the quirks of real ones.
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import { type ModelErrorCode, modelFailures } from '#specs/node/model-protocols/model-error.ts'
import { dresses, type Fault, faults, quirkTurn } from '#specs/testing/model-quirks.ts'
import { delta, done, event, failure, reply, toolDelta } from '#specs/testing/model-replies.ts'
import {
  type ModelServer,
  type Script,
  type ServerReply,
  startModelServer,
} from '#specs/testing/model-server.ts'
import { type ClientOptions, streamChat } from '../../llm/client.ts'
import type { ChatMessage } from '../../llm/messages.ts'
import { collectTurn } from '../../llm/model.ts'
import { readTurnText } from '../../llm/text-calls.ts'

const messages: readonly ChatMessage[] = [{ role: 'user', content: 'hello' }]
let model: ModelServer | undefined

afterEach(async () => {
  await model?.[Symbol.asyncDispose]()
  model = undefined
})

async function ask(script: Script | readonly ServerReply[], options: Partial<ClientOptions> = {}) {
  await model?.[Symbol.asyncDispose]()
  model = await startModelServer(script)
  const signal = options.signal ?? new AbortController().signal
  const request = { model: 'm', messages, tools: [], maxTokens: 100 }
  const turn = await collectTurn(streamChat(request, { baseUrl: model.baseUrl, signal, ...options }))
  return turn.ok ? { ok: true as const, value: readTurnText(turn.value, request) } : turn
}

async function callsOf(...chunks: string[]) {
  const turn = await ask([{ body: `${chunks.join('')}${delta({}, 'tool_calls')}${done}` }])
  if (!turn.ok) throw new Error(turn.error.message)
  return turn.value.toolCalls.map(({ id, name, argumentsText }) => [id, name, argumentsText])
}

describe('answers in every dress', () => {
  it.each(Object.entries(dresses))('reads the same turn from %s [S1.07] [G.07]', async (_name, dress) => {
    const turn = await ask([dress])
    if (!turn.ok) throw new Error(turn.error.message)
    const { text, reasoning, toolCalls } = turn.value
    const calls = toolCalls.map((call) => ({ name: call.name, arguments: JSON.parse(call.argumentsText) }))
    expect({ text, reasoning, calls }).toEqual(quirkTurn)
  })

  it('folds text, reasoning, calls, usage and finish to a turn [S1.07]', async () => {
    const calls = [{ id: 'a1', name: 'list_files', arguments: { path: 'x' } }]
    expect(await ask([reply({ text: 'hi', reasoning: 'hm', calls })])).toEqual({
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

  it('reads the same turn from any cut of the bytes [S1.07] [G.07]', async () => {
    const plain = `${delta({ content: 'grüße 🎉 ' })}${delta({ content: 'ja\r\nnein' })}${delta({}, 'stop')}${done}`
    const dressed = `\uFEFF: ping\r\n\r\nevent: message\r\n${plain.replaceAll('\n', '\r\n')}`
    const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 })
    await fc.assert(
      fc.asyncProperty(sizes, async (pieceBytes) => {
        const turn = await ask([{ body: dressed, pieceBytes }])
        expect(turn.ok && turn.value.text).toBe('grüße 🎉 ja\r\nnein')
      }),
      { seed: 7, numRuns: 25 },
    )
  })

  it('does not round the numbers of arguments that come as an object [G.07]', async () => {
    const given = '{"id":9007199254740993,"far":1e400,"near":0.1,"many":[12345678901234567890]}'
    const calls = await callsOf(
      toolDelta({ index: 0, id: 'a', function: { name: 'f', arguments: {} } }).replace(
        '"arguments":{}',
        `"arguments":${given}`,
      ),
    )
    expect(calls).toEqual([
      ['a', 'f', '{"id":"9007199254740993","far":"1e400","near":0.1,"many":["12345678901234567890"]}'],
    ])
  })

  it('reads back any text and any arguments, streamed and whole [S1.07] [G.07]', async () => {
    const text = fc.string({ unit: 'binary', minLength: 1 }).map((one) => `x${one}`)
    const call = fc.record({
      name: fc.constantFrom('f', 'g'),
      arguments: fc.dictionary(fc.string(), fc.jsonValue()),
    })
    const content = fc.record({ text, reasoning: text, calls: fc.array(call, { maxLength: 4 }) })
    await fc.assert(
      fc.asyncProperty(
        content,
        fc.boolean(),
        fc.integer({ min: 1, max: 99 }),
        async (said, asWhole, pieceBytes) => {
          const { body, whole = '' } = reply(said)
          const turn = await ask([asWhole ? { body: whole, pieceBytes } : { body, pieceBytes }])
          if (!turn.ok) throw new Error(turn.error.message)
          const { reasoning, toolCalls } = turn.value
          expect([turn.value.text, reasoning]).toEqual([said.text, said.reasoning])
          expect(toolCalls.map(({ argumentsText }) => argumentsText)).toEqual(
            said.calls.map((one) => JSON.stringify(one.arguments)),
          )
        },
      ),
      { seed: 3, numRuns: 40 },
    )
  })

  it('takes the greatest usage and never adds [S1.07]', async () => {
    const usage = (count: number) => ({ prompt_tokens: 9, completion_tokens: count })
    const last = { ...usage(3), completion_tokens_details: { reasoning_tokens: 2 } }
    const body = [
      event({ choices: [{ delta: { content: 'a' } }], usage: usage(1) }),
      event({ choices: [{ delta: { content: 'b' }, finish_reason: 'stop' }], usage: usage(2) }),
      event({ choices: null, usage: last }),
      done,
    ].join('')
    const turn = await ask([{ body }])
    expect(turn.ok && turn.value.usage).toEqual({
      requests: 1,
      inputTokens: 9,
      outputTokens: 3,
      reasoningTokens: 2,
    })
  })

  it.each([
    ['stop', 'stop'],
    ['STOP', 'stop'],
    ['end_turn', 'stop'],
    ['max_tokens', 'length'],
    ['MAX_TOKENS', 'length'],
    ['tool_use', 'tool_calls'],
    ['function_call', 'tool_calls'],
    ['SAFETY', 'content_filter'],
    ['odd_word', 'odd_word'],
    ['constructor', 'constructor'],
  ])('reads the finish %s as %s [S1.07]', async (said, meant) => {
    const turn = await ask([reply({ text: 'x', finishReason: said })])
    expect(turn.ok && turn.value.finishReason).toBe(meant)
  })

  it('waits for the end of an answer that is done, but not for long, and never in vain [S1.07]', async () => {
    const body = `${delta({ content: 'x' })}${delta({}, 'stop')}${done}`
    for (const after of ['hang', 'reset', 'cut', 'end'] as const) {
      const late = delta({ content: 'late' }).repeat(200)
      const turn = await ask([{ body: `${body}${late}`, pieceBytes: 500, after }], { maxBytes: 10_000 })
      expect(turn.ok && turn.value.text).toBe('x')
    }
  })

  it('asks for a whole answer when it is asked to [S1.07]', async () => {
    model = await startModelServer([reply({ text: 'hi' })])
    const request = { model: 'm', messages, tools: [], maxTokens: 100, stream: false }
    const options = { baseUrl: model.baseUrl, signal: new AbortController().signal }
    const turn = await collectTurn(streamChat(request, options))
    expect(turn).toMatchObject({ ok: true, value: { text: 'hi', usage: { inputTokens: 10 } } })
    expect(model.asked[0]).toMatchObject({ headers: { accept: 'application/json' }, body: { stream: false } })
    expect(model.asked[0]?.body).not.toHaveProperty('stream_options')
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
})

/** What each fault of the catalog is; whether it may pass is the code's own matter. */
const codesOfFaults: Record<Fault, ModelErrorCode> = {
  'no bytes': 'truncated',
  'comments alone': 'truncated',
  'empty choices alone': 'empty',
  'only [DONE]': 'empty',
  'an end without finish': 'truncated',
  'an end within an event': 'truncated',
  'a connection closed in the middle': 'truncated',
  'a connection reset in the middle': 'truncated',
  'a connection reset before the head': 'unreachable',
  'a body shorter than its length': 'truncated',
  'silence before the head': 'timed_out',
  'silence after the head': 'timed_out',
  'silence behind comments': 'timed_out',
  'silence within whole JSON': 'timed_out',
  'an event that is not JSON': 'broken',
  'text that is no stream': 'truncated',
  'whole JSON cut off': 'truncated',
  'JSON without a completion': 'not_a_model',
  'an HTML page': 'not_a_model',
  'an HTML page under the type of a stream': 'not_a_model',
  'an error object': 'overloaded',
  'a flat error object': 'invalid_request',
  'an error beside choices': 'bad_gateway',
  'an error as text': 'overloaded',
  'an event of the name error': 'overloaded',
  'an error in place of a stream': 'not_found',
  'a finish of error': 'server_error',
  'a call without a name': 'nameless_call',
  'a call with a blank name and no arguments': 'nameless_call',
  'arguments without a name beside a call': 'nameless_call',
  'a call without a name in an answer that ends as text': 'nameless_call',
  // Seen by the model, which may ask for it in another form.
  'arguments cut off': 'cut_arguments',
}

describe('failures', () => {
  const error = async (script: ServerReply, options: Partial<ClientOptions> = {}) => {
    const turn = await ask([script], options)
    return turn.ok ? 'no error' : turn.error
  }

  it.each(Object.entries(codesOfFaults).filter(([, code]) => code !== 'cut_arguments'))(
    'never takes %s for an answer: it is %s [S1.07] [G.05] [G.07]',
    async (name, code) => {
      const wait = code === 'timed_out' ? 150 : 5_000
      const seen = await error(faults[name as Fault], { firstEventTimeoutMs: wait, idleTimeoutMs: wait })
      expect(seen).toMatchObject({ code, retryable: modelFailures[code].attempts > 1 })
    },
  )

  it('waits between events, however long the first one took [G.05]', async () => {
    const slow = { ...reply({ text: 'slow' }), pieceBytes: 100, pauseMs: 30, headAfterMs: 300 }
    const turn = await ask([slow], { firstEventTimeoutMs: 5_000, idleTimeoutMs: 2_000 })
    expect(turn.ok && turn.value.text).toBe('slow')
  })

  it('does not wait long for the words of an error [G.05]', async () => {
    const stuck: ServerReply = { status: 503, body: '{"error":', after: 'hang' }
    expect(await error(stuck, { idleTimeoutMs: 100 })).toMatchObject({ code: 'overloaded', status: 503 })
  })

  it('gives Retry-After in milliseconds [G.05]', async () => {
    const seen = await error(failure(429, 'slow down', 'openai', { 'retry-after': '7' }))
    expect(seen).toMatchObject({ retryAfterMs: 7_000 })
  })

  it('reports a refused connection as unreachable [S1.07]', async () => {
    const seen = await error({ body: '' }, { baseUrl: 'http://127.0.0.1:9/v1' })
    expect(seen).toMatchObject({ code: 'unreachable', retryable: true })
  })

  it('refuses more calls than the host takes in one message [T.02]', async () => {
    const many = Array.from({ length: 129 }, (_, index) => ({
      index,
      id: `c${index}`,
      function: { name: 'f' },
    }))
    const seen = await error({ body: `${toolDelta(...many)}${delta({}, 'tool_calls')}${done}` })
    expect(seen).toMatchObject({ code: 'answer_too_large' })
  })

  it('ends an endless stream at its bound of bytes, and its request with it [T.02]', async () => {
    const endless = { body: delta({ content: 'x'.repeat(1_000) }).repeat(2_000), pieceBytes: 4_096 }
    const seen = await error(endless, { maxBytes: 100_000 })
    expect(seen).toMatchObject({ code: 'answer_too_large', retryable: false })
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

  it('makes a value of any bytes whatever [T.02]', async () => {
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
