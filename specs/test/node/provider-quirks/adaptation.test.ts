import { describe, expect, it } from 'vitest'
import type { CompletionMessage, CompletionRequest } from '#specs/protocol/completion-request.ts'
import { Adaptation } from '../../../node/provider-quirks/adaptation.ts'
import type { ServerReport } from '../../../node/provider-quirks/capabilities.ts'
import { type OptionalField, optionalFields } from '../../../node/provider-quirks/rejection.ts'

const hello: CompletionMessage = { role: 'user', content: 'hello' }

interface BuildOptions {
  readonly model?: string
  readonly report?: ServerReport
  readonly maxTokens?: number
}

function build(request: Partial<CompletionRequest>, { model = 'm', report, maxTokens }: BuildOptions = {}) {
  const adaptation = new Adaptation(model, report)
  const { body } = adaptation.build({ messages: [hello], ...request }, maxTokens)
  return { adaptation, sent: JSON.parse(body) }
}

/** The optional fields of the adaptation's last body: those that a server can name as rejected. */
function optionalOf(adaptation: Adaptation): OptionalField[] {
  return optionalFields.filter(
    (field) => adaptation.readRejection(400, `{"detail":"'${field}' is not supported"}`)?.kind === 'fields',
  )
}

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
    const request: Partial<CompletionRequest> = {
      stream: true,
      temperature: 1,
      seed: 1,
      tools: [tool],
      messages: [
        hello,
        { role: 'assistant', content: 'hi', reasoning_content: 'hm', tool_calls: [call('a')] },
        hello,
      ],
    }
    const free = build(request, { report: { needsReasoning: true } })
    expect(optionalOf(free.adaptation).sort()).toEqual([
      'max_tokens',
      'reasoning_content',
      'seed',
      'stream',
      'stream_options',
      'strict',
      'temperature',
    ])
    const bare = build(request, { report: { refusedFields: optionalOf(free.adaptation) } })
    expect(bare.sent).toEqual({
      model: 'm',
      messages: [hello, { role: 'assistant', content: 'hi', tool_calls: [call('a')] }, hello],
      tools: [{ type: 'function', function: { name: 'read_file' } }],
      max_completion_tokens: 16_384,
    })
    expect(optionalOf(bare.adaptation)).toEqual([])
  })

  it('asks for no more than the model, its context and the budget allow [G.05]', () => {
    expect(build({}, { report: { maxOutputTokens: 1_024 } }).sent.max_tokens).toBe(1_024)
    expect(build({}, { maxTokens: 50 }).sent.max_tokens).toBe(50)
    const narrow = { report: { contextTokens: 4_096 } }
    expect(build({}, narrow).sent.max_tokens).toBeGreaterThan(3_000)
    expect(build({}, narrow).sent.max_tokens).toBeLessThan(4_000)
    const { adaptation } = build({}, narrow)
    expect(adaptation.adapt({ kind: 'context', contextTokens: 4_096, promptTokens: 4_000 })).toBe(true)
    expect(JSON.parse(adaptation.build({ messages: [hello] }).body).max_tokens).toBe(96)
    const long = { messages: [{ role: 'user' as const, content: 'x'.repeat(20_000) }] }
    expect(build(long, narrow).sent.max_tokens).toBe(256)
  })

  it('has no empty content, and null beside calls [S0.06]', () => {
    const messages: CompletionMessage[] = [
      { role: 'user', content: 'go' },
      { role: 'assistant', content: '', tool_calls: [call('a')] },
      { role: 'tool', tool_call_id: 'a', content: '' },
      { role: 'assistant', content: ' ' },
      { role: 'user', content: 'on' },
    ]
    const { sent } = build({ messages })
    expect(sent.messages.map(({ content }: CompletionMessage) => content)).toEqual([
      'go',
      null,
      '(no output)',
      '(no answer)',
      'on',
    ])
  })

  it('joins neighbors of one role, and never calls or their results [S0.06]', () => {
    const messages: CompletionMessage[] = [
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
    const messages: CompletionMessage[] = [
      hello,
      { role: 'assistant', content: 'both', tool_calls: [call('x'), call('y')] },
      { role: 'tool', tool_call_id: 'y', content: '2' },
      { role: 'tool', tool_call_id: 'x', content: '1' },
      hello,
    ]
    expect(build({ messages }, { model: 'meta/llama-3.1-70b-instruct' }).sent.messages).toEqual([
      hello,
      { role: 'assistant', content: 'both', tool_calls: [call('x')] },
      { role: 'tool', tool_call_id: 'x', content: '1' },
      { role: 'assistant', content: null, tool_calls: [call('y')] },
      { role: 'tool', tool_call_id: 'y', content: '2' },
      hello,
    ])
  })

  const superModel = 'nvidia/nemotron-3-super-120b-a12b'
  const thinks = { enable_thinking: true }

  it.each([
    [superModel, 'none', { chat_template_kwargs: { enable_thinking: false } }, undefined],
    [
      superModel,
      'low',
      { chat_template_kwargs: { ...thinks, low_effort: true }, reasoning_budget: 250 },
      undefined,
    ],
    [superModel, 'medium', { chat_template_kwargs: thinks, reasoning_budget: 500 }, undefined],
    [superModel, 'high', { chat_template_kwargs: thinks, reasoning_budget: 500 }, undefined],
    [
      'nvidia/nemotron-3.5-lightning-30b-a3b',
      'low',
      { chat_template_kwargs: thinks, reasoning_budget: 250 },
      undefined,
    ],
    ['moonshotai/kimi-k2.6', 'none', { chat_template_kwargs: { thinking: false } }, undefined],
    ['qwen/qwen3-32b', 'high', { chat_template_kwargs: thinks }, undefined],
    ['nvidia/nvidia-nemotron-nano-9b-v2', 'none', {}, '/no_think'],
    ['nvidia/llama-3.3-nemotron-super-49b-v1', 'high', {}, 'detailed thinking on'],
    ['openai/gpt-oss-120b', 'low', { reasoning_effort: 'low' }, undefined],
  ] as const)('asks %s for the effort %s in its own way [S0.06] [G.05]', (model, effort, fields, words) => {
    const { sent } = build({ reasoning_effort: effort, max_tokens: 1_000 }, { model })
    const { messages, model: _, max_tokens: __, ...rest } = sent
    expect(rest).toEqual(fields)
    expect(messages[0].role === 'system' ? messages[0].content : undefined).toBe(words)
  })

  it('asks for no effort by itself, and leaves room for the answer beside the reasoning [G.05]', () => {
    const fieldsOf = (model: string) => Object.keys(build({}, { model }).sent).sort()
    expect(fieldsOf('openai/gpt-oss-120b')).toEqual(['max_tokens', 'messages', 'model'])
    expect(fieldsOf(superModel)).toEqual(['max_tokens', 'messages', 'model', 'reasoning_budget'])
    const { sent } = build({}, { model: superModel, maxTokens: 600 })
    expect([sent.max_tokens, sent.reasoning_budget]).toEqual([600, 300])
  })

  it('asks a Nemotron for an answer that is not empty, beside tools [G.05]', () => {
    const { sent } = build({ tools: [tool] }, { model: superModel })
    expect(sent.chat_template_kwargs).toEqual({ force_nonempty_content: true })
    expect(build({ tools: [tool] }).sent).not.toHaveProperty('chat_template_kwargs')
  })

  it('leaves out the switches that a server refuses, and then says the effort in the common word [G.05]', () => {
    const { adaptation } = build({ reasoning_effort: 'low', tools: [tool] }, { model: superModel })
    for (const name of ['reasoning_budget', 'low_effort']) {
      const rejection = adaptation.readRejection(
        400,
        `{"detail":"body -> ${name}\\n Extra inputs are not permitted"}`,
      )
      expect(rejection !== null && adaptation.adapt(rejection)).toBe(true)
      adaptation.build({ messages: [hello], reasoning_effort: 'low', tools: [tool] })
    }
    expect(adaptation.learned.refusedFields).toEqual(['reasoning_budget', 'chat_template_kwargs'])
    const { body } = adaptation.build({ messages: [hello], reasoning_effort: 'low', tools: [tool] })
    expect(JSON.parse(body)).toMatchObject({ reasoning_effort: 'low' })
    expect(body).not.toMatch(/chat_template_kwargs|reasoning_budget/)
  })

  it('keeps fields of the server itself, and its name for the length [S2.01]', () => {
    const request = { messages: [hello], max_completion_tokens: 7, store: false }
    const { body } = new Adaptation('m').build(request)
    expect(JSON.parse(body)).toEqual({
      model: 'm',
      messages: [hello],
      store: false,
      max_completion_tokens: 7,
    })
  })
})

