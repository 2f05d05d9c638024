import { describe, expect, it } from 'vitest'
import { runTurnLoop, type TurnLoopTerminalReason } from '../../index.ts'
import { call, calls, chat, text, textResponse, times } from './chat.ts'

describe('the turn loop', () => {
  it('runs tools until the model answers in text, over a state of the application [S2.19, A.02]', async () => {
    const { options, model, executed } = chat([call('look', { at: 1 }), text('seven')])
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({
      reason: 'text_response',
      iterations: 2,
      stop: { reason: 'text_response' },
    })
    expect(result.state.finalText).toBe('seven')
    expect(result.state.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant'])
    expect(executed).toEqual(['look'])
    model.assertDone()
  })

  it('hands on a state of any kind without looking at it [S2.19]', async () => {
    const state = Object.freeze({ deep: Object.freeze([Object.freeze({ n: 1 })]) })
    const result = await runTurnLoop({
      initialState: state,
      callModel: async () => textResponse('x'),
      buildMessages: () => [],
      onTextResponse: () => undefined,
      onToolCallsResponse: () => undefined,
    })
    expect(result.state).toBe(state)
  })

  it('refuses options of a wrong type, and a loop without a way to a model, by name [S2.19]', async () => {
    const { options } = chat([text('x')])
    const { callModel: _, ...without } = options
    await expect(runTurnLoop(without)).rejects.toMatchObject({ code: 'invalid_options' })
    await expect(runTurnLoop(without)).rejects.toThrow(/modelRequest or callModel/)
    const bad: Record<string, unknown> = {
      buildMessages: 1,
      onTextResponse: undefined,
      onToolCallsResponse: null,
      callModel: 'model',
      onStop: {},
      abortSignal: {},
      maxIterations: '5',
      repeatedToolCallGuard: true,
    }
    for (const [name, value] of Object.entries(bad)) {
      const wrong = runTurnLoop({ ...options, [name]: value } as typeof options)
      await expect(wrong, name).rejects.toMatchObject({ code: 'invalid_options' })
      await expect(wrong, name).rejects.toThrow(name)
    }
    await expect(runTurnLoop(null as unknown as typeof options)).rejects.toMatchObject({
      code: 'invalid_options',
    })
  })

  const different = (count: number) => Array.from({ length: count }, (_, at) => call('look', { at }))
  const neither = 'neither' as 'text'
  const ends: Record<Exclude<TurnLoopTerminalReason, 'timeout' | 'aborted'>, ReturnType<typeof chat>> = {
    text_response: chat([text('done')]),
    tool_calls_response: chat([call('look')], { onToolCallsResponse: ({ state }) => ({ state }) }),
    empty_text_stop: chat([text(' \n')]),
    rejected_text_response: chat([text('hm')], { classifyTextResponse: () => 'non_progressing' }),
    unhandled_response: chat([], { callModel: async () => ({ ...textResponse('x'), type: neither }) }),
    max_iterations_exceeded: chat(different(3), { maxIterations: 3 }),
    max_tool_rounds_exceeded: chat(different(3), { maxConsecutiveToolTurns: 2 }),
    repeated_tool_call_stopped: chat(times(3, call('look'))),
  }
  for (const [reason, { options, model }] of Object.entries(ends))
    it(`ends with ${reason} and says so in result, stop and trace [S2.21, A.02]`, async () => {
      const stops: unknown[] = []
      const result = await runTurnLoop({ ...options, onStop: ({ result: seen }) => void stops.push(seen) })
      expect(result.reason).toBe(reason)
      expect(result.stop).toMatchObject({ reason, iteration: result.iterations, maxWallTimeMs: 120_000 })
      expect(stops).toEqual([result])
      expect(result.response).not.toBeNull()
      model.assertDone()
    })

  it('takes an answer of calls without a call as none that it knows [S2.21]', async () => {
    const { options } = chat([], {
      callModel: async () => ({ ...textResponse(''), type: 'tool_calls', tool_calls: [] }),
    })
    let asked = 0
    const result = await runTurnLoop({
      ...options,
      onUnhandledResponse: ({ state }) => {
        asked++
        return { state: { ...state, finalText: 'unhandled' } }
      },
    })
    expect(result).toMatchObject({ reason: 'unhandled_response', state: { finalText: 'unhandled' } })
    expect(asked).toBe(1)
  })

  it('has 24 turns, 8 rounds, two minutes and two same batches by default [S2.20]', async () => {
    const texts = times(30, text('more'))
    const go = { control: 'continue' } as const
    const byTurns = chat(texts, { onTextResponse: ({ state }) => ({ state, next: go }) })
    expect(await runTurnLoop(byTurns.options)).toMatchObject({
      reason: 'max_iterations_exceeded',
      iterations: 24,
      stop: { maxIterations: 24, maxConsecutiveToolTurns: 8, maxWallTimeMs: 120_000 },
    })
    const byRounds = chat(different(9))
    expect(await runTurnLoop(byRounds.options)).toMatchObject({ reason: 'max_tool_rounds_exceeded' })
    expect(byRounds.executed).toHaveLength(8)
  })

  it.each([Number.NaN, 0, -1, Number.POSITIVE_INFINITY])(
    'takes a limit of %s as none given, a small one as 1 [S2.20]',
    async (limit) => {
      const { options } = chat([text('x')], {
        maxIterations: limit,
        maxConsecutiveToolTurns: limit,
        maxWallTimeMs: limit,
        repeatedToolCallGuard: { maxConsecutiveSameBatches: limit },
      })
      const { stop } = await runTurnLoop(options)
      expect(stop).toMatchObject({ maxIterations: 24, maxConsecutiveToolTurns: 8, maxWallTimeMs: 120_000 })
      const guarded = chat(times(3, call('look')), {
        repeatedToolCallGuard: { maxConsecutiveSameBatches: limit },
      })
      expect((await runTurnLoop(guarded.options)).stop.repeatedToolCall).toMatchObject({
        maxConsecutiveSameBatches: 2,
      })
      const small = chat(different(2), { maxIterations: 0.5 })
      expect(await runTurnLoop(small.options)).toMatchObject({ iterations: 1 })
    },
  )

  it('continues where another loop stopped: counters are seeded [S2.25]', async () => {
    const seeded = chat([text(''), text('never asked')], {
      emptyTextRetryLimit: 2,
      initialEmptyTextRetryCount: 2,
    })
    const result = await runTurnLoop(seeded.options)
    expect(result).toMatchObject({ reason: 'empty_text_stop', iterations: 1, emptyTextRetryCount: 2 })
    expect(result.retries).toMatchObject([{ decision: 'stop', retryCountBefore: 2, retryLimit: 2 }])
    const rejected = chat([text('hm'), text('hm')], {
      classifyTextResponse: () => 'non_progressing',
      rejectedTextRetryLimit: 3,
      initialRejectedTextRetryCount: 2,
    })
    expect(await runTurnLoop(rejected.options)).toMatchObject({
      reason: 'rejected_text_response',
      rejectedTextRetryCount: 3,
      iterations: 2,
    })
  })

  it('gives the whole trace back: a step for each turn, every call, every retry [S2.25]', async () => {
    const { options } = chat(
      [text(''), calls({ name: 'a', arguments: '{"y":1,"x":[2]}' }, { name: 'b' }), text('done')],
      { emptyTextRetryLimit: 1 },
    )
    const result = await runTurnLoop(options)
    expect(result.steps.map(({ branch }) => branch)).toEqual([
      'empty_text_retry',
      'tool_calls_continue',
      'text_response_stop',
    ])
    expect(result.steps.map(({ consecutiveToolTurns }) => consecutiveToolTurns)).toEqual([0, 1, 0])
    expect(result.toolCalls).toMatchObject([
      {
        iteration: 2,
        toolName: 'a',
        toolArguments: '{"y":1,"x":[2]}',
        normalizedArguments: '{"x":[2],"y":1}',
      },
      { iteration: 2, toolName: 'b', toolIndex: 1, source: 'model', synthetic: false },
    ])
    expect(new Set(result.toolCalls.map(({ batchSignature }) => batchSignature)).size).toBe(1)
    expect(result.retries).toMatchObject([{ kind: 'empty_text', decision: 'retry', retryCountAfter: 1 }])
    expect(result.classifications).toMatchObject([{ classification: 'verified_final_response' }])
    expect(result.elapsedMs).toBeGreaterThanOrEqual(result.steps.at(-1)?.elapsedMs ?? 0)
  })

  it('throws what the model or a callback throws, and tells no end [S2.24]', async () => {
    const failing = { callModel: () => Promise.reject(new Error('no model')) }
    const broken = {
      onToolCallsResponse: () => {
        throw new Error('no tool')
      },
    }
    for (const [setting, words] of [
      [failing, 'no model'],
      [broken, 'no tool'],
    ] as const) {
      let stops = 0
      const { options } = chat([call('look')], { ...setting, onStop: () => void stops++ })
      await expect(runTurnLoop(options)).rejects.toThrow(words)
      expect(stops).toBe(0)
    }
  })
})
