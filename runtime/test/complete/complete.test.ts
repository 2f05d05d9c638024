// Runs with the library's own loop: evidence, ends, questions, and what is reported meanwhile.
import { describe, expect, it } from 'vitest'
import {
  complete,
  createLLMEnvironment,
  createRuntime,
  createUserInputResult,
  DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION,
  streamComplete,
} from '../../index.ts'
import { calls, createScriptedModel, failure, text } from '../../testing/index.ts'
import { prepare, readAll } from './support.ts'

const call = (name: string, args: unknown = {}) => ({ name, arguments: args })

describe('complete', () => {
  it('carries calls out up to an answer, and gives transcript, usage and evidence [S2.32]', async () => {
    const { model, runtime, request, executed } = prepare([
      calls(call('look'), call('save')),
      text('It is 7.'),
    ])
    const result = await runtime.complete(request)
    expect(result).toMatchObject({
      status: 'completed',
      reason: 'text_response',
      content: 'It is 7.',
      pending: [],
      toolCalls: [],
      evidence: ['read', 'write'],
      usage: { inputTokens: 20, outputTokens: 10 },
      loop: { iterations: 2 },
    })
    expect(result.messages.map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'tool',
      'tool',
      'assistant',
    ])
    expect(executed).toEqual(['look', 'save'])
    model.assertDone()
  })

  it.each(['I will check the file.', 'Ich sehe gleich nach.', 'これから確認します。', 'It is 7.'])(
    'takes no text for an answer before the required evidence: %s [S2.27]',
    async (content) => {
      const { model, runtime, request } = prepare([text(content), calls(call('look')), text('7')], {
        requiredEvidence: 'read',
      })
      const { status, content: answer, loop, messages } = await runtime.complete(request)
      expect([status, answer]).toEqual(['completed', '7'])
      expect(loop.classifications.map(({ classification }) => classification)).toEqual([
        'non_progressing',
        'verified_final_response',
      ])
      const asked = model.requests[1]?.messages ?? []
      expect(asked.slice(-2).map((message) => [message.role, message.content])).toEqual([
        ['assistant', content],
        ['system', DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION],
      ])
      expect(messages.map(({ content }) => content)).not.toContain(content)
    },
  )

  it('fails after two retries by default where a model only promises [S2.27]', async () => {
    const { model, runtime, request } = prepare([text('Let me look.'), text('Voy a ver.'), text('Soon.')], {
      requiredEvidence: true,
    })
    expect(await runtime.complete(request)).toMatchObject({
      status: 'failed',
      reason: 'rejected_text_response',
      evidence: [],
    })
    model.assertDone()
  })

  it('counts the kinds of evidence that are required, of successful calls of this run alone [S2.27]', async () => {
    const earlier = [
      { role: 'user', content: 'Go.' },
      {
        role: 'assistant',
        content: '',
        tool_calls: [{ id: 'c0', type: 'function', function: { name: 'save', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'c0', content: 'save done' },
    ] as const
    const run = async (name: string, more: object) => {
      const { runtime, request } = prepare([calls(call(name)), text('done')], {
        rejectedTextRetryLimit: 0,
        messages: earlier,
        ...more,
      })
      return (await runtime.complete(request)).status
    }
    expect(await run('look', { requiredEvidence: 'write' })).toBe('failed')
    expect(await run('save', { requiredEvidence: 'write' })).toBe('completed')
    expect(await run('fails', { requiredEvidence: true })).toBe('failed')
    expect(await run('nobody', { requiredEvidence: true })).toBe('failed')
    expect(await run('call', { requiredEvidence: ['artifact', 'external_action'] })).toBe('completed')
    expect(await run('look', { requiredEvidence: 'write', initialEvidence: ['write'] })).toBe('completed')
    await expect(run('look', { requiredEvidence: 'proof' })).rejects.toMatchObject({
      code: 'invalid_options',
    })
  })

  it('tells the model of failures, or throws them where errorMode says so [S2.31]', async () => {
    const told = prepare([calls(call('fails')), text('It failed.')])
    const { messages } = await told.runtime.complete(told.request)
    expect(messages[2]?.content).toBe('Error: fails failed: disk full')
    const thrown = prepare([calls(call('fails'))], { errorMode: 'throw' })
    await expect(thrown.runtime.complete(thrown.request)).rejects.toMatchObject({ name: 'LLMToolError' })
  })

  it('hands calls of tools without execute to the application, after all others [S2.32]', async () => {
    const { runtime, request, executed } = prepare([calls(call('own'), call('look'))])
    const result = await runtime.complete(request)
    expect(result).toMatchObject({ status: 'tool_calls', reason: 'tool_calls_response' })
    expect(result.toolCalls.map(({ function: { name } }) => name)).toEqual(['own'])
    expect(executed).toEqual(['look'])
    expect(result.messages.at(-1)).toMatchObject({ role: 'tool', content: 'look done' })
  })

  it.each(['length', 'content_filter'] as const)(
    'takes no answer for one that ended by %s [S2.32]',
    async (reason) => {
      const { runtime, request } = prepare([
        { text: 'It is', stop: reason },
        { text: '', stop: reason },
      ])
      const ends = [await runtime.complete(request), await runtime.complete(request)]
      expect(ends).toMatchObject(Array(2).fill({ status: 'failed', reason }))
    },
  )

  it('throws what a model request fails with, and keeps the bounds of the loop [S2.32 S2.20]', async () => {
    const refused = prepare([failure(401, 'no key')])
    await expect(refused.runtime.complete(refused.request)).rejects.toMatchObject({ kind: 'unauthorized' })
    const endless = prepare([calls(call('look', { at: 1 })), calls(call('look', { at: 2 }))], {
      maxIterations: 2,
    })
    expect(await endless.runtime.complete(endless.request)).toMatchObject({
      status: 'failed',
      reason: 'max_iterations_exceeded',
    })
    const aborted = prepare([text('7')], { abortSignal: AbortSignal.abort() })
    expect(await aborted.runtime.complete(aborted.request)).toMatchObject({ reason: 'aborted' })
  })
})

describe('questions to a person', () => {
  const questions = [{ id: 'where', question: 'Where to?', kind: 'choice', options: ['eu', 'us'] }]

  it('end the run, which continues with their answers in the transcript [S2.32 S2.16]', async () => {
    const { model, runtime, request } = prepare(
      [calls(call('ask_user_input', { questions }), call('look')), text('us it is')],
      { builtIns: { ask_user_input: true } },
    )
    const asked = await runtime.complete(request)
    expect(asked).toMatchObject({
      status: 'waiting_for_human',
      reason: 'needs_user_input',
      evidence: ['read'],
      pending: [{ questions: [{ id: 'where', kind: 'choice' }] }],
    })
    const answers = asked.pending.map((pending) => createUserInputResult(pending, { where: 'us' }))
    const messages = [...asked.messages, ...answers]
    const ended = await runtime.complete({
      ...request,
      messages,
      requiredEvidence: 'interaction',
      initialEvidence: [...asked.evidence, 'interaction'],
    })
    expect(ended).toMatchObject({ status: 'completed', content: 'us it is' })
    expect(model.requests[1]?.messages.at(-1)?.content).toContain('"where":"us"')
  })
})

describe('streamComplete', () => {
  it('yields what happens and returns what complete returns [S2.32]', async () => {
    const { runtime, request } = prepare(
      [text('Soon.'), calls(call('look'), call('fails')), text(['It ', 'is 7.'])],
      { requiredEvidence: true },
    )
    const { events, result } = await readAll(runtime.streamComplete(request))
    expect(events.map(({ type }) => type)).toEqual([
      'model_start',
      'text_delta',
      'assistant_message',
      'text_rejected',
      'model_start',
      'assistant_message',
      'tool_start',
      'tool_result',
      'tool_start',
      'tool_error',
      'model_start',
      'text_delta',
      'text_delta',
      'assistant_message',
      'completed',
    ])
    expect(events.at(-1)).toEqual({ type: 'completed', result })
    expect(result.content).toBe('It is 7.')
  })

  it.each([
    [
      'waiting_for_human',
      [calls(call('human_intervention_request', { question: 'Q', options: ['a', 'b'] }))],
    ],
    ['tool_calls', [calls(call('own'))]],
    ['failed', [text(''), text('')]],
  ] as const)('ends with the event %s [S2.32]', async (type, replies) => {
    const { runtime, request } = prepare(replies, { builtIns: { human_intervention_request: true } })
    const { events, result } = await readAll(runtime.streamComplete(request))
    expect(events.at(-1)).toEqual({ type, result })
    expect(result.status).toBe(type)
  })

  it('throws where complete throws, and aborts the run when its reader leaves [S2.32]', async () => {
    const refused = prepare([failure(401, 'no key')])
    await expect(readAll(refused.runtime.streamComplete(refused.request))).rejects.toMatchObject({
      kind: 'unauthorized',
    })
    let signal: AbortSignal | undefined
    const { runtime, request, tools } = prepare([calls(call('hang'))])
    const hang = {
      ...tools.look,
      execute: (_: unknown, context: { signal: AbortSignal }) => {
        signal = context.signal
        return new Promise(() => undefined)
      },
    }
    for await (const { type } of runtime.streamComplete({ ...request, tools: { hang } }))
      if (type === 'tool_start') {
        await expect.poll(() => signal).toBeDefined()
        break
      }
    expect(signal?.aborted).toBe(true)
  })
})

describe('createRuntime', () => {
  it('binds an environment, its own or a shared one, and disposes only what it made [S2.32 S2.05]', async () => {
    const model = createScriptedModel({ rules: [{ reply: text('hi') }] })
    const environment = createLLMEnvironment({ providers: { scripted: model.provider } })
    const { generate, stream, complete: bound, dispose } = createRuntime({ environment })
    const request = { provider: 'scripted', model: 'm', messages: [{ role: 'user', content: 'x' }] } as const
    expect((await generate(request)).content).toBe('hi')
    expect((await bound(request)).content).toBe('hi')
    expect((await complete({ ...request, environment })).content).toBe('hi')
    const chunks = []
    for await (const { content } of stream(request)) chunks.push(content)
    expect(chunks).toEqual(['hi'])
    const events = []
    for await (const { type } of streamComplete({ ...request, environment })) events.push(type)
    expect(events.at(-1)).toBe('completed')
    await dispose()
    await expect(generate(request)).rejects.toMatchObject({ code: 'not_possible_now' })
  })
})