describe('the reasoning before calls', () => {
  const messages: CompletionMessage[] = [
    hello,
    { role: 'assistant', content: null, reasoning_content: 'hm', tool_calls: [call('a')] },
    { role: 'tool', tool_call_id: 'a', content: '1' },
    { role: 'assistant', content: null, tool_calls: [call('b')] },
    { role: 'tool', tool_call_id: 'b', content: '2' },
    { role: 'assistant', content: 'done', reasoning_content: 'so' },
  ]
  const required =
    '{"error":{"message":"The reasoning_content in the thinking mode must be passed back to the API"}}'
  const reasoningOf = (adaptation: Adaptation) =>
    JSON.parse(adaptation.build({ messages }).body)
      .messages.filter(({ role }: CompletionMessage) => role === 'assistant')
      .map((message: object) => ('reasoning_content' in message ? message.reasoning_content : null))

  it('is sent once the server has required it, with calls alone [S1.07]', () => {
    const adaptation = new Adaptation('m')
    expect(reasoningOf(adaptation)).toEqual([null, null, null])
    const rejection = adaptation.readRejection(400, required)
    expect(rejection).toEqual({ kind: 'reasoning_required' })
    expect(rejection !== null && adaptation.adapt(rejection)).toBe(true)
    expect(reasoningOf(adaptation)).toEqual(['hm', '', null])
    expect(adaptation.learned).toEqual({ needsReasoning: true })
  })

  it('is not sent in circles to a server that rejects it too [G.05]', () => {
    const adaptation = new Adaptation('m', { needsReasoning: true })
    adaptation.build({ messages })
    const rejection = adaptation.readRejection(400, '{"detail":"\'reasoning_content\' is not supported"}')
    expect(rejection !== null && adaptation.adapt(rejection)).toBe(true)
    expect(reasoningOf(adaptation)).toEqual([null, null, null])
    expect(adaptation.adapt({ kind: 'reasoning_required' })).toBe(false)
  })
})

describe('a rejection', () => {
  it('changes a request six times at most, and only when something changes [G.05]', () => {
    const { adaptation } = build({ max_tokens: 100 })
    expect(adaptation.adapt({ kind: 'output', maxOutputTokens: 100 })).toBe(false)
    expect(adaptation.adapt({ kind: 'output', maxOutputTokens: 50 })).toBe(true)
    expect(adaptation.adapt({ kind: 'single_calls' })).toBe(true)
    expect(adaptation.adapt({ kind: 'single_calls' })).toBe(false)
    expect(adaptation.adapt({ kind: 'tools' })).toBe(false)
    expect(adaptation.adapt({ kind: 'fields', fields: ['seed'] })).toBe(true)
    expect(adaptation.adapt({ kind: 'fields', fields: ['stop'] })).toBe(false)
    expect(adaptation.learned).toEqual({ maxOutputTokens: 50, singleCalls: true, refusedFields: ['seed'] })
  })
})
