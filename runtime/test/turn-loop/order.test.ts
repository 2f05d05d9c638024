import { describe, expect, it } from 'vitest'
import { runTurnLoop } from '../../index.ts'
import { call, chat, text, times } from './chat.ts'

describe('an iteration of the turn loop', () => {
  it('calls hooks and callbacks in their fixed order, the end once and last [S2.22, S2.26]', async () => {
    const order: string[] = []
    const note = (name: string) => () => void order.push(name)
    const { options } = chat([call('look'), text('Let me check'), text('done')], {
      rejectedTextRetryLimit: 1,
      onIterationStart: note('start'),
      onModelResponse: note('response'),
      onClassification: note('classification'),
      onStop: note('stop'),
      requiresActionEvidence: () => {
        order.push('evidence')
        return true
      },
      onRejectedTextResponse: note('rejected'),
    })
    const { buildMessages, callModel, onToolCallsResponse, onTextResponse } = options
    await runTurnLoop({
      ...options,
      parsePlainTextToolIntent: () => {
        order.push('intent')
        return null
      },
      buildMessages: (params) => {
        order.push('messages')
        return buildMessages(params)
      },
      callModel: (params) => {
        order.push('model')
        return callModel === undefined ? Promise.reject(new Error('no model')) : callModel(params)
      },
      onToolCallsResponse: (params) => {
        order.push('tools')
        return onToolCallsResponse(params)
      },
      onTextResponse: (params) => {
        order.push('text')
        return onTextResponse(params)
      },
    })
    const head = ['start', 'messages', 'model']
    const judged = [...head, 'intent', 'response', 'evidence', 'classification']
    expect(order).toEqual([
      ...[...head, 'response', 'tools'],
      ...[...judged, 'rejected'],
      ...[...judged, 'text'],
      'stop',
    ])
  })

  it('goes the same way with hooks and without [S2.26]', async () => {
    const script = [call('look'), text(''), text('done')]
    const bare = await runTurnLoop(chat(script, { emptyTextRetryLimit: 1 }).options)
    const hooked = await runTurnLoop({
      ...chat(script, { emptyTextRetryLimit: 1 }).options,
      onIterationStart: async () => {},
      onModelResponse: async () => {},
      onClassification: async () => {},
      onStop: async () => {},
    })
    const shape = ({ elapsedMs: _, ...step }: (typeof bare.steps)[number]) => step
    expect(hooked.steps.map(shape)).toEqual(bare.steps.map(shape))
    expect(hooked.state).toEqual(bare.state)
  })

  it('shows hooks the counters, the messages, and the answer before and after normalization [S2.26]', async () => {
    const seen: unknown[] = []
    const { options } = chat([text('USE look'), text('done')], {
      parsePlainTextToolIntent: (content) =>
        content.startsWith('USE ') ? { toolName: content.slice(4), toolArgs: {} } : null,
      onIterationStart: ({ iteration, consecutiveToolTurns }) =>
        void seen.push([iteration, consecutiveToolTurns]),
      onModelResponse: ({ rawResponse, response, normalizedToolIntent, messages }) =>
        void seen.push([rawResponse.type, response.type, normalizedToolIntent, messages.length]),
      onClassification: ({ assessment, responseText, requiresActionEvidence }) =>
        void seen.push([assessment.classification, responseText, requiresActionEvidence]),
    })
    await runTurnLoop(options)
    expect(seen).toEqual([
      [1, 0],
      ['text', 'tool_calls', true, 1],
      [2, 1],
      ['text', 'text', false, 3],
      ['verified_final_response', 'done', false],
    ])
  })

  it('gives an instruction to the next request alone [S2.22]', async () => {
    const { options, requests } = chat([call('a'), call('b'), text('done')])
    const { onToolCallsResponse } = options
    await runTurnLoop({
      ...options,
      onToolCallsResponse: async (params) => {
        const taken = await onToolCallsResponse(params)
        if (taken === undefined || params.iteration > 1) return taken
        return { ...taken, next: { control: 'continue', transientInstruction: 'Mind the gap.' } }
      },
    })
    const told = requests.map(({ messages }) => messages.some(({ content }) => content === 'Mind the gap.'))
    expect(told).toEqual([false, true, false])
  })

  it('checks the count of turns before it opens one more [S2.22]', async () => {
    let opened = 0
    const { options } = chat(times(2, text('')), {
      emptyTextRetryLimit: 9,
      maxIterations: 2,
      onIterationStart: () => void opened++,
    })
    expect(await runTurnLoop(options)).toMatchObject({ reason: 'max_iterations_exceeded', iterations: 2 })
    expect(opened).toBe(2)
  })

  it('stops a repeated batch as repeated also where the rounds are used up, and before it runs [S2.23]', async () => {
    const { options, executed } = chat(times(3, call('look')), { maxConsecutiveToolTurns: 2 })
    const result = await runTurnLoop(options)
    expect(result.reason).toBe('repeated_tool_call_stopped')
    expect(result.steps.at(-1)?.branch).toBe('repeated_tool_call_stop')
    expect(result.toolCalls.map((one) => one.stoppedByRepeatedGuard)).toEqual([false, false, true])
    expect(result.toolCalls.map((one) => one.consecutiveSameBatchCount)).toEqual([1, 2, 3])
    expect(executed).toHaveLength(2)
  })

  it('does not run the round that is one too many [S2.23]', async () => {
    const { options, executed } = chat([call('a'), call('b'), call('c')], { maxConsecutiveToolTurns: 2 })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'max_tool_rounds_exceeded', iterations: 3 })
    expect(result.steps.at(-1)?.branch).toBe('max_tool_rounds_stop')
    expect(executed).toEqual(['a', 'b'])
  })

  it('counts rounds and repetitions anew after a text [S2.23]', async () => {
    const go = { control: 'continue' } as const
    const script = [...times(2, call('look')), text('so far'), ...times(2, call('look')), text('done')]
    const { options, executed } = chat(script, {
      maxConsecutiveToolTurns: 2,
      onTextResponse: ({ state, responseText }) =>
        responseText === 'done' ? { state: { ...state, finalText: responseText } } : { state, next: go },
    })
    expect(await runTurnLoop(options)).toMatchObject({
      reason: 'text_response',
      state: { finalText: 'done' },
    })
    expect(executed).toHaveLength(4)
  })
})
