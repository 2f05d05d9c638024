import { describe, expect, it } from 'vitest'
import { abilitiesOf, type ModelCapabilities } from '../../providers/capabilities.ts'
import type { ChatMessage, ChatRequest } from '../../providers/chat-request.ts'
import type { OptionalField } from '../../providers/request-rejection.ts'
import { buildWireRequest, type WireOptions } from '../../providers/wire-request.ts'

const hello: ChatMessage = { role: 'user', content: 'hello' }

function build(request: Partial<ChatRequest>, options: Partial<WireOptions> = {}) {
  const built = buildWireRequest(
    { messages: [hello], ...request },
    {
      model: 'm',
      abilities: abilitiesOf('unknown/model'),
      refused: new Set<OptionalField>(),
      maxTokens: 1_000_000,
      promptTokens: null,
      ...options,
    },
  )
  return { ...built, sent: JSON.parse(built.body) }
}

const able = (changes: Partial<ModelCapabilities>): ModelCapabilities => ({
  ...abilitiesOf('unknown/model'),
  ...changes,
})
const call = (id: string) => ({
  id,
  type: 'function' as const,
  function: { name: 'read_file', arguments: '{}' },
})
const tool = { type: 'function' as const, function: { name: 'read_file', strict: true } }

describe('the body for a model server', () => {
  it('always has max_tokens, and no field that nobody asked for [S0.06]', () => {
    expect(build({ stream: true }).sent).toEqual({
      model: 'm',
      messages: [hello],
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 16_384,
    })
    expect(build({}).sent).not.toHaveProperty('stream_options')
    expect(build({ max_tokens: 7 }).sent.max_tokens).toBe(7)
  })

  it('leaves out what the server refuses, never model, messages and tools [G.05]', () => {
    const request: Partial<ChatRequest> = {
      stream: true,
      temperature: 1,
      seed: 1,
      tools: [tool],
      messages: [hello, { role: 'assistant', content: 'hi', reasoning_content: 'hm' }, hello],
    }
    const free = build(request)
    expect([...free.spare].sort()).toEqual([
      'max_tokens',
      'reasoning_content',
      'seed',
      'stream',
      'stream_options',
      'strict',
      'temperature',
    ])
    const bare = build(request, { refused: free.spare })
    expect(bare.sent).toEqual({
      model: 'm',
      messages: [hello, { role: 'assistant', content: 'hi' }, hello],
      tools: [{ type: 'function', function: { name: 'read_file' } }],
      max_completion_tokens: 16_384,
    })
    expect([...bare.spare]).toEqual([])
  })

  it('asks for no more than the model, its context and the budget allow [G.05]', () => {
    expect(build({}, { abilities: able({ maxOutputTokens: 1_024 }) }).sent.max_tokens).toBe(1_024)
    expect(build({}, { maxTokens: 50 }).sent.max_tokens).toBe(50)
    const narrow = { abilities: able({ contextTokens: 4_096 }) }
    expect(build({}, narrow).sent.max_tokens).toBeGreaterThan(3_000)
    expect(build({}, narrow).sent.max_tokens).toBeLessThan(4_000)
    expect(build({}, { ...narrow, promptTokens: 4_000 }).sent.max_tokens).toBe(96)
    const long = { messages: [{ role: 'user' as const, content: 'x'.repeat(20_000) }] }
    expect(build(long, narrow).sent.max_tokens).toBe(256)
  })

  it('has no empty content, and null beside calls [S0.06]', () => {
    const messages: ChatMessage[] = [
      { role: 'user', content: 'go' },
      { role: 'assistant', content: '', tool_calls: [call('a')] },
      { role: 'tool', tool_call_id: 'a', content: '' },
      { role: 'assistant', content: ' ' },
      { role: 'user', content: 'on' },
    ]
    const { sent } = build({ messages })
    expect(sent.messages.map(({ content }: ChatMessage) => content)).toEqual([
      'go',
      null,
      '(no output)',
      '(no answer)',
      'on',
    ])
  })

  it('joins neighbours of one role, and never calls or their results [S0.06]', () => {
    const messages: ChatMessage[] = [
      { role: 'system', content: 'a' },
      { role: 'system', content: 'b' },
      { role: 'user', content: 'c' },
      { role: 'user', content: 'd' },
      { role: 'assistant', content: 'e' },
      { role: 'assistant', content: 'f', tool_calls: [call('x'), call('y')] },
      { role: 'tool', tool_call_id: 'x', content: '1' },
      { role: 'tool', tool_call_id: 'y', content: '2' },
    ]
    expect(build({ messages }).sent.messages).toEqual([
      { role: 'system', content: 'a\n\nb' },
      { role: 'user', content: 'c\n\nd' },
      { role: 'assistant', content: 'e\n\nf', tool_calls: [call('x'), call('y')] },
      ...messages.slice(6),
    ])
  })

  it('parts a turn of several calls for a model that takes one, each with its result [S0.06]', () => {
    const messages: ChatMessage[] = [
      hello,
      { role: 'assistant', content: 'both', tool_calls: [call('x'), call('y')] },
      { role: 'tool', tool_call_id: 'y', content: '2' },
      { role: 'tool', tool_call_id: 'x', content: '1' },
      hello,
    ]
    expect(
      build({ messages }, { abilities: abilitiesOf('meta/llama-3.1-70b-instruct') }).sent.messages,
    ).toEqual([
      hello,
      { role: 'assistant', content: 'both', tool_calls: [call('x')] },
      { role: 'tool', tool_call_id: 'x', content: '1' },
      { role: 'assistant', content: null, tool_calls: [call('y')] },
      { role: 'tool', tool_call_id: 'y', content: '2' },
      hello,
    ])
  })

  it.each([
    ['nvidia/nemotron-3-super-120b-a12b', { chat_template_kwargs: { enable_thinking: false } }, undefined],
    ['nvidia/nvidia-nemotron-nano-9b-v2', {}, '/no_think'],
    ['nvidia/llama-3.3-nemotron-super-49b-v1', {}, 'detailed thinking off'],
    ['openai/gpt-oss-120b', { reasoning_effort: 'none' }, undefined],
  ])('switches the thinking of %s in its own way, and only when asked to [S0.06]', (model, fields, words) => {
    const options = { abilities: abilitiesOf(model) }
    const { sent } = build({ reasoning_effort: 'none' }, options)
    const { messages, model: _, max_tokens: __, ...rest } = sent
    expect(rest).toEqual(fields)
    expect(messages[0].role === 'system' ? messages[0].content : undefined).toBe(words)
    expect(Object.keys(build({}, options).sent).sort()).toEqual(['max_tokens', 'messages', 'model'])
  })
})
