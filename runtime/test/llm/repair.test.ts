// JSON out of a model's words: certain repairs, and no guesses.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseModelJson } from '../../llm/repair.ts'

describe('parseModelJson', () => {
  it.each([
    ['{"a":1}', 0],
    ['```json\n{"a":1}\n```', 1],
    ['Here is the plan:\n\n```\n{"a":1}\n```\nGood luck!', 1],
    ['Sure! {"a":1} is it.', 1],
    ["{'a': 1,}", 1],
    ['{a: 1} // done', 2],
    ['\uFEFF{"a":1}', 0],
    ['See [1] and {"a":1}.', 1],
    ['For each {name}: {"a":1}', 1],
    ['{"a":1} is {it', 1],
    ['{"a":1 /* one */}', 1],
  ])('reads %j with %i corrections [G.07]', (text, corrections) => {
    const parsed = parseModelJson(text)
    expect(parsed.ok && parsed.value.value).toEqual({ a: 1 })
    expect(parsed.ok && parsed.value.corrections.length).toBe(corrections)
  })

  it.each([
    '',
    'no',
    '{"a":1',
    '{"a":"x',
    '[1,2',
    '```json\n{"a":\n```',
    '{"__proto__":1}',
    '{"a":1,"a":2}',
    '{"a":1} {"b":2}',
    '{"a":"say "x" now"}',
    '{"a":"\\d+"}',
    '{"a":x}',
    '{"a":}',
    '[1,2,...]',
    '["a" "b"]',
    '{"a":"x" "b":"y"}',
    '['.repeat(100_000),
  ])('does not guess at %.20j [G.07]', (text) => {
    expect(parseModelJson(text).ok).toBe(false)
  })

  it('keeps line breaks, quotes and words of strings that it repairs around [G.07]', () => {
    const parsed = parseModelJson(`{'a': "it's\n{b: 1,} // no", c: 'x "y" None', d: None,}`)
    expect(parsed.ok && parsed.value.value).toEqual({ a: "it's\n{b: 1,} // no", c: 'x "y" None', d: null })
  })

  it('adds closing braces only where it is asked to, and only behind a whole value [G.07]', () => {
    const value = (text: string) => {
      const parsed = parseModelJson(text, { closeObjects: true })
      return parsed.ok ? parsed.value.value : null
    }
    expect(parseModelJson('{"a":"x"').ok).toBe(false)
    expect(value('{"a":"x"')).toEqual({ a: 'x' })
    expect(value('{"a":{"b":[1]')).toEqual({ a: { b: [1] } })
    expect(value("{'a':{b:true")).toEqual({ a: { b: true } })
    for (const cut of [
      '{"a":1',
      '{"a":"x',
      '{"a":"x",',
      '{"a":',
      '{"a"',
      '{"a":["x"',
      '[{"a":"x"',
      '{',
      '{"a":tru',
    ])
      expect(value(cut), cut).toBeNull()
  })

  it('keeps a fence that stands inside of a string [G.07]', () => {
    const value = { code: '```js\nx\n```' }
    expect(parseModelJson(`\`\`\`json\n${JSON.stringify(value)}\n\`\`\``)).toMatchObject({ value: { value } })
  })

  it('gives back every JSON value as it is, also between prose [G.07]', () => {
    fc.assert(
      fc.property(
        fc.dictionary(
          fc.string().filter((key) => key !== '__proto__'),
          fc.jsonValue({ maxDepth: 3 }),
        ),
        (value) => {
          const text = JSON.stringify(value)
          if (text.includes('__proto__')) return
          const plain = parseModelJson(text)
          expect(plain.ok && JSON.stringify(plain.value.value)).toBe(text)
          const dressed = parseModelJson(`Well: ${text} so.`)
          expect(dressed.ok && JSON.stringify(dressed.value.value)).toBe(text)
        },
      ),
      { seed: 5, numRuns: 200 },
    )
  })

  it('does not try to fix what has more quotation marks than could be gone through [T.02]', () => {
    for (const text of ['"a'.repeat(150_000), `{"a":"${'"a'.repeat(150_000)}`, '`a'.repeat(150_000)])
      expect(parseModelJson(text)).toMatchObject({
        ok: false,
        error: expect.stringContaining('quotation marks'),
      })
    // A file that quotes much is no such text: its marks are escaped.
    const file = JSON.stringify({ content: 'say("it is", `so`)\n'.repeat(4_000) }).replace(/}$/, ',}')
    expect(parseModelJson(file)).toMatchObject({ ok: true })
  })

  it('takes hostile text in time that grows with its length alone [T.02]', () => {
    const time = (size: number): number => {
      const started = process.threadCpuUsage()
      for (const unit of ['```', '{ ', '``` \n', '"\\', '{"a":[']) parseModelJson(unit.repeat(size))
      return process.threadCpuUsage(started).user / 1_000
    }
    time(2_000)
    const small = Math.max(time(4_000), 1)
    expect(time(40_000) / small).toBeLessThan(80)
  })
})
