import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { LLMResponse } from '../../contract/contract.ts'
import { runTurnLoop } from '../../index.ts'
import { chat, textResponse } from './chat.ts'

type Move = { readonly kind: 'text' | 'empty' | 'promise' | 'strange' | 'calls'; readonly which: number }

const moves = fc.array(
  fc.record({
    kind: fc.constantFrom<Move['kind']>('text', 'empty', 'promise', 'strange', 'calls', 'calls', 'calls'),
    which: fc.nat(3),
  }),
  { minLength: 1, maxLength: 12 },
)
const settings = fc.record({
  maxIterations: fc.integer({ min: 1, max: 30 }),
  maxConsecutiveToolTurns: fc.integer({ min: 1, max: 30 }),
  emptyTextRetryLimit: fc.nat(3),
  rejectedTextRetryLimit: fc.nat(3),
  markSyntheticToolCalls: fc.boolean(),
  reportResults: fc.boolean(),
})

function answer({ kind, which }: Move): LLMResponse {
  if (kind === 'empty') return textResponse(' ')
  if (kind === 'promise') return textResponse('Let me check.')
  if (kind === 'strange') return { ...textResponse('x'), type: 'other' as 'text' }
  if (kind === 'text') return textResponse(`so far ${which}`)
  const made = { name: `tool-${which}`, arguments: `{"at":${which}}` }
  return {
    ...textResponse(''),
    type: 'tool_calls',
    tool_calls: [{ id: `c${which}`, type: 'function', function: made }],
  }
}

describe('the turn loop with any model', () => {
  it('ends once, within its bounds, with a trace that fits (fuzzed) [A.02, S2.25]', async () => {
    const run = async (
      script: readonly Move[],
      setting: typeof settings extends fc.Arbitrary<infer T> ? T : never,
    ) => {
      const { options, executed } = chat([], setting)
      let asked = 0
      let stops = 0
      // The model goes round in its script forever, and the application never has enough.
      const result = await runTurnLoop({
        ...options,
        callModel: async () => answer(script[asked++ % script.length] ?? { kind: 'text', which: 0 }),
        requiresActionEvidence: () => true,
        onTextResponse: ({ state }) => ({ state, next: { control: 'continue' } }),
        onStop: () => void stops++,
      })
      expect(stops).toBe(1)
      expect(asked).toBe(result.iterations)
      expect(result.iterations).toBeLessThanOrEqual(setting.maxIterations)
      expect(result.steps.map(({ iteration }) => iteration)).toEqual(result.steps.map((_, at) => at + 1))
      const stopped = ['repeated_tool_call_stopped', 'max_tool_rounds_exceeded'].includes(result.reason)
        ? 1
        : 0
      expect(executed).toHaveLength(result.toolCalls.length - stopped)
      expect(
        result.steps.every((step) => step.consecutiveToolTurns <= setting.maxConsecutiveToolTurns + 1),
      ).toBe(true)
      expect(result.retries.every((retry) => retry.retryCountAfter <= retry.retryLimit)).toBe(true)
    }
    await fc.assert(fc.asyncProperty(moves, settings, run), { seed: 11, numRuns: 300 })
  })

  it('takes an answer without content or arguments as one with nothing in them [S2.21, S2.23]', async () => {
    const bare = { type: 'text', assistantMessage: { role: 'assistant' } } as unknown as LLMResponse
    const call = { id: 'c', type: 'function', function: { name: 'look' } }
    const calling = { ...bare, type: 'tool_calls', tool_calls: [call] } as unknown as LLMResponse
    const answers = [calling, bare]
    const { options } = chat([], {
      callModel: async () => answers.shift() ?? bare,
      parsePlainTextToolIntent: () => ({ toolName: 'never', toolArgs: {} }),
    })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'empty_text_stop', iterations: 2 })
    expect(result.toolCalls[0]?.normalizedArguments).toBe('{}')
  })
})
