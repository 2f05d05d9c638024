// Decoders of strangers' bytes: nothing thrown, nothing without an end, whatever comes.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MessageDecoder } from '#specs/node/model-protocols/anthropic-answer.ts'
import { GeminiDecoder } from '#specs/node/model-protocols/google-answer.ts'
import type { StreamPart } from '../../llm/exchange.ts'
import { collectTurn } from '../../llm/model.ts'
import { readGolden } from './support.ts'

const decoders = { anthropic: () => new MessageDecoder(), google: () => new GeminiDecoder() }

const word = fc.constantFrom(
  'type',
  'index',
  'delta',
  'content_block',
  'message',
  'usage',
  'text',
  'thinking',
  'signature',
  'partial_json',
  'stop_reason',
  'candidates',
  'content',
  'parts',
  'functionCall',
  'partialArgs',
  'jsonPath',
  'stringValue',
  'willContinue',
  'input',
  'id',
  'tool_use_id',
  'name',
  'args',
  'finishReason',
  'usageMetadata',
  'error',
  'promptFeedback',
  '__proto__',
)
const leaf = fc.oneof(
  fc.constantFrom(
    'message_start',
    'content_block_start',
    'content_block_delta',
    'message_delta',
    'message',
    'error',
    'tool_use',
    'server_tool_use',
    'mcp_tool_use',
    'web_search_tool_result',
    '$.a[0].b',
    '$.__proto__.x',
    true,
    'thinking',
    'thinking_delta',
    'signature_delta',
    'input_json_delta',
    'text_delta',
    'end_turn',
    'pause_turn',
    'STOP',
    'MALFORMED_FUNCTION_CALL',
  ),
  fc.string(),
  fc.double(),
  fc.boolean(),
  fc.constant(null),
)
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 6 },
    leaf,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(word, tie('value'), { maxKeys: 6 }),
  ),
}))

async function* once(parts: readonly StreamPart[]) {
  yield parts
}

describe('the decoders', () => {
  for (const [name, make] of Object.entries(decoders)) {
    it(`of ${name} take any JSON and give parts that make a turn whose calls have names, or a failure [S2.06] [S2.08]`, async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(value, { maxLength: 8 }), async (values) => {
          const decoder = make()
          const parts: StreamPart[] = []
          for (const each of values) decoder.readValue(each, parts)
          const turn = await collectTurn(once(parts))
          if (!turn.ok) return
          JSON.stringify(turn.value)
          for (const { name } of turn.value.toolCalls) expect(name.trim()).not.toBe('')
        }),
        { seed: 42, numRuns: 1_000 },
      )
    })

    it(`of ${name} take its golden stream with any value changed [S2.06]`, () => {
      const lines = readGolden(`${name}-tools.sse`).split('\n')
      const chunks: unknown[] = lines
        .filter((line) => line.startsWith('data:'))
        .map((line) => JSON.parse(line.slice(5)))
      fc.assert(
        fc.property(fc.nat(), value, (place, replacement) => {
          const decoder = make()
          let count = 0
          for (const chunk of chunks) {
            const text = JSON.stringify(chunk, (_key, each: unknown) =>
              count++ === place % 200 ? replacement : each,
            )
            const parts: StreamPart[] = []
            if (text !== undefined) decoder.readValue(JSON.parse(text), parts)
            for (const part of parts) expect(typeof part.type).toBe('string')
          }
        }),
        { seed: 43, numRuns: 500 },
      )
    })
  }
})
