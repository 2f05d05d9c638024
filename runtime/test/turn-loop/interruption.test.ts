import { getEventListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { runTurnLoop } from '../../index.ts'
import { call, chat, text, textResponse } from './chat.ts'

const never = <T>() => new Promise<T>(() => undefined)

/** Rejects with the signal's reason. */
const untilAborted = <T>(signal: AbortSignal) =>
  new Promise<T>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))

describe('the wall time of the turn loop', () => {
  it('ends a model that does not answer, with no response and the turn in which it was [S2.24]', async () => {
    const signals: AbortSignal[] = []
    let stops = 0
    const { options } = chat([], {
      maxWallTimeMs: 500,
      callModel: ({ abortSignal }) => {
        signals.push(abortSignal)
        return never()
      },
      onStop: () => void stops++,
    })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'timeout', response: null, iterations: 1, steps: [] })
    expect(result.stop).toMatchObject({ timedOutDuringIteration: 1, maxWallTimeMs: 500 })
    expect(signals.map(({ aborted, reason }) => [aborted, reason?.name])).toEqual([[true, 'TimeoutError']])
    expect(stops).toBe(1)
  })

  it('ends tools too: their signal is aborted, the state before them is kept [S2.24, A.02]', async () => {
    const { options } = chat([call('look')], { maxWallTimeMs: 500, interruptGraceMs: 0 })
    const signals: AbortSignal[] = []
    const result = await runTurnLoop({
      ...options,
      onToolCallsResponse: ({ abortSignal }) => {
        signals.push(abortSignal)
        return never()
      },
    })
    expect(result).toMatchObject({ reason: 'timeout', state: options.initialState, stop: { iteration: 1 } })
    expect(result.response?.type).toBe('tool_calls')
    expect(result.steps.map(({ branch }) => branch)).toEqual(['timeout_stop'])
    expect(signals[0]?.aborted).toBe(true)
  })

  it('keeps the state that tools hand back when they obey the signal, and asks no more [S2.24, A.02]', async () => {
    const { options, requests } = chat([call('look')], { maxWallTimeMs: 500 })
    const result = await runTurnLoop({
      ...options,
      onToolCallsResponse: async ({ state, abortSignal }) => {
        await untilAborted(abortSignal).catch(() => undefined)
        return { state: { ...state, finalText: 'interrupted' }, next: { control: 'continue' } }
      },
    })
    expect(result).toMatchObject({ reason: 'timeout', state: { finalText: 'interrupted' } })
    expect(requests).toHaveLength(1)
  })

  it.each([
    'onIterationStart',
    'buildMessages',
    'onModelResponse',
    'requiresActionEvidence',
    'onTextResponse',
  ])('covers a callback that hangs: %s [S2.24]', async (name) => {
    const { options } = chat([text('x')], { maxWallTimeMs: 20, interruptGraceMs: 0, [name]: never })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'timeout', stop: { timedOutDuringIteration: 1 } })
  })

  it('is noticed also after work that did not let the timer come [S2.22, S2.24]', async () => {
    const block = () => {
      const end = performance.now() + 30
      while (performance.now() < end);
    }
    const before = chat([text('x')], { maxWallTimeMs: 20, onIterationStart: block })
    expect(await runTurnLoop(before.options)).toMatchObject({ reason: 'timeout', response: null })
    expect(before.requests).toHaveLength(0)
    const after = chat([text('x')], { maxWallTimeMs: 20, onModelResponse: block })
    expect(await runTurnLoop(after.options)).toMatchObject({
      reason: 'timeout',
      response: { content: 'x' },
      state: { finalText: '' },
      steps: [{ branch: 'timeout_stop' }],
    })
  })

  it('may be longer than a timer can be [S2.20]', async () => {
    const { options } = chat([], {
      maxWallTimeMs: Number.MAX_SAFE_INTEGER,
      callModel: async () => {
        await sleep(20)
        return textResponse('in time')
      },
    })
    expect(await runTurnLoop(options)).toMatchObject({ reason: 'text_response' })
  })
})

