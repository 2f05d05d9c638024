import { describe, expect, it } from 'vitest'
import { createContentFilter } from '../../traces/content.ts'
import {
  agentEnd,
  agentStart,
  modelEnd,
  modelStart,
  runEnd,
  runStart,
  type Step,
  spanNamed,
  spansOf,
  toolEnd,
  toolStart,
  turnEnd,
} from './support.ts'

describe('the content of spans', () => {
  const written: readonly Step[] = [
    [0, runStart({ prompt: 'Use sk-key-of-the-test for a.txt' })],
    [5, agentStart(), 'root/one'],
    [10, modelStart('model-1', 1)],
    [20, modelEnd('model-1')],
    [
      25,
      turnEnd(1, {
        text: 'I read it',
        reasoning: 'First a.txt',
        calls: [{ callId: 'c1', tool: 'read_file' }],
      }),
      'root',
    ],
    [30, toolStart('c1', 'read_file', { arguments: '{"path":"sk-key-of-the-test"}' }), 'root'],
    [40, toolEnd('c1', 'read_file', { output: `sk-key-of-the-test ${'y'.repeat(7_900)}` }), 'root'],
    [50, agentEnd(), 'root/one'],
    [60, runEnd({ outcome: 'failed', reason: 'step_failed', message: 'sk-key-of-the-test was wrong' })],
  ]
  const redact = (text: string): string => text.replaceAll('sk-key-of-the-test', '[redacted]')

  it('is there only when it is asked for: messages, arguments and results, without keys [R.04]', () => {
    const spans = spansOf(written, { filter: createContentFilter(redact) })
    const read = (name: string, key: string): unknown =>
      JSON.parse(String(spanNamed(spans, name).attributes[`gen_ai.${key}`]))
    expect(read('invoke_agent caisson', 'input.messages')).toEqual([
      { role: 'user', parts: [{ type: 'text', content: 'Use [redacted] for a.txt' }] },
    ])
    expect(read('invoke_agent caisson', 'output.messages')).toMatchObject([
      { role: 'assistant', parts: [{ type: 'text', content: 'The report is written.' }] },
    ])
    expect(read('invoke_agent one', 'input.messages')).toMatchObject([
      { parts: [{ content: 'Check the numbers' }] },
    ])
    expect(read('invoke_agent one', 'output.messages')).toMatchObject([
      { parts: [{ content: 'They are right' }] },
    ])
    expect(read('chat big-model', 'output.messages')).toEqual([
      {
        role: 'assistant',
        parts: [
          { type: 'reasoning', content: 'First a.txt' },
          { type: 'text', content: 'I read it' },
          { type: 'tool_call', id: 'c1', name: 'read_file' },
        ],
        finish_reason: 'stop',
      },
    ])
    expect(read('execute_tool read_file', 'tool.call.arguments')).toEqual({ path: '[redacted]' })
    expect(spanNamed(spans, 'invoke_agent caisson').message).toBe('[redacted] was wrong')
    expect(JSON.stringify(spans)).not.toContain('sk-key')
  })

  it('is cut, after its keys are taken out [R.04]', () => {
    const key = 'sk-key-of-the-test'
    const filter = createContentFilter(redact)
    // The cut would leave the first half of the key.
    const cut = filter(`${'z'.repeat(8_185)}${key}${'z'.repeat(100)}`)
    expect(cut).toBe(`${'z'.repeat(8_185)}[redact… [103 characters cut]`)
    expect(filter(`a\ud800${'b'.repeat(9_000)}`).isWellFormed()).toBe(true)
  })
})
