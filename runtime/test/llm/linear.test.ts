// The client's work grows with the stream and with nothing else: counted, not timed, where that can be.
import { describe, expect, it } from 'vitest'
import { delta, done, toolDelta } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { streamChat } from '../../llm/client.ts'
import { collectTurn } from '../../llm/model.ts'
import { ToolCallCollector } from '../../llm/tool-calls.ts'

/** Characters that JSON.parse and string joining were given while the client read the reply. */
async function countWork(body: string): Promise<{ parsed: number; joined: number }> {
  await using server = await startModelServer([{ body, pieceBytes: 1_400 }])
  const request = { model: 'm', messages: [], tools: [], maxTokens: 1 }
  const { parse } = JSON
  const { join } = Array.prototype
  let parsed = 0
  let joined = 0
  JSON.parse = (text: string, reviver?: (key: string, value: unknown) => unknown) => {
    parsed += text.length
    return parse(text, reviver)
  }
  Array.prototype.join = function (this: unknown[], separator?: string) {
    const text = join.call(this, separator)
    joined += text.length
    return text
  }
  try {
    const parts = streamChat(request, { baseUrl: server.baseUrl, signal: new AbortController().signal })
    const turn = await collectTurn(parts)
    if (!turn.ok) throw new Error(turn.error.message)
  } finally {
    JSON.parse = parse
    Array.prototype.join = join
  }
  return { parsed, joined }
}

describe('the client', () => {
  it('parses each byte of a stream once, and joins arguments once [G.07 T.02]', async () => {
    const bodyOf = (count: number): string => {
      const head = toolDelta({ index: 0, id: 'a', function: { name: 'f', arguments: '{"x":"' } })
      const piece = toolDelta({
        index: 0,
        function: { arguments: 'some fifty characters of an argument, again, again' },
      })
      return `${head}${piece.repeat(count)}${toolDelta({ index: 0, function: { arguments: '"}' } })}${delta({}, 'tool_calls')}${done}`
    }
    for (const count of [200, 2_000]) {
      const body = bodyOf(count)
      const { parsed, joined } = await countWork(body)
      expect(parsed).toBeLessThan(body.length)
      // Once the pieces of events that two reads had split, once the arguments.
      expect(joined).toBeLessThan(2 * body.length)
    }
  })

  it('looks at each character of doubtful arguments once [G.07]', () => {
    let read = 0
    const counted = (text: string): string =>
      ({
        length: text.length,
        charCodeAt: (at: number) => {
          read++
          return text.charCodeAt(at)
        },
        trim: () => text.trim(),
        toString: () => text,
      }) as unknown as string
    const collector = new ToolCallCollector()
    const count = 5_000
    collector.add({ index: 0, id: null, name: 'f', argumentsText: '{"x":[' })
    // A name on every fragment and no id: whether another call begins is asked each time.
    for (let n = 0; n < count; n++)
      collector.add({ index: 0, id: null, name: 'f', argumentsText: counted('"abcdef",') })
    expect(collector.count).toBe(1)
    expect(read).toBeLessThanOrEqual(count * '"abcdef",'.length)
    expect(read).toBeGreaterThan(count)
  })
})
