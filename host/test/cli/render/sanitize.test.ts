import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { sanitizeBlock, sanitizeLine, sanitizeRows } from '../../../cli/render/sanitize.ts'

/** What a terminal acts on instead of showing: by category, written apart from the code under test. */
const acts = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u
const mark = '\u200e'
/** Right-to-left text stands between two marks of ours; there is no other. */
const bare = (text: string) => (text.startsWith(mark) && text.endsWith(mark) ? text.slice(1, -1) : text)
const visible = (text: string) => !acts.test(bare(text))

/** Cells in a terminal, for the characters of the test. */
const widthOf = (row: string) =>
  [...row].reduce((sum, character) => sum + (character === '日' ? 2 : character === '\u0301' ? 0 : 1), 0)

describe('untrusted text on a terminal', () => {
  it('shows escapes, carriage returns, bidi and zero-width characters instead of sending them [H.01]', () => {
    expect(sanitizeLine('a\u001b[31mred\r\u202eevil\u200b\u0007')).toBe(
      'a\\e[31mred\\r\\u{202e}evil\\u{200b}\\x07',
    )
    expect(sanitizeLine('naïve café 日本語 🙂')).toBe('naïve café 日本語 🙂')
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
        '\u05d0',
        '\u200e',
        '\u0301',
        '\u{1e922}',
      ),
      maxLength: 60,
    })
    fc.assert(
      fc.property(fc.oneof(anything, nasty), (text) => visible(sanitizeLine(text))),
      { seed: 11, numRuns: 5_000 },
    )
  })

  it('stacks no more marks than a script needs, and none onto what stands before [H.01]', () => {
    const zalgo = sanitizeLine(`a${'\u0336'.repeat(60)}b`)
    expect(zalgo).toBe(`a${'\u0336'.repeat(8)}${'\\u{336}'.repeat(52)}b`)
    expect(sanitizeLine('\u0338 x')).toBe('\\u{338} x')
    expect(sanitizeBlock('ok\n\u20dd\n\u1175', '| ')).toBe('| ok\n| \\u{20dd}\n| \\u{1175}')
    expect(sanitizeLine('नमस्ते กำลัง Tiếng Việt'.normalize('NFD'))).toBe(
      'नमस्ते กำลัง Tiếng Việt'.normalize('NFD'),
    )
    const piled = fc.string({
      unit: fc.constantFrom('a', '\u0301', '\u20dd', '\u1175', '\ufe0f', '\n'),
      maxLength: 80,
    })
    fc.assert(
      fc.property(
        piled,
        (text) => !/(?:^|[\p{M}\u1160-\u11ff]{8})[\p{M}\u1160-\u11ff]/v.test(sanitizeLine(text)),
      ),
      { seed: 13, numRuns: 3_000 },
    )
  })

  it('fences right-to-left text off from what is printed beside it [H.01]', () => {
    expect(sanitizeLine('\u05d0.txt')).toBe(`${mark}\u05d0.txt${mark}`)
    expect(sanitizeLine('\u0627\u0628\u062a', 2)).toBe(`${mark}\u0627\u0628${mark}… (1 more characters)`)
    expect(sanitizeBlock('a\n\u05d0', '| ')).toBe(`| a\n| ${mark}\u05d0${mark}`)
    expect(sanitizeLine('\u200e\u05d0')).toBe(`${mark}\\u{200e}\u05d0${mark}`)
  })

  it('breaks rows itself before a terminal would, and loses nothing [H.01]', () => {
    expect(sanitizeRows('abcdefghijkl\n\nm', '│ ', 12)).toEqual(['│ abcdefghij', '│ kl', '│ ', '│ m'])
    expect(sanitizeRows('日本語日本語', '│ ', 12)).toEqual(['│ 日本語日本', '│ 語'])
    const text = fc.string({
      unit: fc.constantFrom('a', ' ', 'é', '日', '\u0301', '\n', '\u001b', '?'),
      maxLength: 120,
    })
    fc.assert(
      fc.property(text, fc.integer({ min: 12, max: 40 }), (given, width) => {
        const rows = sanitizeRows(given, '│ ', width)
        const plain = rows.map((row) => row.slice(2)).join('')
        const whole = given
          .replace(/\n$/, '')
          .split('\n')
          .map((line) => sanitizeLine(line))
          .join('')
        return plain === whole && rows.every((row) => row.startsWith('│ ') && widthOf(row) <= width)
      }),
      { seed: 14, numRuns: 3_000 },
    )
  })

  it('starts every line of a block with the margin and adds no line of its own but the count', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('\n', '\r', 'x', '\u2028', '\u0085', '\u001b'), maxLength: 80 }),
        (text) => {
          const lines = sanitizeBlock(text, '| ', 20).split('\n')
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
    expect(sanitizeLine('x'.repeat(20), 5)).toBe('xxxxx… (15 more characters)')
    expect(sanitizeBlock('1\n2\n3\n4', '| ', 2)).toBe('| 1\n| 2\n| … (2 more lines)')
  })
})
