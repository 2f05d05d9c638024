// How long a conversation is, and how much a model takes in.
import { describe, expect, it } from 'vitest'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { Model } from '#runtime/llm/model.ts'
import { modelError } from '#specs/node/model-protocols/model-error.ts'
import { estimateTokens, TokenMeter } from '../../context/tokens.ts'
import { defaultWindowTokens, learnWindow, windowOf } from '../../context/window.ts'

const user = (content: string): ChatMessage => ({ role: 'user', content })
const model = (): Model => () => Promise.reject(new Error('not asked'))

describe('the length of a conversation', () => {
  it('is what the provider counted, and an estimate of the rest by the same measure [A.04]', () => {
    const meter = new TokenMeter('')
    const known = [user('x'.repeat(3_400))]
    const estimated = meter.count(known)
    meter.note(known, estimated * 2)
    expect(meter.count(known)).toBe(estimated * 2)
    const more = [...known, user('x'.repeat(3_400))]
    expect(meter.count(more)).toBe(estimated * 4)
  })

  it('counts words that were added to the last message [A.04]', () => {
    const meter = new TokenMeter('')
    const last = user('x'.repeat(340))
    meter.note([user('a'), last], meter.count([user('a'), last]))
    const grown = [user('a'), user(`${last.content}${'x'.repeat(340)}`)]
    expect(meter.count(grown) - meter.count([user('a'), last])).toBeGreaterThanOrEqual(100)
  })

  it('does not take a count for one that cannot be, such as that of what was not cached [A.04]', () => {
    for (const nonsense of [0, 1, Number.NaN, 1_000_000]) {
      const meter = new TokenMeter('')
      const messages = [user('x'.repeat(3_400))]
      const before = meter.count(messages)
      meter.note(messages, nonsense)
      expect(meter.count(messages)).toBe(before)
    }
  })

  it('forgets what was counted with the messages that were replaced, and keeps the measure [A.04]', () => {
    const meter = new TokenMeter('')
    const messages = [user('x'.repeat(3_400)), user('y'.repeat(3_400))]
    meter.note(messages, meter.count(messages) * 2)
    meter.forget()
    expect(meter.count([user('x'.repeat(3_400))])).toBe(2 * (estimateTokens('x'.repeat(3_400)) + 5))
  })

  it('includes what goes beside the messages [A.04]', () => {
    expect(new TokenMeter('x'.repeat(340)).count([])).toBe(100)
  })
})

describe('the window', () => {
  it('is what the configuration says, else what is known of the model, else what most have [A.04]', () => {
    const id = 'nvidia/nemotron-4-340b-instruct'
    expect(windowOf({ id, model: model() })).toEqual({ tokens: 4_096, inputTokens: 3_072, maxTokens: 1_024 })
    expect(windowOf({ id, model: model(), contextTokens: 100_000 })).toEqual({
      tokens: 100_000,
      inputTokens: 83_616,
    })
    expect(windowOf({ id: 'openai/gpt-oss-20b', model: model() }).tokens).toBe(131_072)
    expect(windowOf({ id: 'unheard-of', model: model() }).tokens).toBe(defaultWindowTokens)
  })

  it.each([
    [
      "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1000 in the messages, 4000 in the completion).",
      4_096,
    ],
    ['the request exceeds the available context size (8192 tokens), try increasing it', 8_192],
    ['prompt is too long: 21000 tokens > 20000 maximum', 20_000],
    ['The input token count (120000) exceeds the maximum number of tokens allowed (104,857).', 104_857],
    ['too long', 37_500],
  ])('is learned from what the server says: %s [A.04]', (message, tokens) => {
    const options = { id: 'unheard-of', model: model() }
    expect(learnWindow(options, modelError('context_exceeded', message, 400), 50_000)).toBe(true)
    expect(windowOf(options).tokens).toBe(tokens)
    expect(windowOf({ id: 'unheard-of', model: model() }).tokens).toBe(defaultWindowTokens)
  })

  it('is not learned twice to no effect [A.04]', () => {
    const options = { id: 'm', model: model(), contextTokens: 1_024 }
    expect(learnWindow(options, modelError('context_exceeded', 'too long', 400), 900)).toBe(false)
  })
})