describe('the signal of the application', () => {
  it('ends the loop before its first turn when it is aborted already [S2.21, A.02]', async () => {
    const { options, requests } = chat([text('x')], { abortSignal: AbortSignal.abort() })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'aborted', response: null, iterations: 0 })
    expect(result.stop.abortedDuringIteration).toBeUndefined()
    expect(requests).toHaveLength(0)
  })

  it('ends a model in the middle of its answer; what it had said is kept [S2.21, A.02]', async () => {
    const controller = new AbortController()
    const { options } = chat([], {
      abortSignal: controller.signal,
      callModel: ({ onText, abortSignal }) => {
        onText('It ')
        onText('is')
        queueMicrotask(() => controller.abort(new Error('enough')))
        return untilAborted(abortSignal)
      },
    })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'aborted', response: null })
    expect(result.stop).toMatchObject({ partialText: 'It is', abortedDuringIteration: 1 })
  })

  it('keeps the last whole answer, and forgets the text of answers that became whole [A.02]', async () => {
    const controller = new AbortController()
    const { options } = chat([call('look'), { text: 'never', broken: 'hang' }], {
      abortSignal: controller.signal,
      onIterationStart: ({ iteration }) => {
        if (iteration === 2) setTimeout(() => controller.abort(), 10)
      },
      callModel: async ({ onText, iteration }) => {
        onText(`answer ${iteration}`)
        if (iteration === 2) return never()
        return { ...textResponse('first'), type: 'tool_calls', tool_calls: [toolCall] }
      },
    })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'aborted', response: { content: 'first' }, iterations: 2 })
    expect(result.stop.partialText).toBe('answer 2')
  })

  it('reaches tools, whose late results stay in the state [A.02]', async () => {
    const controller = new AbortController()
    const { options, requests } = chat([call('look')], { abortSignal: controller.signal })
    const { onToolCallsResponse } = options
    const result = await runTurnLoop({
      ...options,
      onToolCallsResponse: async (params) => {
        setTimeout(() => controller.abort(), 5)
        await untilAborted(params.abortSignal).catch(() => undefined)
        return onToolCallsResponse(params)
      },
    })
    expect(result.reason).toBe('aborted')
    expect(result.steps.map(({ branch }) => branch)).toEqual(['aborted_stop'])
    expect(result.state.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool'])
    expect(requests).toHaveLength(1)
  })

  it('is a stop reason also where a tool throws because of it [A.02]', async () => {
    const controller = new AbortController()
    const { options } = chat([call('look')], { abortSignal: controller.signal })
    const result = await runTurnLoop({
      ...options,
      onToolCallsResponse: ({ abortSignal }) => {
        setTimeout(() => controller.abort(), 5)
        return untilAborted(abortSignal)
      },
    })
    expect(result).toMatchObject({ reason: 'aborted', state: options.initialState })
  })

  it('does not take an answer away that the application has kept meanwhile [A.02]', async () => {
    const controller = new AbortController()
    const { options } = chat([text('done')], { abortSignal: controller.signal })
    const { onTextResponse } = options
    const result = await runTurnLoop({
      ...options,
      onTextResponse: (params) => {
        controller.abort()
        return onTextResponse(params)
      },
    })
    expect(result).toMatchObject({ reason: 'text_response', state: { finalText: 'done' } })
  })

  it('is let go of: a loop leaves no listener and no timer behind, a model error neither [A.02]', async () => {
    const controller = new AbortController()
    const loops = [
      chat([call('a'), call('b'), text('done')], { abortSignal: controller.signal }),
      chat([], { abortSignal: controller.signal, callModel: () => Promise.reject(new Error('down')) }),
    ]
    for (const { options } of loops) await runTurnLoop(options).catch(() => undefined)
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
    const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout')
    const { options } = chat([text('x')], { maxWallTimeMs: 1e9 })
    await runTurnLoop(options)
    expect(process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length).toBeLessThanOrEqual(
      timers.length,
    )
  })
})

const toolCall = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } } as const
