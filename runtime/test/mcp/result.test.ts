import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { toMcpResult } from '../../mcp/result.ts'

describe('what a server answers to a call', () => {
  it('becomes text: its texts, and words for what is none [S2.12]', () => {
    const content = [
      { type: 'text', text: 'one' },
      { type: 'image', mimeType: 'image/png', data: 'AAAA' },
      { type: 'resource', resource: { uri: 'a://b', text: 'two' } },
      { type: 'resource', resource: { uri: 'a://c', blob: 'AAAAAAAA' } },
      { type: 'resource_link', uri: 'a://d' },
      { type: 'telepathy' },
      null,
    ]
    expect(toMcpResult({ content })).toEqual({
      ok: true,
      content: 'one\n[image image/png: 3 bytes]\ntwo\n[resource a://c: 6 bytes]\n[resource a://d]',
    })
    expect(toMcpResult({ content: [], structuredContent: { a: 1 } })).toEqual({
      ok: true,
      content: '{"a":1}',
    })
    expect(toMcpResult({ content: [], isError: true })).toEqual({
      ok: false,
      content: '(no output)',
      isServersWord: true,
    })
  })

  it('is bounded, with its head and its tail [S2.12]', () => {
    const text = `head${'x'.repeat(50_000_000)}tail`
    const { content } = toMcpResult({ content: [{ type: 'text', text }] })
    expect(content.length).toBeLessThan(263_000)
    expect(content).toMatch(/^head.*characters left out.*tail$/s)
  })

  it('is text whatever it is made of [S2.12]', () => {
    const key = fc.constantFrom(
      'type',
      'text',
      'resource',
      'uri',
      'blob',
      'data',
      'mimeType',
      'toString',
      '__proto__',
    )
    const word = fc.constantFrom('text', 'image', 'resource', 'resource_link', 'audio', '\ud800')
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        word,
        fc.double(),
        fc.constant(null),
        fc.array(tie('value'), { maxLength: 4 }),
        fc.dictionary(key, tie('value'), { maxKeys: 5 }),
      ),
    }))
    fc.assert(
      fc.property(value, value, value, (content, structuredContent, isError) => {
        const result = toMcpResult({ content, structuredContent, isError })
        expect(result.content.length).toBeGreaterThan(0)
        expect(result.content.isWellFormed()).toBe(true)
      }),
      { seed: 11, numRuns: 1_000 },
    )
  })
})
