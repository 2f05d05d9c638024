import { Writable } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { fitLine, writeLines } from '../../../cli/render/fit.ts'
import { sanitizeLine } from '../../../cli/render/sanitize.ts'

describe('a line on a terminal', () => {
  it('continues behind its own margin, or behind one that says that it continues [H.01]', () => {
    expect(fitLine('  │ 0123456789abc', 14)).toEqual(['  │ 0123456789', '  │ abc'])
    const claim = `    the agent says: ${' '.repeat(60)}? Approval: allowed`
    for (const row of fitLine(claim, 80).slice(1)) expect(row).toMatch(/^ {6}┊ /)
    expect(fitLine('short', 80)).toEqual(['short'])
  })

  it('is broken between words where it can be, and drops no blank [H.01]', () => {
    expect(fitLine('set CAISSON_MODEL or leave it out', 24)).toEqual([
      'set CAISSON_MODEL or ',
      '  ┊ leave it out',
    ])
    expect(fitLine('rm -rf / home /tmp', 14)).toEqual(['rm -rf / home ', '  ┊ /tmp'])
    expect(fitLine(`to ${'x'.repeat(24)}`, 24)).toEqual([`to ${'x'.repeat(21)}`, '  ┊ xxx'])
    expect(fitLine(`    │ ${'w'.repeat(11)} far away`, 24)).toEqual([
      `    │ ${'w'.repeat(11)} far `,
      '    │ away',
    ])
  })

  it('is left alone where there is no terminal', () => {
    const written: string[] = []
    const out = new Writable({
      write(chunk, _encoding, done) {
        written.push(String(chunk))
        done()
      },
    })
    const lines = ['x'.repeat(200), 'two\nlines']
    writeLines(out, lines)
    writeLines(Object.assign(out, { isTTY: true, columns: 0 }), lines)
    expect(written).toEqual([
      `${lines.join('\n')}\n`,
      `${'x'.repeat(80)}\n  ┊ ${'x'.repeat(76)}\n  ┊ ${'x'.repeat(44)}\ntwo\nlines\n`,
    ])
  })

  it('is as wide as it looks: colors take no room, wide characters two cells', () => {
    expect(fitLine(`\u001b[31m${'x'.repeat(14)}\u001b[39m`, 14)).toEqual([
      `\u001b[31m${'x'.repeat(14)}\u001b[39m`,
    ])
    expect(fitLine('日'.repeat(8), 14)).toEqual(['日'.repeat(7), '  ┊ 日'])
  })

  it('keeps right-to-left text between marks in every row [H.01]', () => {
    const rows = fitLine(`│ ${sanitizeLine('א'.repeat(20))}`, 12)
    expect(rows).toHaveLength(2)
    for (const row of rows) expect(row).toMatch(/^│ \u200eא+\u200e$/)
  })

  it('never gets wider than the terminal and loses nothing', () => {
    const text = fc.string({
      unit: fc.constantFrom('a', ' ', '日', '\u001b[2m', '\u0301', '│', '-'),
      maxLength: 120,
    })
    fc.assert(
      fc.property(text, fc.integer({ min: 40, max: 60 }), (given, width) => {
        const rows = fitLine(given, width)
        const cells = (row: string) =>
          [...stripVTControlCharacters(row)].reduce(
            (sum, character) => sum + (character === '日' ? 2 : character === '\u0301' ? 0 : 1),
            0,
          )
        const letters = (row: string) => row.replaceAll(/[^a日]/g, '')
        return rows.every((row) => cells(row) <= width) && letters(rows.join('')) === letters(given)
      }),
      { seed: 15, numRuns: 3_000 },
    )
  })
})
