import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION, LoopGuard, runTurnLoop } from '../../index.ts'
import { normalizeArguments } from '../../turn-loop/tool-rounds.ts'
import { call, calls, chat, text, times } from './chat.ts'

const cycle = (period: number) => Array.from({ length: period }, (_, at) => call('look', { at }))
const far = { maxIterations: 200, maxConsecutiveToolTurns: 200 }

describe('the guard of the turn loop', () => {
  for (const reportResults of [true, false])
    it.each([1, 2, 3, 4, 5, 7])(
      `stops a circle of %i batches ${reportResults ? 'with equal results' : 'whose results it does not know'}, after one nudge [A.02, S2.23]`,
      async (period) => {
        const { options, requests, executed } = chat(times(20, ...cycle(period)), { ...far, reportResults })
        const result = await runTurnLoop(options)
        expect(result.reason).toBe('repeated_tool_call_stopped')
        expect(result.stop.repeatedToolCall).toMatchObject({ period, tool: 'look', toolNames: ['look'] })
        expect(executed.length).toBeLessThanOrEqual(3 * period)
        const nudges = requests.filter(
          ({ messages }) => messages.at(-1)?.content === DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION,
        )
        expect(nudges).toHaveLength(1)
      },
    )

  it('lets the same call be repeated as long as its result changes [A.02]', async () => {
    let count = 0
    const { options } = chat([...times(50, call('poll')), text('done')], {
      ...far,
      reportResults: true,
      execute: () => `${++count} done`,
    })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'text_response' })
    expect(result.toolCalls.at(-1)?.consecutiveSameBatchCount).toBe(50)
  })

  it('does not take another duration for another result [A.02]', async () => {
    let count = 0
    const execute = () => `failed after ${++count}.5 ms`
    const { options } = chat(times(9, call('test')), { ...far, reportResults: true, execute })
    expect(await runTurnLoop(options)).toMatchObject({ reason: 'repeated_tool_call_stopped', iterations: 3 })
  })

  it('lets edit and test alternate while the edits are new, though the test fails alike [A.02]', async () => {
    const script = Array.from({ length: 20 }, (_, at) => [call('edit', { at }), call('test')]).flat()
    const { options } = chat([...script, text('done')], {
      ...far,
      reportResults: true,
      execute: (name) => (name === 'test' ? '1 failed' : 'ok'),
    })
    expect(await runTurnLoop(options)).toMatchObject({ reason: 'text_response' })
  })

  it('sees a circle through rejected texts, and forgets it after an answer [A.02]', async () => {
    const { options } = chat(times(20, call('look'), text('Let me check.')), {
      ...far,
      reportResults: true,
      rejectedTextRetryLimit: 1,
      requiresActionEvidence: () => true,
    })
    expect(await runTurnLoop(options)).toMatchObject({ reason: 'repeated_tool_call_stopped' })
    const go = { control: 'continue' } as const
    const talk = chat(times(10, call('look'), text('so far')), {
      ...far,
      maxIterations: 20,
      onTextResponse: ({ state }) => ({ state, next: go }),
    })
    expect(await runTurnLoop(talk.options)).toMatchObject({ reason: 'max_iterations_exceeded' })
  })

  it('puts the nudge behind the instruction of the application [A.02, S2.28]', async () => {
    const { options, requests } = chat([...times(2, call('look')), text('done')])
    const { onToolCallsResponse } = options
    await runTurnLoop({
      ...options,
      onToolCallsResponse: async (params) => {
        const taken = await onToolCallsResponse(params)
        if (taken === undefined) return taken
        return { ...taken, next: { control: 'continue', transientInstruction: 'Mine.' } }
      },
    })
    expect(requests.map(({ messages }) => messages.at(-1)?.content).slice(1)).toEqual([
      'Mine.',
      `Mine.\n\n${DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION}`,
    ])
  })

  it('compares arguments whatever the order of their keys, and calls whatever their order [S2.23]', async () => {
    const spelled = ['{"b":{"d":1,"c":2},"a":1}', ' {"a":1,"b":{"c":2,"d":1}}', '{"a":1,"b":{"d":1,"c":2}}']
    const byKeys = chat(spelled.map((args) => call('look', args)))
    expect(await runTurnLoop(byKeys.options)).toMatchObject({
      reason: 'repeated_tool_call_stopped',
      stop: { repeatedToolCall: { consecutiveSameBatchCount: 3 } },
    })
    const [a, b] = [{ name: 'a' }, { name: 'b' }]
    const byOrder = chat([calls(a, b), calls(b, a), calls(a, b)])
    expect(await runTurnLoop(byOrder.options)).toMatchObject({ reason: 'repeated_tool_call_stopped' })
  })

  it('counts a call made out of text apart from one that the model made [S2.23]', async () => {
    const written = text('CALL look')
    const { options } = chat([call('look'), written, text('done')], {
      markSyntheticToolCalls: true,
      parsePlainTextToolIntent: (said) => (said === 'CALL look' ? { toolName: 'look', toolArgs: {} } : null),
    })
    const { toolCalls } = await runTurnLoop(options)
    expect(toolCalls.map((one) => one.consecutiveSameBatchCount)).toEqual([1, 1])
  })

  it('stops at the first repetition where one time is allowed, and never where it is off [S2.20, S2.23]', async () => {
    const once = chat(times(2, call('look')), { repeatedToolCallGuard: { maxConsecutiveSameBatches: 1 } })
    expect(await runTurnLoop(once.options)).toMatchObject({
      reason: 'repeated_tool_call_stopped',
      iterations: 2,
    })
    expect(once.executed).toHaveLength(1)
    const off = chat([...times(8, call('look')), text('done')], { repeatedToolCallGuard: false })
    expect(await runTurnLoop(off.options)).toMatchObject({ reason: 'text_response' })
  })

  it('keeps arguments of any depth, length and form apart [S2.23]', () => {
    const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`
    expect(normalizeArguments(deep)).toBe(deep)
    expect(normalizeArguments('{"__proto__":{"z":1,"a":2}}')).toBe('{"__proto__":{"a":2,"z":1}}')
    expect(normalizeArguments(' {not json ')).toBe('{not json')
    expect(normalizeArguments('  ')).toBe('{}')
    const guard = new LoopGuard(1)
    guard.record([{ tool: 'a', arguments: 'b","c' }])
    expect(guard.findCircle([{ tool: 'a","b', arguments: 'c' }])).toBeNull()
  })

  const args = fc.jsonValue({ maxDepth: 3 })
  it('spells equal arguments equally and different ones differently (fuzzed) [S2.23]', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), args), args, (object, other) => {
        const shuffled = Object.fromEntries(Object.entries(object).reverse())
        const spelled = normalizeArguments(JSON.stringify(object))
        expect(normalizeArguments(JSON.stringify(shuffled))).toBe(spelled)
        expect(JSON.parse(spelled)).toEqual(viaJson(object))
        const same = isDeepStrictEqual(viaJson(object), viaJson(other))
        expect(normalizeArguments(JSON.stringify(other)) === spelled).toBe(same)
      }),
      { seed: 5, numRuns: 200 },
    )
  })

  const batches = fc.array(
    fc.array(fc.record({ call: fc.nat(3), result: fc.nat(2) }), { minLength: 1, maxLength: 3 }),
    { maxLength: 60 },
  )
  it('never stops before a nudge, nor a batch with a call that is new, and ends every closed circle (fuzzed) [A.02]', () => {
    fc.assert(
      fc.property(batches, fc.integer({ min: 2, max: 4 }), (script, limit) => {
        const guard = new LoopGuard(limit)
        const made = new Set<number>()
        let nudged = false
        for (const batch of script) {
          const asked = batch.map(({ call: one }) => toolCall(one))
          const period = guard.findCircle(asked)
          if (period !== null) {
            expect(nudged).toBe(true)
            expect(batch.every(({ call: one }) => made.has(one))).toBe(true)
            expect(period).toBeGreaterThan(0)
          }
          for (const { call: one } of batch) made.add(one)
          const given = batch.map(({ call: one, result }) => ({ ...toolCall(one), result: `${result}` }))
          nudged = guard.record(given) || nudged
        }
        // Nothing new can come out of four calls that keep giving what they gave.
        const again = Array.from({ length: 40 }, (_, at) => ({
          tool: `t${at % 4}`,
          arguments: '{}',
          result: '0',
        }))
        expect(again.some((one) => guard.findCircle([one]) !== null || void guard.record([one]))).toBe(true)
      }),
      { seed: 7, numRuns: 300 },
    )
  })
})

const toolCall = (number: number) => ({ tool: `t${number}`, arguments: '{}' })

const viaJson = (value: unknown): unknown => JSON.parse(JSON.stringify(value))
