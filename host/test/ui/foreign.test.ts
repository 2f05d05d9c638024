import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { foreignBlock, foreignLine } from '../../ui/foreign.ts'

/** What a terminal acts on instead of showing: by category, written apart from the code under test. */
const acts = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u
const visible = (text: string) => !acts.test(text)

describe('foreign text on a terminal', () => {
  it('shows escapes, carriage returns, bidi and zero-width characters instead of sending them [H.01]', () => {
    expect(foreignLine('a\u001b[31mred\r\u202eevil\u200b\u0007')).toBe(
      'a\\e[31mred\\r\\u{202e}evil\\u{200b}\\x07',
    )
    expect(foreignLine('naïve café 日本語 🙂')).toBe('naïve café 日本語 🙂')
  })

  it('never lets a character act, whatever comes in', () => {
    const anything = fc.string({ unit: 'binary', maxLength: 200 })
    const nasty = fc.string({
      unit: fc.constantFrom(
        '\u001b',
        '[',
        '2',
        'J',
        '\r',
        '\n',
        '\u009b',
        '\u2066',
        '\ud800',
        '\u{e0041}',
        'a',
      ),
      maxLength: 60,
    })
    fc.assert(
      fc.property(fc.oneof(anything, nasty), (text) => visible(foreignLine(text))),
      { seed: 11, numRuns: 5_000 },
    )
  })

  it('starts every line of a block with the margin and adds no line of its own but the count', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('\n', '\r', 'x', '\u2028', '\u0085', '\u001b'), maxLength: 80 }),
        (text) => {
          const lines = foreignBlock(text, '| ', 20).split('\n')
          return (
            lines.length <= 21 &&
            (text === '' || text === '\n' || lines.every((line) => line.startsWith('| ') && visible(line)))
          )
        },
      ),
      { seed: 12, numRuns: 3_000 },
    )
  })

  it('cuts long text and says by how much', () => {
    expect(foreignLine('x'.repeat(20), 5)).toBe('xxxxx… (15 more characters)')
    expect(foreignBlock('1\n2\n3\n4', '| ', 2)).toBe('| 1\n| 2\n| … (2 more lines)')
  })
})
