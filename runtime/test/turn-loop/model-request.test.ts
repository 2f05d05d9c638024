import { describe, expect, it } from 'vitest'
import { type LLMStreamChunk, runTurnLoop, type TurnLoopModelRequest } from '../../index.ts'
import { createScriptedModel, type ScriptedReply } from '../../testing/index.ts'
import { call, chat, text } from './chat.ts'

/** A loop that asks a scripted server over HTTP through the library's own calls. */
async function asking(replies: readonly ScriptedReply[], more: Partial<TurnLoopModelRequest> = {}) {
  const model = createScriptedModel({ replies })
  const { callModel: _, ...options } = chat([]).options
  const provider = { baseUrl: await model.listen() }
  const modelRequest: TurnLoopModelRequest = {
    provider: 'openai-compatible',
    model: 'scripted',
    providers: { 'openai-compatible': provider },
    tools: { look: { description: 'Looks.', parameters: { type: 'object' } } },
    ...more,
  }
  return {
    model,
    options: { ...options, modelRequest },
    [Symbol.asyncDispose]: () => model[Symbol.asyncDispose](),
  }
}

describe('a turn loop with a model request', () => {
  it.each(['generate', 'stream'] as const)('asks the model by itself, by %s [S2.19]', async (mode) => {
    await using asked = await asking([call('look', { at: 1 }), text(['It is ', '7.'])], { mode })
    const result = await runTurnLoop(asked.options)
    expect(result).toMatchObject({ reason: 'text_response', state: { finalText: 'It is 7.' } })
    expect(result.response?.usage).toMatchObject({ inputTokens: 10 })
    expect(asked.model.requests.map(({ tools }) => tools.map(({ name }) => name))).toEqual([
      ['look'],
      ['look'],
    ])
    expect(asked.model.requests[1]?.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool'])
    asked.model.assertDone()
  })

  it('offers a built-in tool that it names, though it names no working directory [S2.19 S2.10]', async () => {
    await using asked = await asking([text('It is 7.')], { tools: {}, builtIns: { read_file: true } })
    expect(await runTurnLoop(asked.options)).toMatchObject({ reason: 'text_response' })
    expect(asked.model.requests[0]?.tools.map(({ name }) => name)).toEqual(['read_file'])
  })

  it('tells streamed pieces, and keeps the text of an answer that an abort cut off [S2.19, A.02]', async () => {
    const controller = new AbortController()
    const chunks: LLMStreamChunk[] = []
    await using asked = await asking([{ text: ['It ', 'is'], broken: 'hang' }], {
      mode: 'stream',
      onChunk: (chunk) => {
        chunks.push(chunk)
        if (chunks.length === 2) controller.abort()
      },
    })
    const result = await runTurnLoop({ ...asked.options, abortSignal: controller.signal })
    expect(result).toMatchObject({ reason: 'aborted', stop: { partialText: 'It is' } })
    expect(chunks).toEqual([{ content: 'It ' }, { content: 'is' }])
  })

  it('ends the request when the wall time is over [S2.24]', async () => {
    await using asked = await asking([{ text: 'late', delayMs: 60_000 }])
    const result = await runTurnLoop({ ...asked.options, maxWallTimeMs: 50 })
    expect(result).toMatchObject({ reason: 'timeout', response: null })
  })

  it('throws the error of a model that cannot be asked [S2.24]', async () => {
    await using asked = await asking([{ error: { status: 401, message: 'no such key' } }])
    await expect(runTurnLoop(asked.options)).rejects.toThrow('no such key')
  })

  it('leaves the model to the application where that asks it itself, and refuses what is no request [S2.19]', async () => {
    await using asked = await asking([])
    const own = chat([text('mine')])
    const result = await runTurnLoop({ ...asked.options, ...own.options })
    expect(result.state.finalText).toBe('mine')
    const wrong = { ...asked.options, modelRequest: 'gpt' as unknown as TurnLoopModelRequest }
    await expect(runTurnLoop(wrong)).rejects.toMatchObject({ code: 'invalid_options' })
  })
})
