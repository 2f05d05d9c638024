import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { OutputKeeper } from '../../tools/output.ts'

const bounds = { headBytes: 10, tailBytes: 8 }
const keep = (pieces: readonly Uint8Array[]): OutputKeeper => {
  const keeper = new OutputKeeper(bounds)
  for (const piece of pieces) keeper.take(piece)
  return keeper
}
const textOf = (...pieces: string[]): string => keep(pieces.map((piece) => Buffer.from(piece))).text()

describe('OutputKeeper', () => {
  it('keeps all that fits, up to the last byte [S2.15]', () => {
    expect(textOf()).toBe('')
    expect(textOf('0123456789', '01234567')).toBe('012345678901234567')
  })

  it('keeps beginning and end of more, and says how much is gone [S2.15]', () => {
    expect(textOf('0123456789abc', 'defghijklmnop')).toBe('0123456789\n[… 8 bytes cut …]\nijklmnop')
  })

  it('does not depend on how the bytes arrive, and counts them all', () => {
    const output = fc.array(fc.uint8Array({ maxLength: 30 }), { maxLength: 20 })
    fc.assert(
      fc.property(output, (pieces) => {
        const whole = Buffer.concat(pieces)
        const keeper = keep(pieces)
        expect(keeper.totalBytes).toBe(whole.length)
        expect(keeper.text()).toBe(keep([whole]).text())
        expect(keep([...whole].map((byte) => Uint8Array.of(byte))).text()).toBe(keeper.text())
        expect(Buffer.byteLength(keeper.text())).toBeLessThanOrEqual(18 * 3 + 40)
      }),
      { seed: 3, numRuns: 300 },
    )
  })

  it('never cuts a character in two: what is cut is counted with the middle', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', minLength: 20, maxLength: 60 }), (text) => {
        const [head = '', tail] = textOf(text).split(/\n\[… \d+ bytes cut …\]\n/)
        expect(head).not.toContain('\ufffd')
        if (tail !== undefined) expect(text.startsWith(head) && text.endsWith(tail)).toBe(true)
      }),
      { seed: 5, numRuns: 300 },
    )
  })

  it('replaces bytes that are no UTF-8', () => {
    expect(keep([Uint8Array.of(0x61, 0xff, 0x62)]).text()).toBe('a\ufffdb')
  })

  it('holds no more for a million small pieces than for one', () => {
    const keeper = new OutputKeeper({ headBytes: 1024, tailBytes: 1024 })
    const piece = Buffer.from('0123456789')
    for (let at = 0; at < 200_000; at++) keeper.take(piece)
    expect(keeper.totalBytes).toBe(2_000_000)
    expect(keeper.text()).toContain(`[… ${2_000_000 - 2048} bytes cut …]`)
  })
})
