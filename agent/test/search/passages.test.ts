import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { cutPassages, cutText, indexLines, passageMaxLines, passageText } from '../../search/passages.ts'

describe('passages', () => {
  it('end at a blank line where there is one in time, else after forty lines [S0.14]', () => {
    const lines = Array.from({ length: 100 }, (_, index) => (index === 29 ? '' : `line ${index + 1}`))
    expect(cutPassages(lines)).toEqual([
      { firstLine: 1, lastLine: 30 },
      { firstLine: 31, lastLine: 70 },
      { firstLine: 71, lastLine: 100 },
    ])
  })

  it('have every line with something on it once, in order, within their bounds [S0.14]', () => {
    const line = fc.oneof(
      fc.constantFrom('', '  ', 'x'),
      fc.string({ maxLength: 400 }).map((text) => text.replaceAll('\n', ' ')),
    )
    fc.assert(
      fc.property(fc.array(line, { maxLength: 200 }), (lines) => {
        const passages = cutPassages(lines)
        let next = 1
        for (const { firstLine, lastLine } of passages) {
          expect(lines.slice(next - 1, firstLine - 1).every((text) => text.trim() === '')).toBe(true)
          expect(lastLine - firstLine).toBeLessThan(passageMaxLines)
          expect(passageText(lines, { firstLine, lastLine }).length).toBeLessThan(5_100)
          next = lastLine + 1
        }
        expect(lines.slice(next - 1).every((text) => text.trim() === '')).toBe(true)
      }),
      { numRuns: 200, seed: 14 },
    )
  })

  it('are the same whether they are cut from a text or from its lines [S0.14]', () => {
    const piece = fc.oneof(
      { weight: 6, arbitrary: fc.string({ unit: 'binary', maxLength: 60 }) },
      { weight: 6, arbitrary: fc.constantFrom('\n', '\n\n', ' \n', 'a line\n'.repeat(30)) },
      fc.constantFrom('\r\n', '\r', '\ufeff', 'x'.repeat(999), 'y'.repeat(1_000), 'z'.repeat(1_001)),
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
        const text = pieces.join('')
        const lines = indexLines(text)
        const expected = cutPassages(lines).map((passage) => ({
          ...passage,
          text: passageText(lines, passage),
        }))
        expect(cutText(text)).toEqual(expected)
      }),
      { numRuns: 500, seed: 14 },
    )
  })

  it('are of lines without their ends, without a byte order mark, and cut where they are long [S0.14]', () => {
    expect(indexLines('\ufeffa\r\nb\n\nc')).toEqual(['a', 'b', '', 'c'])
    expect(indexLines('')).toEqual([])
    expect(indexLines('x'.repeat(5_000))[0]?.length).toBe(1_001)
    const just = 'x'.repeat(1_000)
    expect(indexLines(`${just}\n${just}y\n${just}`)).toEqual([just, `${just}…`, just])
  })
})
